"""The scores of single examples, added up over groups: what the gate keeps of them.

Memory does not grow with the test split, nor with the number of groups: groups are hashed into
``BINS``, which are folded into ``BLOCKS`` when there are more than that. A union of whole groups is
independent of another union, as its groups are; so resampling blocks instead of groups is right,
and costs only degrees of freedom, of which 1,024 are as good as any number (the t quantile at 0.95:
1.6463 instead of 1.6449). Two groups in one bin only make the limits a little more cautious.

Groups that have an order are not hashed but numbered by it, and neighbours are joined.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from conditions.gate_check import Direction
from trainyard.common.errors import GateError

# The examples are cut into ``PARTS`` of equal size by their predicted probability; the error is
# the mean distance between a part's mean probability and its share of positives, weighted by size
# (Naeini, Cooper & Hauskrecht, AAAI 2015; of equal sizes, which estimates it with less bias:
# Roelofs et al., AISTATS 2022). Noise makes the estimate too large on average, and the
# bootstrap's upper limit more so: a model passes when it is shown to be calibrated, and a small
# test split shows less. For the same reason no quantile of the bootstrap is a lower limit: of
# true probabilities each would lie above the truth, which is 0.
#
# Not Spiegelhalter's test nor a slope: with enough examples any model fails the one, and the
# other is not a distance in the probability's own unit, which a recipe could bound.


PARTS = 15
FINE = 1024
"""Parts of the logit's range that are counted, before they are joined to ``PARTS`` equal ones."""
REACH = 16.0
"""Larger logits count as this: 1.1e-7, finer than a float32 distinguishes from 1."""
CALIBRATION_BLOCKS = 256
"""Number of blocks of groups, which are resampled; 6 MB in all."""
RESAMPLES = 999
SEED = 20261121

Floats = NDArray[np.float64]


def _nothing() -> Floats:
    return np.zeros((CALIBRATION_BLOCKS, FINE))


@dataclass(slots=True)
class Reliability:
    """Counts over (block of groups, fine part of the probability)."""

    examples: Floats = field(default_factory=_nothing)
    predicted: Floats = field(default_factory=_nothing)
    """Σ probability."""
    positive: Floats = field(default_factory=_nothing)
    """Σ label."""

    def add(self, bins: NDArray[np.int64], probability: Floats, label: Floats) -> None:
        """Add a batch: (rows,) each; ``bins`` number the examples' groups.

        Raises:
            GateError: a probability is not between 0 and 1, or a label not 0 or 1.
        """
        if not ((probability >= 0) & (probability <= 1)).all():
            raise GateError("probability: a value is not between 0 and 1")
        if not ((label == 0) | (label == 1)).all():
            raise GateError("label: a value is neither 0 nor 1")
        cells = bins % CALIBRATION_BLOCKS * FINE + _fine(probability)
        for sums, weights in (
            (self.examples, None),
            (self.predicted, probability),
            (self.positive, label),
        ):
            sums[...] += np.bincount(cells, weights, sums.size).reshape(sums.shape)

    def error(self, confidence: float) -> tuple[float, float]:
        """Return the expected calibration error, and its one-sided upper limit."""
        part = _parts(self.examples.sum(axis=0))
        sums = np.stack([self.examples, self.predicted, self.positive])
        sums = np.add.reduceat(sums, part, axis=2)
        sums = sums[:, sums[0].sum(axis=1) > 0]  # blocks that hold examples
        generator = np.random.default_rng(SEED)
        drawn = generator.integers(0, sums.shape[1], size=(RESAMPLES, sums.shape[1]))
        resampled = np.array([_error(sums[:, rows].sum(axis=1)) for rows in drawn])
        value = _error(sums.sum(axis=1))
        return value, max(float(np.quantile(resampled, confidence)), value)


def _fine(probability: Floats) -> NDArray[np.int64]:
    with np.errstate(divide="ignore"):
        logit = np.log(probability) - np.log1p(-probability)
    place = (np.clip(logit, -REACH, REACH) + REACH) * (FINE / (2 * REACH))
    return np.minimum(place.astype(np.int64), FINE - 1)


def _parts(examples: Floats) -> NDArray[np.int64]:
    """Return the start of each of at most ``PARTS`` parts, with about as many examples each."""
    below = np.cumsum(examples) - examples
    part = (below * PARTS / examples.sum()).astype(np.int64)
    return np.flatnonzero(np.diff(part, prepend=-1))


def _error(sums: Floats) -> float:
    """Return the error from (3, parts): examples, Σ probability, Σ label."""
    return float(np.abs(sums[1] - sums[2]).sum() / sums[0].sum())


