"""Say which features are distributed otherwise than before, and how far.

A feature is compared in each way in which it can move, and the strongest way counts, by Bonferroni:

- a number by Kolmogorov and Smirnov's test of two samples, and by the shares beyond outer quantiles
  of both together, where a few records far outside show: Fisher's exact test at each (exact, as the
  quantiles do not depend on which sample a value is of; maximally selected: Halpern, Biometrics 38,
  1982);
- any values that repeat by Pearson's χ² of two samples;
- categories and whole numbers, which may be identifiers, by the share that one half of the other
  sample lacks: Fisher's exact test against that share of its other half, so that identifiers which
  always are new are as new as ever. Halves are by order, which is that of time where it is known:
  what one sender repeats then stands in one half.

The share that is missing has a test of its own (Fisher's). Holm's correction holds the probability
of any false alarm over all features. With many requests trifles are certain, so drift needs an
effect, too: the population stability index. A request is taken as independent of the others.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.stats import chi2_contingency, fisher_exact, hypergeom, ks_2samp

from conditions.slices import holm
from trainyard.quality.model_quality import Cells, numbers

VALUES, MISSING, QUALITY = "values", "missing", "quality"
PARTS = 5
"""Quantiles of either sample whose values bound the bins of a number's index."""
EXACT = 100
"""Most values, of both, whose test is exact: with many, rounding spoils SciPy's exact sum."""
LEAST = 5.0
"""Expected number of requests below which a value counts among the rarer ones (Cochran 1954)."""


@dataclass(frozen=True, slots=True)
class Change:
    """The difference of one feature between baseline and period, in one respect."""

    feature: str
    """Its name; with ``QUALITY`` that of a metric."""
    respect: str
    """``VALUES``, ``MISSING`` or ``QUALITY``."""
    chance: float
    """p-value; Holm's, once all are tested."""
    psi: float | None
    """None: it needs no index to be called drift."""
    movement: str
    """What moved, in words."""
    has_drifted: bool = False


def compare(
    before: Mapping[str, Cells],
    now: Mapping[str, Cells],
    quantities: Collection[str],
    *,
    error: float,
    least_psi: float,
    also: Sequence[Change] = (),
) -> list[Change]:
    """Return the changes of every column of both, by falling index.

    Args:
        before, now: name → cells, as in ``trainyard.quality.model_quality.Table``; the same names.
            Cells are in the order of time, or at random.
        quantities: names of those columns whose cells are numbers; the others are categories.
        error: probability that any is called drift where there is none.
        also: changes tested elsewhere, which count among these.
    """
    changes = [*also] + [
        change
        for name in before
        for change in _changes(name, before[name], now[name], name in quantities, least_psi)
    ]
    chances = holm(np.array([change.chance for change in changes]))
    results = [
        replace(
            c,
            chance=float(p),
            has_drifted=bool(p <= error and (c.psi is None or c.psi >= least_psi)),
        )
        for c, p in zip(changes, chances, strict=True)
    ]
    return sorted(results, key=lambda c: (not c.has_drifted, -np.inf if c.psi is None else -c.psi))


def _changes(
    name: str, before: Cells, now: Cells, quantity: bool, least_psi: float
) -> Iterator[Change]:
    sides = [_finite(cells) if quantity else [x for x in cells if x] for cells in (before, now)]
    sizes = len(before), len(now)
    if all(map(len, sides)):
        tests = [*_of_numbers(*map(np.array, sides))] if quantity else []
        tests.append(_of_frequent(*sides))
        if not quantity or all(float(value).is_integer() for side in sides for value in side):
            tests += _of_unknown(*sides)
        # With many requests trifles are certain: the surest way counts among those with an effect.
        large = [test for test in tests if test.psi >= least_psi]
        best = min(large, key=lambda test: test.chance) if large else tests[0]
        # Bonferroni: each way in which the feature can move is a test.
        yield Change(name, VALUES, min(1.0, len(tests) * best.chance), best.psi, best.movement)
    absent = [size - len(side) for side, size in zip(sides, sizes, strict=True)]
    if any(absent):
        chance = float(fisher_exact(_with_rest(absent, sizes)).pvalue)
        movement = _movement("missing", absent, sizes)
        yield Change(name, MISSING, chance, psi(*_with_rest(absent, sizes).T), movement)


class _Test(NamedTuple):
    chance: float
    psi: float
    movement: str
    """What moved, in words."""


def _with_rest(counts: Sequence[int], sizes: Sequence[int]) -> np.ndarray:
    """Return the table of a count of each side and of the rest, (2, 2); sides are the columns."""
    return np.array([counts, np.subtract(sizes, counts)])


def _movement(name: str, counts: Sequence[int], sizes: Sequence[int]) -> str:
    before, now = np.divide(counts, sizes)
    return f"{name} {before:.1%} → {now:.1%}"


def _finite(cells: Cells) -> list[float]:
    """Return the numbers to float32's precision: written by other programs, equal ones differ in
    their last digits, and a value that many records have would seem to move.
    """
    values = numbers(cells)
    most = np.finfo(np.float32).max
    return values[np.isfinite(values)].clip(-most, most).astype(np.float32).tolist()


