"""Test which features are distributed differently than before, and by how much.

A feature is tested in each way in which it can move. The strongest way counts, with Bonferroni's
correction for their number:

- A number: by Kolmogorov and Smirnov's test of two samples. Also by the shares beyond outer
  quantiles of both samples together, which show a few records far outside: by Fisher's exact test
  at each quantile (exact, because the quantiles do not depend on which sample a value is from;
  maximally selected: Halpern, Biometrics 38, 1982).
- Any values that repeat: by Pearson's χ² of two samples.
- Categories and whole numbers, which may be identifiers: by the share of values that one half of
  the other sample does not contain. Fisher's exact test compares it with the same share of that
  sample's other half, so identifiers that are always new do not count as drift. Halves are by
  order, which is the order of time where the time is known, so that what one sender repeats is in
  one half.

The share of missing values has a test of its own (Fisher's). Holm's correction limits the
probability of any false alarm over all features. With many requests even tiny changes are
significant, so drift also needs an effect size: the population stability index (PSI). Requests are
assumed to be independent of each other.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.stats import chi2_contingency, fisher_exact, hypergeom, ks_2samp

from conditions.slices import adjust_p_values
from trainyard.quality.model_quality import Cells, parse_numbers

VALUES, MISSING, QUALITY = "values", "missing", "quality"
PARTS = 5
"""Number of bins: the quantiles of both samples are the bounds of the bins of a number's index."""
EXACT = 100
"""Maximum number of values, of both samples together, for which the test is exact: with more,
rounding errors spoil SciPy's exact sum.
"""
LEAST = 5.0
"""Expected number of requests below which a value is counted with the rarer ones (Cochran 1954)."""


@dataclass(frozen=True, slots=True)
class Change:
    """The difference of one feature between baseline and period, in one respect."""

    feature: str
    """Name of the feature; with ``QUALITY``, name of a metric."""
    respect: str
    """``VALUES``, ``MISSING`` or ``QUALITY``."""
    p_value: float
    """p-value; once all features are tested, adjusted by Holm's method."""
    psi: float | None
    """Population stability index; None if drift is decided by the p-value alone."""
    movement: str
    """What moved, in words."""
    has_drifted: bool = False


def compare_columns(
    before: Mapping[str, Cells],
    now: Mapping[str, Cells],
    quantities: Collection[str],
    *,
    error: float,
    least_psi: float,
    also: Sequence[Change] = (),
) -> list[Change]:
    """Test every column of both samples; return the changes: drifted ones first, then by decreasing
    stability index.

    Args:
        before, now: each column's cells by name, as in ``trainyard.quality.model_quality.Table``,
            with the same names in both. Cells are ordered by time, or at random.
        quantities: names of the columns whose cells are numbers; the others are categories.
        error: probability that any change is called drift if nothing has changed.
        least_psi: smallest index that is called drift.
        also: changes that were tested elsewhere; Holm's correction includes them.
    """
    changes = [*also] + [
        change
        for name in before
        for change in _find_column_changes(
            name, before[name], now[name], name in quantities, least_psi
        )
    ]
    p_values = adjust_p_values(np.array([change.p_value for change in changes]))
    results = [
        replace(
            c,
            p_value=float(p),
            has_drifted=bool(p <= error and (c.psi is None or c.psi >= least_psi)),
        )
        for c, p in zip(changes, p_values, strict=True)
    ]
    return sorted(results, key=lambda c: (not c.has_drifted, -np.inf if c.psi is None else -c.psi))


def _find_column_changes(
    name: str, before: Cells, now: Cells, quantity: bool, least_psi: float
) -> Iterator[Change]:
    """Yield the changes of one column: of its values, and of its share of missing values."""
    sides = [
        _select_finite(cells) if quantity else [x for x in cells if x] for cells in (before, now)
    ]
    sizes = len(before), len(now)
    if all(map(len, sides)):
        tests = [*_test_numbers(*map(np.array, sides))] if quantity else []
        tests.append(_test_frequent_values(*sides))
        if not quantity or all(float(value).is_integer() for side in sides for value in side):
            tests += _test_unknown_values(*sides)
        # With many requests even tiny changes are significant: only large effects compete.
        large = [test for test in tests if test.psi >= least_psi]
        best = min(large, key=lambda test: test.p_value) if large else tests[0]
        # Bonferroni: each way in which the feature can move is one test.
        yield Change(name, VALUES, min(1.0, len(tests) * best.p_value), best.psi, best.movement)
    absent = [size - len(side) for side, size in zip(sides, sizes, strict=True)]
    if any(absent):
        table = _build_contingency_table(absent, sizes)
        p_value = float(fisher_exact(table).pvalue)
        movement = _describe_movement("missing", absent, sizes)
        yield Change(name, MISSING, p_value, compute_psi(*table.T), movement)


class _Test(NamedTuple):
    """Result of one test: p-value, population stability index, and the change in words."""

    p_value: float
    psi: float
    movement: str
    """What moved, in words."""


def _build_contingency_table(counts: Sequence[int], sizes: Sequence[int]) -> np.ndarray:
    """Return a contingency table (2, 2): a column per sample, with its count and the rest."""
    return np.array([counts, np.subtract(sizes, counts)])


def _describe_movement(name: str, counts: Sequence[int], sizes: Sequence[int]) -> str:
    """Describe how a share changed, such as ``missing 1.0% → 3.5%``."""
    before, now = np.divide(counts, sizes)
    return f"{name} {before:.1%} → {now:.1%}"