BINS = 2**16
BLOCKS = 2**10
SLICE_BLOCKS = 2**9
"""Number of blocks per slice that groups are folded into; small, as there may be many slices."""
MAX_SLICES = 1000
"""Values of all slice columns together, at most: 8 KB each per metric."""
BASELINE = "baseline-"
"""Prefix of the name of a baseline's table of scores."""
NO_VALUE = "(none)"
"""Name of the slice of examples without a value."""

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The scores to read."""

    metrics: Mapping[str, Direction]
    """Metrics that are compared with the champion's."""
    champion: str | None
    """ARN of the champion; None without one: then only the model's scores are read."""
    model: str = "challenger"
    """Name of the table of the judged model: ``challenger``, or ``int8``, its int8 version."""
    full: bool = False
    """True if the full model's scores are read in place of a champion's."""
    baseline: str | None = None
    """Name of the baseline whose scores are read in place of a champion's."""
    slices: bool = False
    calibration: bool = False

    @property
    def other(self) -> str | None:
        """Name of the table of scores that is read beside the model's."""
        if self.full:
            return "challenger"
        if self.baseline is not None:
            return f"{BASELINE}{self.baseline}"
        return "champion" if self.champion is not None else None


@dataclass(slots=True)
class Sums:
    """A metric, added up over bins of examples: group bins, or (slice, block) pairs."""

    difference: Floats
    """The challenger's improvement of the sum."""
    weight: Floats

    def add(self, bins: Ints, difference: Floats, weight: Floats) -> None:
        """Add a batch: (rows,) each."""
        self.difference += np.bincount(bins, difference, len(self.difference))
        self.weight += np.bincount(bins, weight, len(self.weight))

    def grow(self, bins: int) -> None:
        """Grow to at least ``bins`` bins."""
        more = np.zeros(max(0, bins - len(self.weight)))
        self.difference = np.concatenate([self.difference, more])
        self.weight = np.concatenate([self.weight, more])


def no_sums(bins: int) -> Sums:
    """Return sums of ``bins`` bins, all 0."""
    return Sums(np.zeros(bins), np.zeros(bins))


def in_order(groups: Iterable[Ints]) -> Ints:
    """Return the first group of each bin of ordered groups, ascending; at most ``BINS``."""
    starts = np.zeros(0, np.int64)
    for batch in groups:
        starts = np.union1d(starts, batch)
        while len(starts) > BINS:
            starts = starts[::2]  # and never the first: no group lies before it
    return starts


