"""The order of samples from several inputs, each with a share: a pure function of the position.

A repeating table gives the input of each position: for weights 7, 2 and 1 it has ten entries. Each
input continues in its own order, with its own count and epochs, so a small input is repeated while
no sample of a large one is used twice. The sample at any position is computed directly, also after
a change of the weights.
"""

import functools
import hashlib
import heapq
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from training.data.merged_manifests import MergedManifests
from training.data.sample_order import Order
from trainyard.common.errors import DataError


@dataclass(frozen=True, slots=True)
class Input:
    """The samples of a dataset that come from one input."""

    name: str
    fingerprint: str
    """SHA-256 over the hashes of the input's shards."""
    shards: np.ndarray
    """Rows of the input's shards among all shards, ascending, int64."""
    sizes: np.ndarray
    """Number of samples in each shard, int64."""
    firsts: np.ndarray
    """Global index of the first sample of each shard, int64."""

    @property
    def samples(self) -> int:
        return int(self.sizes.sum())

    def list_first_indices(self, count: int) -> np.ndarray:
        """Return the global indices of the input's first samples, at most ``count``, int64."""
        ranges = zip(self.firsts.tolist(), self.sizes.tolist(), strict=True)
        every = (index for first, size in ranges for index in range(first, first + size))
        return np.fromiter(itertools.islice(every, count), np.int64)


def collect_inputs(manifests: MergedManifests) -> dict[str, Input]:
    """Return the inputs that the shards come from, by name. The name of a unit (records packed
    together) begins with its input's name.
    """
    names = [name.rpartition("/")[0] for name in manifests.units["name"]]
    folders = np.array(names, object)[manifests.source]
    firsts = np.cumsum(manifests.samples) - manifests.samples
    by_name = {}
    for name in sorted(set(folders)):
        shards = np.flatnonzero(folders == name)
        digest = hashlib.sha256(np.ascontiguousarray(manifests.sha256[shards]).data)
        by_name[name] = Input(
            name, digest.hexdigest(), shards, manifests.samples[shards], firsts[shards]
        )
    return by_name


def select_inputs(
    available: Mapping[str, Input], names: Iterable[str], location: object
) -> list[Input]:
    """Return the inputs with these names.

    Raises:
        DataError: the dataset has no sample of an input with that name.
    """
    missing = [name for name in names if name not in available or not available[name].samples]
    if missing:
        raise DataError(
            f"{location}: has no sample of input {missing[0]!r}, only of "
            f"{', '.join(available) or 'none'}; "
            "it is too small for a sample of this split, or other inputs hold all of its records: "
            "leave it out of data.inputs, or give it more data"
        )
    return [available[name] for name in names]


@dataclass(frozen=True, slots=True)
class Phase:
    """Consecutive positions, from ``start`` on, with the same weights."""

    start: int
    shares: np.ndarray
    """Share of each input, as whole numbers, int64."""
    source: np.ndarray
    """Input at each entry of the table, int64 (sum of the shares,)."""
    before: np.ndarray
    """Number of earlier entries in the table with the same input, int64."""
    counts: np.ndarray
    """Number of samples of each input before ``start``, int64."""

    def count_samples(self, position: int) -> np.ndarray:
        """Return the number of samples of each input before this position, int64.

        ``position`` is in this phase or is its end.
        """
        rounds, remainder = divmod(position - self.start, len(self.source))
        more = np.bincount(self.source[:remainder], minlength=len(self.shares))
        return self.counts + rounds * self.shares + more