def _select_finite(cells: Cells) -> list[float]:
    """Return the finite numbers, rounded to float32's precision.

    Numbers that different programs write may differ in their last digits. Unrounded, a value that
    many records have would seem to move.
    """
    values = parse_numbers(cells)
    maximum = np.finfo(np.float32).max
    return values[np.isfinite(values)].clip(-maximum, maximum).astype(np.float32).tolist()


def _test_numbers(before: np.ndarray, now: np.ndarray) -> list[_Test]:
    """Test two samples of numbers: Kolmogorov and Smirnov's test, and the test of their tails."""
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
        movement = _describe_movement(f"up to {test.statistic_location:.4g}:", low, sizes)
    return [_Test(float(test.pvalue), compute_psi(*counts), movement), *_test_tails(before, now)]


def _test_tails(before: np.ndarray, now: np.ndarray) -> Iterator[_Test]:
    """Yield the strongest difference of tails: shares in the outer quarter, eighth, … of all
    values, at both ends. Yield nothing for fewer than four values.
    """
    sizes = len(before), len(now)
    ranks = sum(sizes) >> np.arange(2, sum(sizes).bit_length())
    tails = []
    for sign, name in ((1, "from {:.4g} on:"), (-1, "up to {:.4g}:")):
        cuts = np.sort(sign * np.concatenate([before, now]))[sum(sizes) - ranks]
        counts = [(sign * x[:, None] >= cuts).sum(axis=0) for x in (before, now)]
        # Exact, because the cuts do not depend on which sample a value is from.
        distribution = hypergeom(sum(sizes), sum(counts), len(now))  # of the period's count
        p_values = 2 * np.minimum(distribution.cdf(counts[1]), distribution.sf(counts[1] - 1))
        names = [name.format(sign * cut) for cut in cuts]
        tails += zip(p_values.tolist(), names, *counts, strict=True)
    if tails:
        p_value, name, *tail_counts = min(tails)
        index = compute_psi(*_build_contingency_table(tail_counts, sizes).T)
        yield _Test(
            min(1.0, len(tails) * p_value), index, _describe_movement(name, tail_counts, sizes)
        )


def _test_frequent_values(before: Sequence, now: Sequence) -> _Test:
    """Test the shares of frequent values by Pearson's χ²; rarer values are counted together."""
    sides = [Counter(before), Counter(now)]
    both = sides[0] + sides[1]
    smaller = min(len(before), len(now)) / both.total()
    order = sorted(both, key=lambda value: (-both[value], value))
    frequent_values = [value for value in order if both[value] * smaller >= LEAST]
    rest = both.total() - sum(both[value] for value in frequent_values)
    # Pearson's test also needs enough rarer values: if too few, the rarest frequent one joins them.
    if frequent_values and 0 < rest * smaller < LEAST:
        frequent_values.pop()
    counts = np.array([[side[v] for v in frequent_values] for side in sides], int).reshape(
        2, len(frequent_values)
    )
    other = np.array([[len(before)], [len(now)]]) - counts.sum(axis=1, keepdims=True)
    counts, names = (np.hstack([counts, other]), [*frequent_values, "others"]) if other.any() else (
        counts, frequent_values)  # fmt: skip
    if len(names) < 2:
        return _Test(1.0, 0.0, "no frequent value" if other.any() else "one value")
    p_value = float(chi2_contingency(counts, correction=False).pvalue)
    shares = counts / counts.sum(axis=1, keepdims=True)
    index = int(np.abs(shares[1] - shares[0]).argmax())
    value = names[index] if isinstance(names[index], str) else f"{names[index]:.4g}"
    value = value if value.isprintable() else repr(value)
    movement = _describe_movement(
        f"{value:.30}", counts[:, index].tolist(), (len(before), len(now))
    )
    return _Test(p_value, compute_psi(*counts), movement)


def _test_unknown_values(before: Sequence, now: Sequence) -> Iterator[_Test]:
    """Yield tests of the shares of records whose value is not in one half of a sample.

    The halves are first the earlier half of the baseline, then the later half of the period,
    because these two are farthest apart in time.
    """
    middle, late = (len(side) // 2 for side in (before, now))
    for half, sides, name, rarer in (
        (before[:middle], (before[middle:], now), "the baseline", "less"),
        (now[late:], (before, now[:late]), "these requests", "greater"),
    ):
        values, sizes = set(half), [*map(len, sides)]
        unknown = [sum(value not in values for value in side) for side in sides]
        if all(sizes):
            table = _build_contingency_table(unknown, sizes)
            p_value = float(fisher_exact(table, alternative=rarer).pvalue)
            movement = _describe_movement(f"values that half of {name} lacks:", unknown, sizes)
            yield _Test(p_value, compute_psi(*table.T), movement)


def compute_psi(before: np.ndarray, now: np.ndarray) -> float:
    """Return the population stability index of two counts by bin, Σ (q - p) ln(q / p), minus its
    mean if nothing moved (Yurdakul and Naranjo, Journal of Risk Model Validation 14, 2020); at
    least 0.

    Half a request is added to each bin, because an empty bin would make the index infinite.
    """
    p, q = ((n + 0.5) / (n.sum() + 0.5 * len(n)) for n in (before, now))
    expected = (len(before) - 1) * (1 / before.sum() + 1 / now.sum())
    return max(0.0, float(((q - p) * np.log(q / p)).sum() - expected))
