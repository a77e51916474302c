"""Supervised fine-tuning: prompts with completions, of which only the completions are predicted.

A sample contains prompt, completion and the end token, padded with end tokens. ``counted`` marks
the targets that have a loss: the completion's tokens and the end token after them. No token attends
to another example: a sample has one example, or, if attention is limited to documents, as many as
fit, in their order.

If an example is too long for the context, the beginning of its prompt is cut off. If the completion
alone is too long, the last token of the prompt is kept and the completion's end is cut off.
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

# Tokenizers, which also tell the number of bytes of each token: plain bytes, or a tokenizer.json.

if TYPE_CHECKING:
    import pyarrow as pa  # only for types: training does not need it (0.1 s and 30 MB per rank)

BATCH_BYTES = 2**20  # bytes of text per call: an encoding takes about 100 bytes per token
END_NAMES = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>")


class Tokenizer(Protocol):
    """Interface of a tokenizer.

    ``size`` is the number of tokens. ``end`` is the token that ends a document. ``token_bytes``
    contains the number of bytes of each token, 0 for tokens without text.
    """

    size: int
    end: int
    token_bytes: np.ndarray

    def encode_documents(self, texts: "pa.StringArray") -> np.ndarray:
        """Return the tokens of all texts in one array, with the end token after each text."""


class ByteTokenizer:
    """Tokenizer whose tokens are the bytes of the UTF-8 text, and one more that ends a document."""

    size = 257
    end = 256
    token_bytes = np.array([1] * 256 + [0], dtype=np.int64)

    def encode_documents(self, texts: "pa.StringArray") -> np.ndarray:
        """Return the tokens of all texts, with the end token after each text, uint16."""
        import pyarrow as pa
        import pyarrow.compute as pc

        lengths = pc.binary_length(texts).to_numpy(zero_copy_only=False)
        if not len(lengths):
            return np.empty(0, np.uint16)
        # Texts are joined by NUL bytes, which are then replaced by end tokens.
        buffer = pc.binary_join(pa.ListArray.from_arrays([0, len(texts)], texts), "\0")
        buffer = memoryview(buffer.buffers()[2])[: int(lengths.sum()) + len(lengths) - 1]
        tokens = np.empty(len(buffer) + 1, np.uint16)
        tokens[:-1] = np.frombuffer(buffer, np.uint8)
        tokens[np.cumsum(lengths + 1) - 1] = self.end
        return tokens


class FileTokenizer:
    """Tokenizer from a byte-level tokenizer.json, like GPT-2's and Llama 3's.

    Raises:
        DataError: the file is missing; is not byte-level, so that the bytes of a token, and the
            bits per byte, are unknown; or has no token that ends a document.
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
        # "<|endoftext|>" within a text is plain text. As a special token it would end the document.
        self._tokenizer.encode_special_tokens = True
        self.size = self._tokenizer.get_vocab_size()
        special = {token["id"] for token in description.get("added_tokens", ())}
        ends = [self._tokenizer.token_to_id(name) for name in END_NAMES]
        self.end = next((end for end in ends if end is not None), -1)
        if self.end < 0:
            raise DataError(f"{path}: has none of {', '.join(END_NAMES)} to end a document with")
        # In the byte-level alphabet each character of a token represents one byte.
        tokens = [self._tokenizer.id_to_token(index) or "" for index in range(self.size)]
        sizes = [0 if index in special else len(token) for index, token in enumerate(tokens)]
        self.token_bytes = np.array(sizes, dtype=np.int64)

    def encode_documents(self, texts: "pa.StringArray") -> np.ndarray:
        """Return the tokens of all texts, with the end token after each text, uint32."""
        import pyarrow.compute as pc

        total = np.cumsum(pc.binary_length(texts).to_numpy(zero_copy_only=False))
        cuts = np.flatnonzero(np.diff(total // BATCH_BYTES)) + 1
        tokens = array("I")  # converts lists of numbers twice as fast as numpy
        for start, stop in pairwise([0, *cuts.tolist(), len(texts)]):
            group = texts.slice(start, stop - start).to_pylist()
            encodings = self._tokenizer.encode_batch_fast(group, add_special_tokens=False)
            for encoding in encodings:
                tokens.fromlist(encoding.ids)
                tokens.append(self.end)
        return np.frombuffer(tokens, np.uint32)


COLUMNS = {"prompt": Column("text"), "completion": Column("text")}
COUNTED_FIELD = "counted"
"""Field of a sample: uint8 (context_length,), 1 for each target that has a loss."""


class CompletionPacker:
    """Makes one sample of each record, or with ``together`` one of as many records as fit."""

    def __init__(self, tokenizer: Tokenizer, width: int, dtype: str, *, together: bool) -> None:
        self._tokenizer, self._width, self._dtype = tokenizer, width, dtype
        self._together = together
        self._waiting: list[tuple[np.ndarray, np.ndarray]] = []

    def add(self, records: "pa.RecordBatch") -> Samples:
        """Add records with ``prompt`` and ``completion``; return the samples that are complete."""
        prompts, completions = (
            self._tokenize_texts(records.column(name)) for name in ("prompt", "completion")
        )
        samples = []
        for pair in zip(prompts, completions, strict=True):
            example = self._build_example(*pair)
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
        """Return the sample of the waiting examples, or none if there are none."""
        return self._make_samples(self._pop_waiting())

    def _build_example(
        self, prompt: np.ndarray, completion: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return an example's tokens and a mask of its targets with a loss.

        The example's last token has no target.
        """
        completion = np.append(completion, self._tokenizer.end)
        room = max(1, self._width - len(completion))
        prompt = prompt[-room:]
        tokens = np.concatenate((prompt, completion))[: self._width]
        target_mask = np.zeros(len(tokens), np.uint8)
        target_mask[max(0, len(prompt) - 1) : len(tokens) - 1] = 1
        return tokens, target_mask

    def _pop_waiting(self) -> list[list[tuple[np.ndarray, np.ndarray]]]:
        """Return the sample of the waiting examples, if there are any, and clear them."""
        waiting, self._waiting = self._waiting, []
        return [waiting] if waiting else []

    def _make_samples(self, samples: list[list[tuple[np.ndarray, np.ndarray]]]) -> Samples:
        """Return samples as arrays; each one is given as a list of examples (tokens, mask)."""
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

    def _tokenize_texts(self, texts: "pa.StringArray") -> list[np.ndarray]:
        """Return the tokens of each text, without the end tokens."""
        tokens = self._tokenizer.encode_documents(texts)
        ends = np.flatnonzero(tokens == self._tokenizer.end)
        return [part[:-1] for part in np.split(tokens, ends + 1)[:-1]]


def iter_completions(
    dataset: Dataset,
    end: int,
    size: int,
    measure: Callable[[np.ndarray], np.ndarray] | None = None,
    share: Share | None = None,
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yield the examples that have targets with a loss, grouped by unit.

    Each item is (unit, hash of each example, int64 (d,), sums over the targets with a loss,
    (d, columns)). ``measure`` is as in ``scores.iter_documents``.
    """
    for passage in dataset.stream(size, share):
        tokens, target_masks = (passage.samples[name] for name in ("tokens", COUNTED_FIELD))
        columns = np.empty((*target_masks.shape, 0)) if measure is None else measure(tokens)
        columns = np.where(target_masks[..., None] > 0, columns, 0.0)
        cuts = np.flatnonzero(np.diff(passage.sources)) + 1
        for indices in np.split(np.arange(len(tokens)), cuts):
            example_bounds = [
                (n, *bounds)
                for n in indices
                for bounds in _split_examples(tokens[n], target_masks[n], end)
            ]
            if not example_bounds:
                continue
            rows = [(tokens[n, a:b], target_masks[n, a : b - 1]) for n, a, b in example_bounds]
            names = b"".join(_hash_example(*row, end, tokens.shape[1]) for row in rows)
            sums = np.stack([columns[n, a : b - 1].sum(0) for n, a, b in example_bounds])
            yield int(passage.sources[indices[0]]), np.frombuffer(names, "<i8"), sums


def _split_examples(
    tokens: np.ndarray, target_mask: np.ndarray, end: int
) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) of each example in a sample that has a target with a loss."""
    stops = [*(np.flatnonzero(tokens == end) + 1).tolist(), len(tokens)]
    for start, stop in pairwise([0, *stops]):
        if target_mask[start : stop - 1].any():
            yield start, stop


def _hash_example(tokens: np.ndarray, target_mask: np.ndarray, end: int, width: int) -> bytes:
    """Return the hash of a sample that would contain only this example."""
    row, mask = np.full(width, end, "<u4"), np.zeros(width - 1, np.uint8)
    row[: len(tokens)], mask[: len(target_mask)] = tokens, target_mask
    return hashlib.blake2b(row.tobytes() + mask.tobytes(), digest_size=8).digest()
