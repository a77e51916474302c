"""Cross-validate predictions with whole groups left out, and compare them with a constant MFU."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from benchmarks.foresight.fitting import Case, Floats, compute_errors, fit_constants

Flags = NDArray[np.bool_]

LEVEL = 0.8
"""Interval from the first to the ninth decile."""

ROUNDING = 1e-9
GROUPS: dict[str, Callable[[Case], str]] = {
    "model size": lambda case: f"{case.source} {case.group['size']}",
    "GPU": lambda case: case.setting.gpu,
    "source": lambda case: case.source,
}
"""What a fold leaves out → function from a case to its fold."""


@dataclass(frozen=True)
class Score:
    """Summary of how far predictions are from measurements."""

    rows: int
    mean: float
    """Mean of absolute relative errors."""

    within: float
    """Share of rows within 10 %."""

    worst: float
    """Largest absolute relative error."""

    bias: float
    covered: float | None = None
    """Share of rows inside their 80 % interval."""


def score_errors(errors: Floats, covered: Floats | None = None) -> Score:
    """Return the summary of relative errors; ``covered``: 1 where one is inside its interval."""
    apart = np.abs(errors)
    return Score(
        len(errors),
        float(apart.mean()),
        float((apart <= 0.1).mean()),
        float(apart.max()),
        float(errors.mean()),
        None if covered is None else float(covered.mean()),
    )


def hold_out_groups(cases: Sequence[Case], group: Callable[[Case], str]) -> Floats:
    """Return the error of each case by constants that are fitted to the other groups' cases."""
    names = np.array([group(case) for case in cases])
    found = np.empty(len(cases))
    for name in dict.fromkeys(names.tolist()):
        out = names == name
        constants = fit_constants([case for case, left in zip(cases, out, strict=True) if not left])
        found[out] = compute_errors(
            [case for case, left in zip(cases, out, strict=True) if left], constants
        )
    return found


def compute_reach(found: Floats, names: Sequence[str], level: float = LEVEL) -> float:
    """Return the half-width, in logarithms, of the prediction interval for a group yet to come.

    Groups are assumed to be drawn alike, the one to come included. Then a row of it lies within the
    interval with the probability ``level`` at least, whatever the distribution of errors and
    whatever a group's have in common: each group has the same weight, and the one to come, of which
    nothing is known, counts as infinitely far (hierarchical conformal prediction: Lee, Barber,
    Willett, arXiv 2306.06342). They show it for constants that have seen no group; here those of
    each row have seen all but its own, so the coverage is measured.

    Args:
        found: relative errors of each row by constants that have seen none of its group.
        names: the row's group. With too few groups for the level the result is ∞.
    """
    counts = Counter(names)
    weights = np.array([1 / counts[name] for name in names]) / (len(counts) + 1)
    apart = np.abs(np.log1p(found))
    order = np.argsort(apart)
    enough = np.searchsorted(np.cumsum(weights[order]), level - ROUNDING)
    return float(apart[order][enough]) if enough < len(apart) else float("inf")


def flag_shared_devices(cases: Sequence[Case]) -> Flags:
    """Return for each case whether another source has rows of the same device."""
    pairs = {(case.setting.gpu, case.source) for case in cases}
    sources = Counter(gpu for gpu, _ in pairs)
    return np.array([sources[case.setting.gpu] > 1 for case in cases])


def flag_covered(
    cases: Sequence[Case], off: Floats, fold: str, unseen: Mapping[str, Floats]
) -> Floats:
    """Return 1 where an error is within the interval predicted for its group, else 0.

    The interval is formed without any row of the case's source; where the fold leaves no row of the
    case's device, without any row of the device.

    Args:
        off: the errors.
        fold: name in ``GROUPS`` of the fold that the errors are from.
        unseen: the errors by the folds ``source`` and ``GPU``.
    """
    several = flag_shared_devices(cases)
    known = {"model size": np.ones_like(several), "source": several}.get(fold, several & False)
    result = np.empty(len(cases))
    for kind, rows, seen in (("source", several, known), ("GPU", several | True, ~known)):
        names = np.array([GROUPS[kind](case) for case in cases])
        for name in dict.fromkeys(names[seen].tolist()):
            others = rows & (names != name)
            within = compute_reach(unseen[kind][others], names[others].tolist())
            here = seen & (names == name)
            result[here] = np.abs(np.log1p(off[here])) <= within
    return result


def compute_mfu_errors(cases: Sequence[Case], group: Callable[[Case], str]) -> Floats:
    """Return the errors of predicting each rate by a median MFU of the other groups' rows.

    The median is over rows of the same GPU and precision, or over all where there are none.
    """
    names = [group(case) for case in cases]
    rates = np.array([_compute_mfu(case) for case in cases])
    kinds = [(case.setting.gpu, case.setting.precision) for case in cases]
    found = np.empty(len(cases))
    for here, (name, kind) in enumerate(zip(names, kinds, strict=True)):
        others = np.array([other != name for other in names])
        alike = others & np.array([other == kind for other in kinds])
        typical = np.median(rates[alike if alike.any() else others])
        found[here] = rates[here] / typical - 1
    return found


def _compute_mfu(case: Case) -> float:
    """Return the measured MFU of a case."""
    tokens = case.setting.tokens / case.setting.gpus / case.measured
    return case.work.flops * tokens / (case.setting.device.bf16_tflops * 1e12)


LEAST = 4
"""Minimum number of layouts of a group; the order of fewer says nothing."""


@dataclass(frozen=True)
class Choice:
    """How well the predictions choose among measured layouts of a model on one kind of machine."""

    group: str
    layouts: int
    spread: float
    """How much slower the slowest layout is than the fastest, as a share of its rate. Ranks within
    a few per cent of each other are noise of the measurements."""

    lost: float
    """How much slower the chosen layout is than the fastest, as a share of its rate."""

    spearman: float
    """Rank correlation of predicted and measured rates."""


def judge_choices(cases: Sequence[Case]) -> list[Choice]:
    """Return for each group how good the predicted choice is, with its model size held out."""
    foreseen = np.array([case.measured for case in cases])
    foreseen = foreseen * (1 + hold_out_groups(cases, GROUPS["model size"]))
    groups = defaultdict(list)
    for here, case in enumerate(cases):
        if "model" in case.group:
            groups[f"{case.source} {case.group['model']}"].append(here)
    found = []
    for name, places in groups.items():
        if len(places) >= LEAST:
            chosen = [cases[here] for here in places]
            found.append(_judge_choice(name, chosen, foreseen[places]))
    return found


def _judge_choice(name: str, cases: Sequence[Case], foreseen: np.ndarray) -> Choice:
    tokens = np.array([case.setting.tokens / case.setting.gpus for case in cases])
    rates = tokens / np.array([case.measured for case in cases])
    expected = tokens / foreseen
    spread = 1 - rates.min() / rates.max()
    lost = 1 - rates[expected.argmax()] / rates.max()
    order = spearmanr(expected, rates).statistic
    return Choice(name, len(cases), float(spread), float(lost), float(order))
