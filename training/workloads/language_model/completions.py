"""Supervised fine-tuning: prompts with their completions; only the completions are predicted.

A sample holds prompt, completion and the end token, padded with end tokens; ``counted`` marks
the targets that have a loss: the completion's tokens and the end behind them. Nothing attends
across examples: a sample has one, or, if attention is limited to documents, as many as
fit, in their order.

An example too long for the context loses the beginning of its prompt; a completion that is too long
on its own keeps the last token of its prompt and loses its own end.
"""

import hashlib
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from training.data.dataset import Dataset, Share
from training.data.manifest import Samples
from training.workloads import Column
from training.workloads.language_model.tokenizer import Tokenizer

if TYPE_CHECKING:
    import pyarrow as pa  # not needed by a training

COLUMNS = {"prompt": Column("text"), "completion": Column("text")}
COUNTED_FIELD = "counted"
"""Field of a sample: uint8 (context_length,), 1 for each target that counts."""


class CompletionPacker:
    """Makes each record a sample; with ``together`` several records share a sample."""

    def __init__(self, tokenizer: Tokenizer, width: int, dtype: str, *, together: bool) -> None:
        self._tokenizer, self._width, self._dtype = tokenizer, width, dtype
        self._together = together
        self._waiting: list[tuple[np.ndarray, np.ndarray]] = []

    def add(self, records: "pa.RecordBatch") -> Samples:
        """Add records with ``prompt`` and ``completion``; return the samples that are complete."""
        prompts, completions = (
            self._split(records.column(name)) for name in ("prompt", "completion")
        )
        samples = []
        for pair in zip(prompts, completions, strict=True):
            example = self._example(*pair)
            if self._waiting and not (self._together and self._room() >= len(example[0])):
                samples.append(self._waiting)
                self._waiting = []
            self._waiting.append(example)
        if not self._together:
            return self._make_samples([*samples, *self._pop_waiting()])
        return self._make_samples(samples)

    def flush(self) -> Samples:
        """Return the sample of the waiting examples."""
        return self._make_samples(self._pop_waiting())

    def _example(self, prompt: np.ndarray, completion: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return an example's tokens, and which targets count; its last token has no target."""
        completion = np.append(completion, self._tokenizer.end)
        room = max(1, self._width - len(completion))
        prompt = prompt[-room:]
        tokens = np.concatenate((prompt, completion))[: self._width]
        target_mask = np.zeros(len(tokens), np.uint8)
        target_mask[max(0, len(prompt) - 1) : len(tokens) - 1] = 1
        return tokens, target_mask

    def _room(self) -> int:
        """Return how many more tokens fit behind the waiting ones."""
        return self._width - sum(len(tokens) for tokens, _ in self._waiting)

    def _pop_waiting(self) -> list[list[tuple[np.ndarray, np.ndarray]]]:
        """Return the sample of the waiting examples, which are then cleared; none if none wait."""
        waiting, self._waiting = self._waiting, []
        return [waiting] if waiting else []

    def _make_samples(self, samples: list[list[tuple[np.ndarray, np.ndarray]]]) -> Samples:
        tokens = np.full((len(samples), self._width), self._tokenizer.end, self._dtype)
        target_masks = np.zeros((len(samples), self._width), np.uint8)
        for row, mask, examples in zip(tokens, target_masks, samples, strict=True):
            for target, part in ((row, 0), (mask, 1)):
                values = np.concatenate([example[part] for example in examples])
                target[: len(values)] = values
        return {"tokens": tokens, COUNTED_FIELD: target_masks[:, :-1].copy()}

    def statistics(self) -> dict[str, Any]:
        """Return no statistics: the model needs none."""
        return {}

    def _split(self, texts: "pa.StringArray") -> list[np.ndarray]:
        """Return the tokens of each text, without end tokens."""
        tokens = self._tokenizer.encode_documents(texts)
        ends = np.flatnonzero(tokens == self._tokenizer.end)
        return [part[:-1] for part in np.split(tokens, ends + 1)[:-1]]


def examples(
    dataset: Dataset,
    end: int,
    size: int,
    measure: Callable[[np.ndarray], np.ndarray] | None = None,
    share: Share | None = None,
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yield (unit, hash of each example int64 (d,), sums over its counted targets (d, columns)) for
    examples that have counted targets.

    ``measure`` is as in ``scores.documents``.
    """
    for passage in dataset.stream(size, share):
        tokens, target_masks = (passage.samples[name] for name in ("tokens", COUNTED_FIELD))
        columns = np.empty((*target_masks.shape, 0)) if measure is None else measure(tokens)
        columns = np.where(target_masks[..., None] > 0, columns, 0.0)
        cuts = np.flatnonzero(np.diff(passage.sources)) + 1
        for indices in np.split(np.arange(len(tokens)), cuts):
            places = [
                (n, *place)
                for n in indices
                for place in _split_examples(tokens[n], target_masks[n], end)
            ]
            if not places:
                continue
            rows = [(tokens[n, a:b], target_masks[n, a : b - 1]) for n, a, b in places]
            names = b"".join(_hash(*row, end, tokens.shape[1]) for row in rows)
            sums = np.stack([columns[n, a : b - 1].sum(0) for n, a, b in places])
            yield int(passage.sources[indices[0]]), np.frombuffer(names, "<i8"), sums


def _split_examples(
    tokens: np.ndarray, target_mask: np.ndarray, end: int
) -> Iterator[tuple[int, int]]:
    """Yield begin and stop of each example in a sample that has a counted target."""
    stops = [*(np.flatnonzero(tokens == end) + 1).tolist(), len(tokens)]
    for start, stop in pairwise([0, *stops]):
        if target_mask[start : stop - 1].any():
            yield start, stop


def _hash(tokens: np.ndarray, target_mask: np.ndarray, end: int, width: int) -> bytes:
    """Return the hash of the sample that would hold the example alone."""
    row, mask = np.full(width, end, "<u4"), np.zeros(width - 1, np.uint8)
    row[: len(tokens)], mask[: len(target_mask)] = tokens, target_mask
    return hashlib.blake2b(row.tobytes() + mask.tobytes(), digest_size=8).digest()
