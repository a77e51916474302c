"""Supervised fine-tuning: prompts with their completions; only the completions are predicted.

A sample holds prompt, completion and the end token, padded with end tokens; ``counted`` marks
the targets that have a loss: the completion's tokens and the end behind them. Nothing attends
across examples: a sample has one, or, if attention is limited to documents, as many as
fit, in their order.

An example too long for the context loses the beginning of its prompt; a completion that is too long
on its own keeps the last token of its prompt and loses its own end.
"""

import hashlib
import json
from array import array
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from training.data.dataset import Dataset, Share
from training.data.manifest import Samples
from training.workloads import Column
from trainyard.common.errors import DataError

# Turns text into tokens, with each token's number of bytes: plain bytes, or a tokenizer.json.

if TYPE_CHECKING:
    import pyarrow as pa  # not needed by a training: 0.1 s and 30 MB of each rank

BATCH_BYTES = 2**20  # of text at once: an encoding takes about 100 bytes per token
END_NAMES = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>")


class Tokenizer(Protocol):
    """Interface: ``end`` separates documents; ``token_bytes[id]`` is 0 for tokens without text."""

    size: int
    end: int
    token_bytes: np.ndarray

    def encode_documents(self, texts: "pa.StringArray") -> np.ndarray:
        """Return the tokens of all texts, each followed by the end token, in one array."""


class ByteTokenizer:
    """Tokenizer whose tokens are the bytes of the UTF-8 text; one more token ends a document."""

    size = 257
    end = 256
    token_bytes = np.array([1] * 256 + [0], dtype=np.int64)

    def encode_documents(self, texts: "pa.StringArray") -> np.ndarray:
        """Return the tokens of all texts, each followed by the end token, uint16."""
        import pyarrow as pa
        import pyarrow.compute as pc

        lengths = pc.binary_length(texts).to_numpy(zero_copy_only=False)
        if not len(lengths):
            return np.empty(0, np.uint16)
        # Joined by NULs, whose places the end tokens take below.
        buffer = pc.binary_join(pa.ListArray.from_arrays([0, len(texts)], texts), "\0")
        buffer = memoryview(buffer.buffers()[2])[: int(lengths.sum()) + len(lengths) - 1]
        tokens = np.empty(len(buffer) + 1, np.uint16)
        tokens[:-1] = np.frombuffer(buffer, np.uint8)
        tokens[np.cumsum(lengths + 1) - 1] = self.end
        return tokens


class FileTokenizer:
    """A byte-level tokenizer.json, like GPT-2's and Llama 3's.

    Raises:
        DataError: the file is missing, is not byte-level (so the bytes of a token are unknown,
            and bits per byte with them), or has no token that ends a document.
    """

    def __init__(self, path: Path) -> None:
        from tokenizers import Tokenizer as HuggingFaceTokenizer

        if not path.is_file():
            raise DataError(f"{path}: no such tokenizer; set workload.tokenizer to its S3 prefix")
        description = json.loads(path.read_text(encoding="utf-8"))
        if "ByteLevel" not in json.dumps(description.get("decoder")):
            raise DataError(
                f"{path}: is not byte-level (its decoder has no ByteLevel), so the bytes of a "
                "token are not known; use a byte-level BPE tokenizer"
            )
        self._tokenizer = HuggingFaceTokenizer.from_file(str(path))
        # "<|endoftext|>" in a text is text; read as the token it would end the document there.
        self._tokenizer.encode_special_tokens = True
        self.size = self._tokenizer.get_vocab_size()
        special = {token["id"] for token in description.get("added_tokens", ())}
        ends = [self._tokenizer.token_to_id(name) for name in END_NAMES]
        self.end = next((end for end in ends if end is not None), -1)
        if self.end < 0:
            raise DataError(f"{path}: has none of {', '.join(END_NAMES)} to end a document with")
        # In the byte-level alphabet every character of a token stands for one byte.
        tokens = [self._tokenizer.id_to_token(index) or "" for index in range(self.size)]
        sizes = [0 if index in special else len(token) for index, token in enumerate(tokens)]
        self.token_bytes = np.array(sizes, dtype=np.int64)

    def encode_documents(self, texts: "pa.StringArray") -> np.ndarray:
        """Return the tokens of all texts, each followed by the end token, uint32."""
        import pyarrow.compute as pc

        total = np.cumsum(pc.binary_length(texts).to_numpy(zero_copy_only=False))
        cuts = np.flatnonzero(np.diff(total // BATCH_BYTES)) + 1
        tokens = array("I")  # converts a list of numbers in half of numpy's time
        for start, stop in pairwise([0, *cuts.tolist(), len(texts)]):
            group = texts.slice(start, stop - start).to_pylist()
            encodings = self._tokenizer.encode_batch_fast(group, add_special_tokens=False)
            for encoding in encodings:
                tokens.fromlist(encoding.ids)
                tokens.append(self.end)
        return np.frombuffer(tokens, np.uint32)


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
            used = sum(len(tokens) for tokens, _ in self._waiting)
            fits = self._together and self._width - used >= len(example[0])
            if self._waiting and not fits:
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