def _of_numbers(before: np.ndarray, now: np.ndarray) -> list[_Test]:
    inner = np.arange(1, PARTS) / PARTS
    edges = np.unique([np.quantile(side, inner, method="lower") for side in (before, now)])
    counts = [np.bincount(np.searchsorted(edges, x), minlength=len(edges) + 1)
              for x in (before, now)]  # fmt: skip
    method = "exact" if len(before) + len(now) <= EXACT else "asymp"
    test = ks_2samp(before, now, method=method)
    medians = [f"{np.median(side):.4g}" for side in (before, now)]
    movement = "median {} → {}".format(*medians)
    if medians[0] == medians[1]:
        low = [(x <= test.statistic_location).sum() for x in (before, now)]
        sizes = len(before), len(now)
        movement = _movement(f"up to {test.statistic_location:.4g}:", low, sizes)
    return [_Test(float(test.pvalue), psi(*counts), movement), *_of_tails(before, now)]


def _of_tails(before: np.ndarray, now: np.ndarray) -> Iterator[_Test]:
    """Yield the most certain difference of the shares from the outer quarter, eighth, … of all
    values on, on both sides; none for fewer than four values.
    """
    sizes = len(before), len(now)
    ranks = sum(sizes) >> np.arange(2, sum(sizes).bit_length())
    tails = []
    for side, name in ((1, "from {:.4g} on:"), (-1, "up to {:.4g}:")):
        cuts = np.sort(side * np.concatenate([before, now]))[sum(sizes) - ranks]
        counts = [(side * x[:, None] >= cuts).sum(axis=0) for x in (before, now)]
        # Exact, as the cuts do not depend on which sample a value is of.
        chances = hypergeom(sum(sizes), sum(counts), len(now))  # of the period's
        chances = 2 * np.minimum(chances.cdf(counts[1]), chances.sf(counts[1] - 1))
        names = [name.format(side * cut) for cut in cuts]
        tails += zip(chances.tolist(), names, *counts, strict=True)
    if tails:
        chance, name, *tail_counts = min(tails)
        index = psi(*_with_rest(tail_counts, sizes).T)
        yield _Test(min(1.0, len(tails) * chance), index, _movement(name, tail_counts, sizes))


def _of_frequent(before: Sequence, now: Sequence) -> _Test:
    sides = [Counter(before), Counter(now)]
    both = sides[0] + sides[1]
    smaller = min(len(before), len(now)) / both.total()
    order = sorted(both, key=lambda value: (-both[value], value))
    frequent_values = [value for value in order if both[value] * smaller >= LEAST]
    rest = both.total() - sum(both[value] for value in frequent_values)
    # Pearson's test needs as many of the others, too: the rarest of the frequent joins them.
    if frequent_values and 0 < rest * smaller < LEAST:
        frequent_values.pop()
    counts = np.array([[side[v] for v in frequent_values] for side in sides], int).reshape(
        2, len(frequent_values)
    )
    other = np.array([[len(before)], [len(now)]]) - counts.sum(axis=1, keepdims=True)
    counts, names = (np.hstack([counts, other]), [*frequent_values, "others"]) if other.any() else (
        counts, frequent_values)  # fmt: skip
    if len(names) < 2:
        return _Test(1.0, 0.0, "nothing told apart" if other.any() else "one value")
    chance = float(chi2_contingency(counts, correction=False).pvalue)
    shares = counts / counts.sum(axis=1, keepdims=True)
    most = int(np.abs(shares[1] - shares[0]).argmax())
    value = names[most] if isinstance(names[most], str) else f"{names[most]:.4g}"
    value = value if value.isprintable() else repr(value)
    movement = _movement(f"{value:.30}", counts[:, most].tolist(), (len(before), len(now)))
    return _Test(chance, psi(*counts), movement)


def _of_unknown(before: Sequence, now: Sequence) -> Iterator[_Test]:
    """Compare the shares of records whose value half of one side lacks: first the earlier half of
    the baseline, then the later half of the period, as the two are farthest apart.
    """
    middle, late = (len(side) // 2 for side in (before, now))
    for half, sides, name, rarer in (
        (before[:middle], (before[middle:], now), "the baseline", "less"),
        (now[late:], (before, now[:late]), "these requests", "greater"),
    ):
        values, sizes = set(half), [*map(len, sides)]
        unknown = [sum(value not in values for value in side) for side in sides]
        if all(sizes):
            table = _with_rest(unknown, sizes)
            chance = float(fisher_exact(table, alternative=rarer).pvalue)
            movement = _movement(f"values that half of {name} lacks:", unknown, sizes)
            yield _Test(chance, psi(*table.T), movement)


def psi(before: np.ndarray, now: np.ndarray) -> float:
    """Return the population stability index of two counts by bin, Σ (q - p) ln(q / p), less what
    it is on average where nothing moved (Yurdakul and Naranjo, Journal of Risk Model Validation 14,
    2020), at least 0. Each bin counts half a request more: an empty one would make it infinite.
    """
    p, q = ((n + 0.5) / (n.sum() + 0.5 * len(n)) for n in (before, now))
    chance = (len(before) - 1) * (1 / before.sum() + 1 / now.sum())
    return max(0.0, float(((q - p) * np.log(q / p)).sum() - chance))
