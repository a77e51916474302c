"""MinHash sketches of documents: estimates of their overlap without reading them again.

The share of equal places in two sketches estimates the share of common shingles, runs of WIDTH
tokens, among all that either has (Broder 1997), with a standard error of at most 1 / (2 √PLACES).
"""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from training.data.bit_mixing import chained
from training.data.dataset import Dataset
from training.workloads.language_model.completions import COUNTED
from training.workloads.language_model.scores import runs

WIDTH = 8
"""Tokens per shingle."""
PLACES = 64
SEED = 20261122


def sketches(dataset: Dataset, end: int, size: int) -> Iterator[np.ndarray]:
    """Yield sketches, uint32 (documents, PLACES), ``size`` samples at a time.

    Documents of fewer tokens than WIDTH, which have no shingle, are left out. Memory holds only the
    document that has not ended yet.
    """
    if COUNTED in dataset.fields:
        yield from _of_samples(dataset, end, size)
        return
    source, begun = -1, np.empty(0, np.uint64)
    for passage in dataset.stream(size):
        for name, start, stop in runs(passage):
            samples = passage.samples["tokens"][start:stop]
            first = samples[0, :1] if name != source else samples[0, :0]
            if name != source:  # later samples begin with the last token of the one before
                source, begun = name, begun[:0]
            tokens = np.concatenate([begun, first, samples[:, 1:].ravel()]).astype(np.uint64)
            cuts = np.flatnonzero(tokens == end) + 1
            whole = cuts[-1] if len(cuts) else 0
            begun = tokens[whole:]
            if len(found := _sketched(tokens[:whole], cuts)):
                yield found


def _of_samples(dataset: Dataset, end: int, size: int) -> Iterator[np.ndarray]:
    """Yield sketches of prompts with their completions; each sample holds whole ones."""
    for passage in dataset.stream(size):
        samples = passage.samples["tokens"].astype(np.uint64)
        tokens = np.pad(samples, ((0, 0), (0, 1)), constant_values=end).ravel()
        if len(found := _sketched(tokens, np.flatnonzero(tokens == end) + 1)):
            yield found


def _sketched(tokens: np.ndarray, cuts: np.ndarray) -> np.ndarray:
    """Return sketches of documents; ``cuts``: the position behind each document's end token."""
    windows = len(tokens) - WIDTH
    if windows < 1:
        return np.empty((0, PLACES), np.uint32)
    hashes = np.zeros(windows, np.uint64)
    for place in range(WIDTH):
        hashes = chained(hashes, tokens[place : place + windows])
    counts = [max(0, after - 1 - first - WIDTH + 1) for first, after in pairwise([0, *cuts])]
    firsts = np.array([0, *cuts[:-1]])
    kept = np.array(counts) > 0
    if not kept.any():
        return np.empty((0, PLACES), np.uint32)
    lengths = np.array(counts)[kept]
    starts = np.cumsum(lengths) - lengths
    inside = np.arange(lengths.sum()) + np.repeat(firsts[kept] - starts, lengths)
    hashes = hashes[inside]
    out = np.empty((len(lengths), PLACES), np.uint32)
    for place, (factor, more) in enumerate(_permutations()):
        values = ((hashes * factor + more) >> np.uint64(32)).astype(np.uint32)
        out[:, place] = np.minimum.reduceat(values, starts)
    return out


def _permutations() -> np.ndarray:
    """Return uint64 (PLACES, 2): an odd factor and a summand each."""
    drawn = np.random.default_rng(SEED).integers(0, 2**64, size=(PLACES, 2), dtype=np.uint64)
    drawn[:, 0] |= np.uint64(1)
    return drawn
