"""Which records are the first of their kind, in bounded memory."""

import numpy as np
import pandas as pd

MEMORY = 2**23  # distinct records that are remembered: 64 MiB
RUN = 2**20  # records in a full run


class Recent:
    """Remembers the hashes of the last distinct records of one raw object.

    A record is dropped when an equal one stands before it in the same raw object, with fewer than
    ``memory`` - ``memory`` / 8 distinct ones between them. What is remembered are 64-bit hashes in
    sorted runs, merged as they grow; the oldest run is forgotten first. A record is dropped by
    mistake when its hash equals one of at most 2^23 others: with a probability of 2^-41, so of
    10^9 distinct records in one object 0.0005 on average.
    """

    def __init__(self, memory: int = MEMORY) -> None:
        self._memory, self._full = memory, max(1, memory * RUN // MEMORY)
        self._runs: list[np.ndarray] = []  # oldest first

    def first(self, hashes: np.ndarray) -> np.ndarray:
        """For each record (uint64 hashes, in their order) whether it is the first one, bool."""
        new = ~pd.Series(hashes).duplicated().to_numpy()
        ordered = np.sort(hashes[new])
        known = self._known(ordered)
        if known.any():
            new &= ~np.isin(hashes, ordered[known])
            ordered = ordered[~known]
        if len(ordered) <= self._full:
            self._remember(ordered)
        else:  # in pieces, by age
            fresh = hashes[new]
            for start in range(0, len(fresh), self._full):
                self._remember(np.sort(fresh[start : start + self._full]))
        return new

    def _known(self, ordered: np.ndarray) -> np.ndarray:
        known = np.zeros(len(ordered), bool)
        for run in self._runs:
            places = np.searchsorted(run, ordered)
            known |= run[np.minimum(places, len(run) - 1)] == ordered
        return known

    def _remember(self, run: np.ndarray) -> None:
        """Merge runs of like size, as a binary counter carries; so there are few."""
        while self._runs and len(self._runs[-1]) <= min(len(run), self._full - len(run)):
            run = np.sort(np.concatenate((self._runs.pop(), run)), kind="stable")
        if len(run):
            self._runs.append(run)
        while sum(map(len, self._runs)) > self._memory:
            del self._runs[0]
