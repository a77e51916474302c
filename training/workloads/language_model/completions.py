"""Supervised fine-tuning: a sample is one prompt with its completion, and only this is predicted.

A sample holds prompt, completion and the end token, filled up with end tokens; ``counted`` says
which targets cost anything: the completion's tokens and the end behind them. Nothing attends
across examples, as there is one a sample.

What is too long for the context loses the beginning of its prompt; a completion that is too long
by itself keeps the last token of its prompt and loses its own end.
"""

import hashlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from training.data.dataset import Dataset
from training.data.manifest import Samples
from training.workloads import Column
from training.workloads.language_model.tokenizer import Tokenizer

if TYPE_CHECKING:
    import pyarrow as pa  # not needed by a training

COLUMNS = {"prompt": Column("text"), "completion": Column("text")}
COUNTED = "counted"
"""The field of a sample: uint8 (context_length,), 1 for each target that counts."""


class CompletionPacker:
    """Each record becomes a sample of its own."""

    def __init__(self, tokenizer: Tokenizer, width: int, dtype: str) -> None:
        self._tokenizer, self._width, self._dtype = tokenizer, width, dtype

    def add(self, records: "pa.RecordBatch") -> Samples:
        """The samples of these records' ``prompt`` and ``completion``."""
        prompts, completions = (
            self._split(records.column(name)) for name in ("prompt", "completion")
        )
        tokens = np.full((len(prompts), self._width), self._tokenizer.end, self._dtype)
        counted = np.zeros((len(prompts), self._width - 1), np.uint8)
        for row, mask, prompt, said in zip(tokens, counted, prompts, completions, strict=True):
            said = np.append(said, self._tokenizer.end)
            room = max(1, self._width - len(said))
            prompt = prompt[-room:]
            whole = np.concatenate((prompt, said))[: self._width]
            row[: len(whole)] = whole
            mask[max(0, len(prompt) - 1) : len(whole) - 1] = 1
        return {"tokens": tokens, COUNTED: counted}

    def flush(self) -> Samples:
        """Nothing: no record waits for another."""
        return {
            "tokens": np.empty((0, self._width), self._dtype),
            COUNTED: np.empty((0, self._width - 1), np.uint8),
        }

    def statistics(self) -> dict[str, Any]:
        """Nothing: the model needs to know nothing of the data."""
        return {}

    def _split(self, texts: "pa.StringArray") -> list[np.ndarray]:
        """The tokens of each text; the end token stands in none."""
        joined = self._tokenizer.encode_documents(texts)
        ends = np.flatnonzero(joined == self._tokenizer.end)
        return [part[:-1] for part in np.split(joined, ends + 1)[:-1]]


def examples(
    dataset: Dataset, size: int, measure: Callable[[np.ndarray], np.ndarray] | None = None
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """(unit, hash of each sample int64 (d,), sums over its counted targets (d, columns)); of those
    that have any.

    ``measure`` as in ``scores.documents``.
    """
    for passage in dataset.stream(size):
        tokens, counted = (passage.samples[name] for name in ("tokens", COUNTED))
        columns = np.empty((*counted.shape, 0)) if measure is None else measure(tokens)
        sums = np.where(counted[..., None] > 0, columns, 0.0).sum(1)
        kept = counted.any(1)
        names = [_hash(*pair) for pair in zip(tokens, counted, strict=True)]
        hashes = np.frombuffer(b"".join(names), "<i8")
        cuts = np.flatnonzero(np.diff(passage.sources)) + 1
        for at in np.split(np.arange(len(tokens)), cuts):
            if kept[at].any():
                yield int(passage.sources[at[0]]), hashes[at][kept[at]], sums[at][kept[at]]


def _hash(tokens: np.ndarray, counted: np.ndarray) -> bytes:
    content = np.ascontiguousarray(tokens, "<u4").tobytes() + counted.tobytes()
    return hashlib.blake2b(content, digest_size=8).digest()
