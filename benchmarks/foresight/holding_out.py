"""Cross-validation that leaves out whole groups, and what it is measured against."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from benchmarks.foresight.fitting import Case, Floats, errors, fit

Flags = NDArray[np.bool_]

LEVEL = 0.8
"""Interval from the first to the ninth decile."""

ROUNDING = 1e-9
GROUPS: dict[str, Callable[[Case], str]] = {
    "model size": lambda case: f"{case.source} {case.group['size']}",
    "GPU": lambda case: case.setting.gpu,
    "source": lambda case: case.source,
}
"""What a fold leaves out → which fold a case is in."""


@dataclass(frozen=True)
class Score:
    """How far predictions are from measurements."""

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


def score(errors: Floats, covered: Floats | None = None) -> Score:
    """Summary of relative errors, and of whether each is inside its interval."""
    apart = np.abs(errors)
    return Score(
        len(errors),
        float(apart.mean()),
        float((apart <= 0.1).mean()),
        float(apart.max()),
        float(errors.mean()),
        None if covered is None else float(covered.mean()),
    )


def held_out(of: Sequence[Case], group: Callable[[Case], str]) -> Floats:
    """The error of each case, by constants of the cases that are in other groups."""
    names = np.array([group(case) for case in of])
    found = np.empty(len(of))
    for name in dict.fromkeys(names.tolist()):
        out = names == name
        constants = fit([case for case, left in zip(of, out, strict=True) if not left])
        found[out] = errors([case for case, left in zip(of, out, strict=True) if left], constants)
    return found


def reach(found: Floats, names: Sequence[str], level: float = LEVEL) -> float:
    """How far from what is foreseen, in logarithms, a row of a group lies that is yet to come.

    Groups are taken to be drawn alike, and a cluster of one's own to be the next of them. Then a
    row of it is as near with the probability ``level`` at least, however errors are distributed and
    whatever a group's have in common: each group weighs as much as another, and the one to come, of
    which nothing is known, counts as infinitely far (hierarchical conformal prediction: Lee,
    Barber, Willett, arXiv 2306.06342). They show it for constants that have seen no group; here
    those of each row have seen all but its own, so ``inside`` measures it.

    Args:
        found: relative errors of each row by constants that have seen none of its group.
        names: the row's group. With too few of them for the level the answer is ∞.
    """
    counts = Counter(names)
    weights = np.array([1 / counts[name] for name in names]) / (len(counts) + 1)
    apart = np.abs(np.log1p(found))
    order = np.argsort(apart)
    enough = np.searchsorted(np.cumsum(weights[order]), level - ROUNDING)
    return float(apart[order][enough]) if enough < len(apart) else float("inf")


def flag_shared_devices(of: Sequence[Case]) -> Flags:
    """Whether a source other than the case's has rows of its device, too."""
    pairs = {(case.setting.gpu, case.source) for case in of}
    sources = Counter(gpu for gpu, _ in pairs)
    return np.array([sources[case.setting.gpu] > 1 for case in of])


def inside(of: Sequence[Case], off: Floats, fold: str, unseen: Mapping[str, Floats]) -> Floats:
    """1 where an error is within the interval that would be shown to its group, else 0.

    That is formed without any row of the case's source; where the fold leaves no row of the case's
    device, without any of the device.

    Args:
        off: the errors.
        fold: in ``GROUPS``, that they are by.
        unseen: the errors by the folds ``source`` and ``GPU``.
    """
    several = flag_shared_devices(of)
    known = {"model size": np.ones_like(several), "source": several}.get(fold, several & False)
    result = np.empty(len(of))
    for kind, rows, seen in (("source", several, known), ("GPU", several | True, ~known)):
        names = np.array([GROUPS[kind](case) for case in of])
        for name in dict.fromkeys(names[seen].tolist()):
            others = rows & (names != name)
            within = reach(unseen[kind][others], names[others].tolist())
            here = seen & (names == name)
            result[here] = np.abs(np.log1p(off[here])) <= within
    return result


def constant_mfu(of: Sequence[Case], group: Callable[[Case], str]) -> Floats:
    """The errors of one MFU for each GPU and precision: the median of the other groups' rows, of
    all other rows where there is none.
    """
    names = [group(case) for case in of]
    rates = np.array([_rate(case) for case in of])
    kinds = [(case.setting.gpu, case.setting.precision) for case in of]
    found = np.empty(len(of))
    for here, (name, kind) in enumerate(zip(names, kinds, strict=True)):
        others = np.array([other != name for other in names])
        alike = others & np.array([other == kind for other in kinds])
        typical = np.median(rates[alike if alike.any() else others])
        found[here] = rates[here] / typical - 1
    return found


def _rate(case: Case) -> float:
    """MFU of what was measured."""
    tokens = case.setting.tokens / case.setting.gpus / case.measured
    return case.work.flops * tokens / (case.setting.device.bf16_tflops * 1e12)


LEAST = 4
"""Layouts of a group; fewer have no order to speak of."""


@dataclass(frozen=True)
class Choice:
    """A model on machines of one kind, trained in several layouts."""

    group: str
    layouts: int
    spread: float
    """How much slower the slowest layout is than the fastest one: a share of its rate. Ranks within
    a few per cent are those of the measurements' own noise."""

    lost: float
    """How much slower the chosen layout is than the fastest one: a share of its rate."""

    spearman: float
    """Correlation of the ranks of what was foreseen and of what was measured."""


def choices(of: Sequence[Case]) -> list[Choice]:
    """Return each group's choice, by constants that have not seen the model's size."""
    foreseen = np.array([case.measured for case in of])
    foreseen = foreseen * (1 + held_out(of, GROUPS["model size"]))
    groups = defaultdict(list)
    for here, case in enumerate(of):
        if "model" in case.group:
            groups[f"{case.source} {case.group['model']}"].append(here)
    found = []
    for name, places in groups.items():
        if len(places) >= LEAST:
            chosen = [of[here] for here in places]
            found.append(_choice(name, chosen, foreseen[places]))
    return found


def _choice(name: str, of: Sequence[Case], foreseen: np.ndarray) -> Choice:
    tokens = np.array([case.setting.tokens / case.setting.gpus for case in of])
    rates = tokens / np.array([case.measured for case in of])
    expected = tokens / foreseen
    spread = 1 - rates.min() / rates.max()
    lost = 1 - rates[expected.argmax()] / rates.max()
    order = spearmanr(expected, rates).statistic
    return Choice(name, len(of), float(spread), float(lost), float(order))
