"""Compute scores per document and metrics from nats per token, for model and baselines alike.

A document that is cut over several samples or shards is one example. A unit's tokens are one stream
in which every document ends with the end token. So documents are joined while the stream is read,
and only the sums of the current document are in memory.
"""

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from training.data.dataset import Dataset, Passage, Share
from training.scores import Block, Metrics, compute_ratios
from training.workloads.language_model.completions import COUNTED_FIELD, Tokenizer, iter_completions
from trainyard.common.errors import DataError

Predictions = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Function from samples (n, width) to (−ln p of every target, whether the target was the most
likely token), both (n, width - 1)."""


def find_padding(samples: Any, end: int) -> Any:
    """Return which targets (samples[:, 1:]) are padding: an end token after an end token.

    It works on arrays and tensors of shape (n, width); the result has shape (n, width - 1).
    """
    return (samples[:, :-1] == end) & (samples[:, 1:] == end)


def score_documents(
    test: Dataset,
    tokenizer: Tokenizer,
    predict: Predictions,
    size: int,
    slices: Sequence[str] = (),
    share: Share | None = None,
) -> Iterator[Block]:
    """Yield blocks of documents (``training.scores``), reading ``size`` samples at a time.

    bits_per_byte has the sums of bits and bytes of text; loss those of nats and tokens;
    next_token_accuracy those of hits and tokens. A document is its own group. Not scored are the
    first token of a unit, which has no prediction, padding, and prompts. The slice ``source`` is
    the input of a mixture, or the raw objects' first folder if ``shard.by_folder`` is set.
    """

    def measure_samples(samples: np.ndarray) -> np.ndarray:
        """Return nats, bytes, hits and 1 for each target, (n, width - 1, 4); 0 for padding."""
        nats, hits = predict(samples)
        target_mask = ~find_padding(samples, tokenizer.end)
        columns = (nats, tokenizer.token_bytes[samples[:, 1:]], hits, target_mask)
        return np.where(target_mask[..., None], np.stack(columns, axis=-1), 0.0)

    for source, hashes, sums in iter_examples(test, tokenizer.end, size, measure_samples, share):
        nats, size_, hits, tokens = sums.T
        yield {
            "example": hashes,
            "group": hashes,
            **{f"slice.{name}": test.get_folders(np.full(len(hashes), source)) for name in slices},
            "bits_per_byte.sum": nats / math.log(2),
            "bits_per_byte.weight": size_,
            "loss.sum": nats,
            "loss.weight": tokens,
            "next_token_accuracy.sum": hits,
            "next_token_accuracy.weight": tokens,
        }


def compute_metrics(blocks: Iterable[Block]) -> Metrics:
    """Return each metric's ``value`` and ``standard_error``, over groups (documents).

    bits per byte = Σ nats / ln 2 / Σ bytes; perplexity = exp(Σ nats / Σ tokens), with its standard
    error by the delta method.

    Raises:
        DataError: no token represents text.
    """
    results = compute_ratios(blocks)
    has_loss = bool(results) and math.isfinite(results["loss"]["value"])
    if not results or (math.isnan(results["bits_per_byte"]["value"]) and has_loss):
        raise DataError("the test split holds no text: every token in it stands for 0 bytes")
    loss, error = results["loss"]["value"], results["loss"]["standard_error"]
    perplexity = math.exp(loss) if not loss >= 709 else math.inf  # exp(710) overflows a float
    return results | {"perplexity": {"value": perplexity, "standard_error": perplexity * error}}


def iter_examples(
    dataset: Dataset,
    end: int,
    size: int,
    measure: Callable[[np.ndarray], np.ndarray] | None = None,
    share: Share | None = None,
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yield the dataset's examples, as ``iter_documents`` or, for completions,
    ``iter_completions`` does.
    """
    if COUNTED_FIELD in dataset.fields:
        return iter_completions(dataset, end, size, measure, share)
    return iter_documents(dataset, end, size, measure, share)


