"""Find test examples that are nearly equal to an example of the train split.

Sketches (MinHash) that are equal in one of BANDS bands are compared as a whole: of examples that
have ALIKE of their shingles in common, this finds 99.98 % (Leskovec, Rajaraman & Ullman, Mining of
Massive Datasets, section 3.4). ALIKE is that of Lee et al., Deduplicating Training Data Makes
Language Models Better, ACL 2022. Memory holds the sketches of MOST test examples, 40 MB, and a
piece of the train split.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from training.data.bit_mixing import chained

ALIKE = 0.8
BANDS = 16
MOST = 100_000
"""Most test examples that are looked for: the first ones."""
PIECE = 4096
"""Train examples compared at once."""


def near_duplicates(train: Iterable[np.ndarray], test: Iterable[np.ndarray]) -> dict[str, int]:
    """Count test ``examples`` that are nearly equal to one in train, and how many were looked for.

    ``train``, ``test``: sketches, uint32 (examples, places), in pieces.
    """
    ours = _first(test)
    found = np.zeros(len(ours), bool)
    bands = _bands(ours)
    order = np.argsort(bands, axis=0, kind="stable")
    keys = np.take_along_axis(bands, order, axis=0)
    for theirs in _pieces(train):
        for band, names in enumerate(_bands(theirs).T):
            left = np.searchsorted(keys[:, band], names, "left")
            counts = np.searchsorted(keys[:, band], names, "right") - left
            other = np.repeat(np.arange(len(names)), counts)
            begins = np.cumsum(counts) - counts
            mine = order[np.arange(len(other)) + np.repeat(left - begins, counts), band]
            new = ~found[mine]
            mine, other = mine[new], other[new]
            alike = (ours[mine] == theirs[other]).mean(axis=1) >= ALIKE
            found[mine[alike]] = True
    return {"examples": int(found.sum()), "checked_examples": len(ours)}


def _first(sketches: Iterable[np.ndarray]) -> np.ndarray:
    taken, rows = [], 0
    for piece in sketches:
        taken.append(piece[: MOST - rows])
        rows += len(taken[-1])
        if rows == MOST:
            break
    return np.concatenate(taken) if taken else np.empty((0, BANDS), np.uint32)


def _pieces(sketches: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    for found in sketches:
        for start in range(0, len(found), PIECE):
            yield found[start : start + PIECE]


def _bands(sketches: np.ndarray) -> np.ndarray:
    """Return uint64 (examples, BANDS): one number for the places of each band."""
    places = sketches.reshape(len(sketches), BANDS, sketches.shape[1] // BANDS).astype(np.uint64)
    out = np.zeros(places.shape[:2], np.uint64)
    for place in range(places.shape[2]):
        out = chained(out, places[:, :, place])
    return out