@dataclass(slots=True)
class GroupSums:
    """The gate's summary of two files of scores."""

    wanted: Wanted
    starts: Ints | None = None
    """First group of each bin, for ordered groups; see ``in_order``."""
    examples: int = 0
    per_bin: Ints = field(default_factory=lambda: np.zeros(BINS, np.int64))
    """Examples in each group bin."""
    met: Ints = field(default_factory=lambda: np.full(BINS, -1))
    """First row with a group of each bin; -1: none."""
    metrics: dict[str, Sums] = field(default_factory=dict)
    """Metric → sums over group bins."""
    totals: dict[str, tuple[float, float, float]] = field(default_factory=dict)
    """Metric → the challenger's sum, the champion's sum, the weight."""
    slices: dict[tuple[str, str], int] = field(default_factory=dict)
    """(column, value) → its number, in the order of appearance."""
    slice_examples: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    slice_metrics: dict[str, Sums] = field(default_factory=dict)
    """Metric → sums over slice number × SLICE_BLOCKS + block."""
    calibration: Reliability = field(default_factory=Reliability)
    description: dict[str, Any] = field(default_factory=dict)
    """Metadata of the challenger's file."""
    champion_description: dict[str, Any] = field(default_factory=dict)

    @property
    def groups(self) -> int:
        """Bins with an example: the number of groups, or a little less."""
        return int(np.count_nonzero(self.per_bin))

    def of_groups(self, metric: str) -> tuple[Floats, Floats]:
        """Return (difference, weight) of each group, or of each block where there are many groups.

        Ordered groups come in their order.
        """
        if self.starts is not None:
            count, sums = len(self.starts), self.metrics[metric]
            first = np.unique(np.arange(BLOCKS) * count // BLOCKS)
            difference = np.add.reduceat(sums.difference[:count], first)
            return difference, np.add.reduceat(sums.weight[:count], first)
        sums = self.metrics[metric]
        return self._folded(sums.difference), self._folded(sums.weight)

    def examples_of_groups(self) -> Ints | None:
        """Return (groups,) examples in each of ``of_groups``; None for ordered groups."""
        return None if self.starts is not None else self._folded(self.per_bin)

    def _folded(self, bins: NDArray) -> NDArray:
        folds = 1 if self.groups <= BLOCKS else BINS // BLOCKS
        return bins.reshape(folds, BINS // folds).sum(0)

    def as_met(self, metric: str) -> tuple[Floats, Floats]:
        """Return (difference, weight) of each group in the order of the rows, neighbours joined."""
        sums, bins = self.metrics[metric], np.argsort(self.met)[BINS - self.groups :]
        first = np.unique(np.arange(BLOCKS) * len(bins) // BLOCKS)
        difference = np.add.reduceat(sums.difference[bins], first)
        return difference, np.add.reduceat(sums.weight[bins], first)

    def of_slice(self, metric: str, column: str, value: str) -> tuple[Floats, Floats]:
        """Return (difference, weight) of each of the slice's own blocks."""
        first = self.slices[column, value] * SLICE_BLOCKS
        sums, blocks = self.slice_metrics[metric], slice(first, first + SLICE_BLOCKS)
        return sums.difference[blocks], sums.weight[blocks]

    def add(self, batch: "Batch") -> None:
        """Add a batch of examples."""
        bins, blocks = self._bins(batch.groups)
        new = np.flatnonzero(self.met[bins] < 0)[::-1]  # the first of several rows is written last
        self.met[bins[new]] = self.examples + new
        self.examples += len(bins)
        self.per_bin += np.bincount(bins, minlength=BINS)
        coded = [self._coded(name, column) for name, column in batch.slices.items()]
        for metric, (challenger, champion, weight) in batch.metrics.items():
            sign = -1.0 if self.wanted.metrics[metric] == "higher" else 1.0
            difference = sign * (champion - challenger)
            self.metrics.setdefault(metric, no_sums(BINS)).add(bins, difference, weight)
            sums = (float(challenger.sum()), float(champion.sum()), float(weight.sum()))
            before = self.totals.get(metric, (0.0, 0.0, 0.0))
            self.totals[metric] = (before[0] + sums[0], before[1] + sums[1], before[2] + sums[2])
            for numbers in coded:
                of_slices = self.slice_metrics.setdefault(metric, no_sums(0))
                of_slices.grow(len(self.slices) * SLICE_BLOCKS)
                of_slices.add(numbers * SLICE_BLOCKS + blocks, difference, weight)
        if batch.predictions is not None:
            self.calibration.add(bins, *batch.predictions)

    def _bins(self, groups: Ints) -> tuple[Ints, Ints]:
        """Return the bin of each row, and the block of its slice."""
        if self.starts is None:
            bins = hashed(groups)
            return bins, bins % SLICE_BLOCKS
        bins = np.searchsorted(self.starts, groups, side="right") - 1
        return bins, bins * SLICE_BLOCKS // max(len(self.starts), SLICE_BLOCKS)

    def _coded(self, name: str, column: pa.DictionaryArray) -> Ints:
        """Return the number of each row's slice."""
        values = [NO_VALUE if value is None else value for value in column.dictionary.to_pylist()]
        numbers = [self._number(name, value) for value in values]
        codes = column.indices
        if codes.null_count:
            numbers.append(self._number(name, NO_VALUE))
            codes = codes.fill_null(len(numbers) - 1)
        found = np.asarray(numbers, np.int64)[codes.to_numpy(zero_copy_only=False)]
        counts = np.bincount(found, minlength=len(self.slices))
        counts[: len(self.slice_examples)] += self.slice_examples
        self.slice_examples = counts
        return found

    def _number(self, name: str, value: str) -> int:
        number = self.slices.setdefault((name, value), len(self.slices))
        if number >= MAX_SLICES:
            raise GateError(
                f"the slices have more than {MAX_SLICES} values; slice.{name} is an id, not a slice"
            )
        return number


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch of examples, the two models' rows side by side."""

    groups: Ints
    metrics: Mapping[str, tuple[Floats, Floats, Floats]]
    """Metric → the challenger's sums, the champion's sums, the weights; (rows,) each."""
    slices: Mapping[str, pa.DictionaryArray] = field(default_factory=dict)
    predictions: tuple[NDArray, NDArray] | None = None
    """Probability and label of each row."""


def hashed(groups: Ints) -> Ints:
    """Return each group's bin: the top bits of its id × 2⁶⁴ ÷ the golden ratio (Knuth, 6.4)."""
    golden = np.uint64(0x9E3779B97F4A7C15)
    mixed = groups.view(np.uint64) * golden
    mixed ^= mixed >> np.uint64(32)
    mixed *= golden
    return (mixed >> np.uint64(48)).view(np.int64)