def iter_documents(
    dataset: Dataset,
    end: int,
    size: int,
    measure: Callable[[np.ndarray], np.ndarray] | None = None,
    share: Share | None = None,
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yield (unit, hash of each non-empty document's tokens int64 (d,), sums (d, columns)).

    ``measure`` is a function from samples (n, width) to values to be summed over a document's
    targets, (n, width - 1, columns).

    For a share of the dataset, yield the documents that begin in it. Batches after the share are
    read until the last of these documents ends. They are the same whole batches that the next share
    reads, so that the values are the same.
    """
    cutter: _DocumentCutter | None = None
    for passage in dataset.stream(size, share, past_share=True):
        tokens = passage.samples["tokens"]
        cutter = cutter or _DocumentCutter.from_middle(end, passage.before, tokens[0, 0])
        if passage.is_past_share and not (
            cutter.has_open_document and passage.sources[0] == cutter.source
        ):
            return
        columns = np.empty((*tokens[:, 1:].shape, 0)) if measure is None else measure(tokens)
        for source, start, stop in iter_runs(passage):
            if source != cutter.source:
                if passage.is_past_share:
                    return
                cutter = _DocumentCutter(end, source)
            hashes, sums = cutter.cut_samples(tokens[start:stop], columns[start:stop])
            if passage.is_past_share and len(hashes):
                yield source, hashes[:1], sums[:1]
                return
            if len(hashes):
                yield source, hashes, sums


class _DocumentCutter:
    """Cuts the samples of one unit, which must be added in order, into documents."""

    def __init__(self, end: int, source: int = -1) -> None:
        self.source, self._end = source, end
        self._has_begun = self._is_foreign = False
        self._digest, self._length, self._sums = hashlib.blake2b(digest_size=8), 0, 0.0

    @classmethod
    def from_middle(cls, end: int, source: int, before: int) -> "_DocumentCutter":
        """Return a cutter that begins after the unit's token ``before``.

        If a document has already begun there, it belongs to another share and is left out.
        """
        cutter = cls(end, source)
        cutter._has_begun, cutter._is_foreign = True, before != end
        return cutter

    @property
    def has_open_document(self) -> bool:
        """Return whether a document of this share has begun and not ended."""
        return self._length > 0 and not self._is_foreign

    def cut_samples(
        self, samples: np.ndarray, columns: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Add the unit's next samples; return the hashes of the documents that end in them, and the
        sums of their ``columns``.
        """
        tokens = samples[:, 1:].ravel()
        values = columns.reshape(len(tokens), columns.shape[-1])
        if not self._has_begun:  # later samples begin with the last token of the previous one
            tokens = np.concatenate((samples[0, :1], tokens))
            values = np.concatenate((np.zeros((1, values.shape[1])), values))
            self._has_begun = True
        tokens = np.ascontiguousarray(tokens, "<u4")
        stops = np.flatnonzero(tokens == self._end)
        cuts = [0, *(stops + 1).tolist()]
        # One more row, so that a sum that begins after the last token does not include another.
        padded_values = np.concatenate((values, np.zeros((1, values.shape[1]))))
        sums = np.add.reduceat(padded_values, cuts, axis=0)
        sums[0] += self._sums
        self._sums = sums[-1]
        names, nonempty = [], []
        for start, after in pairwise(cuts):
            self._hash_tokens(tokens[start : after - 1])
            nonempty.append(self._length > 0)
            names.append(self._digest.digest())
            self._digest, self._length = hashlib.blake2b(digest_size=8), 0
        if nonempty and self._is_foreign:
            nonempty[0] = self._is_foreign = False
        self._hash_tokens(tokens[cuts[-1] :])
        return np.frombuffer(b"".join(names), "<i8")[nonempty], sums[:-1][nonempty]

    def _hash_tokens(self, tokens: np.ndarray) -> None:
        """Add tokens to the hash and the length of the current document."""
        self._digest.update(tokens.data)
        self._length += len(tokens)


def iter_runs(passage: Passage) -> Iterator[tuple[int, int, int]]:
    """Yield (unit, start, stop) of each run of consecutive samples from the same unit."""
    sources = passage.sources
    cuts = [0, *(np.flatnonzero(np.diff(sources)) + 1).tolist(), len(sources)]
    for start, stop in pairwise(cuts):
        yield int(sources[start]), start, stop