class MixtureOrder(Order):
    """Order over several inputs with shares that may change at given positions (see the module's
    docstring).

    Args:
        inputs: inputs, numbered in this order.
        orders: order of each input's own samples, counted from 0.
        phases: (position, share of each input); the first begins at 0.
    """

    def __init__(
        self,
        inputs: Sequence[Input],
        orders: Sequence[Order],
        phases: Sequence[tuple[int, Sequence[int]]],
    ) -> None:
        self.inputs, self._orders = inputs, orders
        self._phases: list[Phase] = []
        for start, shares in phases:
            # An input continues where it is when the weights change, so count its samples so far.
            counts = self.count_samples(start) if start else np.zeros(len(inputs), np.int64)
            self._phases.append(
                Phase(start, np.array(shares, np.int64), *build_input_schedule(shares), counts)
            )
        self._starts = np.array([phase.start for phase in self._phases], np.int64)
        self._ends = [np.cumsum(source.sizes) for source in inputs]
        ends = zip(inputs, self._ends, strict=True)
        self._shifts = [source.firsts - (end - source.sizes) for source, end in ends]

    def indices_at(self, positions: np.ndarray | range) -> np.ndarray:
        positions = np.asarray(positions, np.int64)
        source, own_positions = self._locate_positions(positions)
        out = np.empty(len(positions), np.int64)
        for number in np.flatnonzero(np.bincount(source, minlength=len(self.inputs))).tolist():
            matches = np.flatnonzero(source == number)
            own_indices = self._orders[number].indices_at(own_positions[matches])
            slots = np.searchsorted(self._ends[number], own_indices, side="right")
            out[matches] = own_indices + self._shifts[number][slots]
        return out

    def find_next_shards(self, position: int) -> np.ndarray | None:
        """Return the shards that are read next, of all inputs, or None for all shards."""
        counts = self.count_samples(position).tolist()
        shards_by_input = [
            order.find_next_shards(n) for order, n in zip(self._orders, counts, strict=True)
        ]
        if all(shards is None for shards in shards_by_input):
            return None
        every = zip(self.inputs, shards_by_input, strict=True)
        return np.concatenate([o.shards if s is None else o.shards[s] for o, s in every])

    def count_samples(self, position: int) -> np.ndarray:
        """Return the number of samples of each input before this position, int64."""
        # At the first position of a phase the previous phase gives the same counts.
        [phase] = [p for p in self._phases if p.start < position][-1:] or self._phases[:1]
        return phase.count_samples(position)

    def find_input_numbers(self, positions: np.ndarray | range) -> np.ndarray:
        """Return the number of the input at each of these ascending positions, int64."""
        return self._locate_positions(np.asarray(positions, np.int64))[0]

    def _locate_positions(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (number of the input, position in that input's order) of each ascending
        position.
        """
        source = np.empty(len(positions), np.int64)
        own_positions = np.empty(len(positions), np.int64)
        cuts = [*np.searchsorted(positions, self._starts).tolist(), len(positions)]
        for phase, start, stop in zip(self._phases, cuts, cuts[1:], strict=False):
            if start == stop:
                continue
            span = slice(start, stop)
            rounds, slots = np.divmod(positions[span] - phase.start, len(phase.source))
            source[span] = numbers = phase.source[slots]
            rounds *= phase.shares[numbers]
            rounds += phase.counts[numbers]
            rounds += phase.before[slots]
            own_positions[span] = rounds
        return source, own_positions


def build_input_schedule(shares: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Return, of each entry of the repeated table: the input's number, and how many earlier entries
    have it; int64.

    Each number occurs as often as its share says. Among the first n entries of the repeated table
    its count differs by less than one from n × share / sum: R. Tijdeman 1980, "The chairman
    assignment problem", shows that such an order exists. So each occurrence must fall between an
    earliest and a latest entry, and of the candidates the one with the earliest deadline is taken,
    which finds an order if one exists (earliest deadline first, for jobs of one unit: Horn 1974).
    """
    numbers = np.array(_schedule_inputs(tuple(shares)), np.int64)
    before = np.empty(len(numbers), np.int64)
    for number in range(len(shares)):
        indices = np.flatnonzero(numbers == number)
        before[indices] = np.arange(len(indices))
    return numbers, before


@functools.lru_cache(16)
def _schedule_inputs(shares: tuple[int, ...]) -> tuple[int, ...]:
    """Return the number of the input that each entry comes from, by earliest deadline first."""
    total = sum(shares)
    later = [(0, number) for number, share in enumerate(shares) if share]
    ready: list[tuple[int, int]] = []
    counts = [0] * len(shares)
    schedule = []
    for position in range(total):
        while later and later[0][0] <= position:
            _, number = heapq.heappop(later)
            deadline = -(-(counts[number] + 1) * total // shares[number])
            heapq.heappush(ready, (deadline, number))
        _, number = heapq.heappop(ready)
        schedule.append(number)
        counts[number] += 1
        heapq.heappush(later, (counts[number] * total // shares[number], number))
    return tuple(schedule)
