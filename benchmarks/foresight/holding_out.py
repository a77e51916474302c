"""Cross-validation that leaves out whole groups, and what it is measured against."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.foresight.fitting import Case, Floats, errors, fit
from trainyard.foresight.time import composed

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
    """Of absolute relative errors."""

    within: float
    """Share of rows within 10 %."""

    worst: float
    """Largest absolute relative error."""

    bias: float
    covered: float | None = None
    """Share of rows inside their 80 % interval."""


def score(errors: Floats, covered: Floats | None = None) -> Score:
    """Of relative errors, and of whether each is inside its interval."""
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


def deciles(found: Floats) -> tuple[float, float]:
    """p10 and p90 of a measurement, as factors of what is predicted."""
    factors = 1 / (1 + found)
    low, high = np.quantile(factors, [0.1, 0.9])
    return float(low), float(high)


def inside(of: Sequence[Case], found: Floats, group: Callable[[Case], str], more: Floats) -> Floats:
    """1 where a case is between the deciles of the other groups' errors, else 0.

    Args:
        more: what errors there are with each source left out; those of the others count, too, as
            for the intervals that are shipped.
    """
    names = np.array([group(case) for case in of])
    kinds = np.array([composed(case.setting) for case in of])
    result = np.empty(len(of))
    for name, kind in sorted({*zip(names.tolist(), kinds.tolist(), strict=True)}):
        out = (names == name) & (kinds == kind)
        others = (names != name) & (kinds == kind)
        low, high = deciles(np.concatenate([found[others], more[others]]))
        factors = 1 / (1 + found[out])
        result[out] = (low <= factors) & (factors <= high)
    return result


def constant_mfu(of: Sequence[Case], group: Callable[[Case], str]) -> Floats:
    """The errors of one MFU for each GPU and precision: the median of the other groups' rows, of
    all other rows where there is none."""
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
