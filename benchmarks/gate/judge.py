"""Decide on a simulated test split: as the gate does, and by the usual limits."""

from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from benchmarks.gate.worlds import draw_split, drop_range
from conditions.alpha_spending import compute_significance_level
from conditions.checks.slice_regression import SLICE_REGRESSION
from conditions.improvement import Groups, count_effective_groups
from conditions.mean_tests import Floats
from conditions.score_tables import SliceSums
from conditions.slices import judge_slices

CONFIDENCE = 0.95
ALPHA = 1 - CONFIDENCE
FIRST = compute_significance_level(ALPHA, look_number=1)
"""Significance level of the first look."""
TRIES = (1, 5, 20, 50)
"""Numbers of challengers that are tried on one test split."""
RESAMPLES = 1999
SEED = 20261121


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Whether the challenger of one pair of models is promoted, by each way to decide."""

    gate: bool
    """With the declared range: by the exact test where the world has one."""
    undeclared: bool
    """As if no range were declared."""
    usual: bool | None
    """By the more cautious one of Student's t by jackknife and the bootstrap-t, at 0.95."""


def judge_pair(world: str, groups: int, errors: float, usual_below: int, seed: int) -> Outcome:
    """Judge a pair whose challenger is better by ``errors`` standard errors.

    The usual limits, which take long, are computed only for seeds below ``usual_below``.
    """
    drawn = draw_split(world, groups, seed, errors, FIRST)
    undeclared = drop_range(drawn).compute_p_at_most(0.0) <= FIRST
    gate = undeclared if drawn.largest is None else drawn.compute_p_at_most(0.0) <= FIRST
    usual = is_promoted_by_usual_limits(drawn) if seed < usual_below else None
    return Outcome(gate=gate, undeclared=undeclared, usual=usual)


def is_promoted_by_usual_limits(groups: Groups) -> bool:
    """Return whether the more cautious of two usual limits promotes.

    One is Student's t by the jackknife's standard error, which does not shrink when some groups are
    large (MacKinnon, Nielsen & Webb, Journal of Econometrics 232, 2023); the other the bootstrap-t
    (Efron & Tibshirani, An Introduction to the Bootstrap, 1993).
    """
    difference, weight = groups.difference, groups.weight
    share = weight / weight.sum()
    value = difference.sum() / weight.sum()
    residual = difference / weight.sum() - value * share
    moved = residual / (1 - share)
    error = np.sqrt((len(share) - 1) / len(share) * (moved @ moved))
    if value - stdtrit(count_effective_groups(weight) - 1, CONFIDENCE) * error <= 0:
        return False
    highest = _compute_bootstrap_quantile(residual, share)
    return bool(np.isfinite(highest) and value - highest * error > 0)


def _compute_bootstrap_quantile(residual: Floats, share: Floats) -> float:
    """Return the quantile ``CONFIDENCE`` of the studentised mean over bootstrap samples."""
    count = len(share)
    generator = np.random.default_rng(SEED)
    taken = generator.multinomial(count, np.full(count, 1 / count), size=RESAMPLES).astype(float)
    columns = np.stack([residual, share, residual**2, residual * share, share**2], axis=1)
    sums, shares, squares, products, square_shares = (taken @ columns).T
    moved = sums / shares
    variance = squares - 2 * moved * products + moved**2 * square_shares
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.sqrt(np.maximum(variance, 0) * count / (count - 1)) / shares
        studentised = np.where(moved == 0, 0.0, moved / error)
    rank = int(np.ceil(CONFIDENCE * (RESAMPLES + 1))) - 1
    return float(np.sort(studentised)[rank])


def find_first_promotions(world: str, groups: int, seed: int) -> tuple[float, float]:
    """Return the number of the first try promoted (∞: none), with looks counted and without."""
    counted = uncounted = np.inf
    for look in range(1, TRIES[-1] + 1):
        level = compute_significance_level(ALPHA, look)
        chance = draw_split(world, groups, seed * 1000 + look, 0.0, level).compute_p_at_most(0)
        counted = min(counted, look) if chance <= level else counted
        uncounted = min(uncounted, look) if chance <= FIRST else uncounted
    return counted, uncounted


def is_stopped(shape: str, count: int, groups: int, bad: float, seed: int) -> bool:
    """Return whether a slice stops a model whose first slice is ``bad`` standard errors worse."""
    parts = [
        draw_split(shape, groups, 1000 * seed + place, -bad if place == 0 else 0.0)
        for place in range(count)
    ]
    sums = [SliceSums(slice=f"s={n}", examples=1000, groups=one) for n, one in enumerate(parts)]
    check, _ = judge_slices(
        SLICE_REGRESSION, sums, "m", 0.0, confidence=CONFIDENCE, min_examples=1, min_groups=2
    )
    return not check.passed


def limit_to_one_thread() -> None:
    """Limit matrix products to one thread: small ones on several only wait for each other."""
    from threadpoolctl import threadpool_limits

    threadpool_limits(1)
