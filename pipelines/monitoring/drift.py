"""Say which features are distributed otherwise than before, and how far.

Each feature has two tests: of its values (Kolmogorov and Smirnov's of two samples for numbers,
Pearson's χ² for categories) and of the share that is missing (Fisher's). Holm's correction holds
the probability of any false alarm over all of them. With many requests trifles are certain, so
drift needs an effect, too: the population stability index, Σ (q - p) ln(q / p) over the shares p
before and q now. A request is taken as independent of the others.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import chi2_contingency, fisher_exact, ks_2samp

from conditions.slices import holm
from trainyard.quality.tables import Cells, numbers

VALUES, MISSING, QUALITY = "values", "missing", "quality"
PARTS = 5
"""Quantiles of either sample whose values bound the bins of a number's index."""
CATEGORIES = 20
"""Most categories that are told apart; the rarer ones are one."""
EXACT = 100
"""Most values, of both, whose test is exact: with many, rounding spoils SciPy's exact sum."""
LEAST = 5.0
"""Expected number of requests below which a category counts among the rarer ones (Cochran 1954)."""


@dataclass(frozen=True, slots=True)
class Change:
    """The difference of one feature between baseline and period, in one respect."""

    feature: str
    """Its name; with ``QUALITY`` that of a metric."""
    of: str
    """``VALUES``, ``MISSING`` or ``QUALITY``."""
    chance: float
    """p-value; Holm's, once all are tested."""
    psi: float | None
    """None: it needs no index to be called drift."""
    told: str
    """What moved, in words."""
    drifted: bool = False


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
        before, now: name → cells, as in ``trainyard.quality.tables.Table``; the same names.
        quantities: names of those columns whose cells are numbers; the others are categories.
        error: probability that any is called drift where there is none.
        also: changes tested elsewhere, which count among these.
    """
    tested = [*also] + [
        change
        for name in before
        for change in _changes(name, before[name], now[name], name in quantities)
    ]
    chances = holm(np.array([change.chance for change in tested]))
    found = [
        replace(
            c,
            chance=float(p),
            drifted=bool(p <= error and (c.psi is None or c.psi >= least_psi)),
        )
        for c, p in zip(tested, chances, strict=True)
    ]
    return sorted(found, key=lambda c: (not c.drifted, -np.inf if c.psi is None else -c.psi))


def _changes(name: str, before: Cells, now: Cells, quantity: bool) -> Iterator[Change]:
    sides = [np.array(_finite(c) if quantity else [x for x in c if x]) for c in (before, now)]
    sizes = len(before), len(now)
    if all(map(len, sides)):
        yield (_of_numbers if quantity else _of_categories)(name, *sides)
    absent = [size - len(side) for side, size in zip(sides, sizes, strict=True)]
    if any(absent):
        counts = np.array([absent, [len(side) for side in sides]])
        shares = (n / size for n, size in zip(absent, sizes, strict=True))
        told = "missing {:.1%} → {:.1%}".format(*shares)
        yield Change(name, MISSING, float(fisher_exact(counts).pvalue), psi(*counts.T), told)


def _finite(cells: Cells) -> np.ndarray:
    """Return the numbers to float32's precision: written by other programs, equal ones differ in
    their last digits, and a value that many records have would seem to move.
    """
    values = numbers(cells)
    most = np.finfo(np.float32).max
    return values[np.isfinite(values)].clip(-most, most).astype(np.float32)


def _of_numbers(name: str, before: np.ndarray, now: np.ndarray) -> Change:
    inner = np.arange(1, PARTS) / PARTS
    edges = np.unique([np.quantile(one, inner, method="lower") for one in (before, now)])
    counts = [np.bincount(np.searchsorted(edges, x), minlength=len(edges) + 1)
              for x in (before, now)]  # fmt: skip
    method = "exact" if len(before) + len(now) <= EXACT else "asymp"
    test = ks_2samp(before, now, method=method)
    old, new = (f"{np.median(side):.4g}" for side in (before, now))
    told = f"median {old} → {new}"
    if old == new:
        where = test.statistic_location
        shares = ((side <= where).mean() for side in (before, now))
        told = "up to {:.4g}: {:.1%} → {:.1%}".format(where, *shares)
    return Change(name, VALUES, float(test.pvalue), psi(*counts), told)


def _of_categories(name: str, before: np.ndarray, now: np.ndarray) -> Change:
    sides = [Counter(side.tolist()) for side in (before, now)]
    both = sides[0] + sides[1]
    smaller = min(len(before), len(now)) / both.total()
    order = sorted(both, key=lambda value: (-both[value], value))
    kept = [value for value in order[:CATEGORIES] if both[value] * smaller >= LEAST]
    rest = both.total() - sum(both[value] for value in kept)
    if kept and 0 < rest * smaller < LEAST:
        kept.pop()
    counts = np.array([[side[v] for v in kept] for side in sides], int).reshape(2, len(kept))
    other = np.array([[len(before)], [len(now)]]) - counts.sum(axis=1, keepdims=True)
    counts, names = (np.hstack([counts, other]), [*kept, "others"]) if other.any() else (
        counts, kept)  # fmt: skip
    if len(names) < 2:
        return Change(name, VALUES, 1.0, 0.0, "nothing told apart" if other.any() else "one value")
    chance = float(chi2_contingency(counts, correction=False).pvalue)
    shares = counts / counts.sum(axis=1, keepdims=True)
    most = int(np.abs(shares[1] - shares[0]).argmax())
    value = names[most] if names[most].isprintable() else repr(names[most])
    told = f"{value:.30} {shares[0, most]:.1%} → {shares[1, most]:.1%}"
    return Change(name, VALUES, chance, psi(*counts), told)


def psi(before: np.ndarray, now: np.ndarray) -> float:
    """Return the population stability index of two counts by bin, each at least half a request:
    an empty bin would make it infinite.
    """
    p, q = ((n + 0.5) / (n.sum() + 0.5 * len(n)) for n in (before, now))
    return float(((q - p) * np.log(q / p)).sum())
