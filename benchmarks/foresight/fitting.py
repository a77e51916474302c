"""Constants from measurements: least squares of logarithms, over all rows at once."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from benchmarks.foresight.published import Row
from trainyard.foresight import work as work_of
from trainyard.foresight.setting import Setting
from trainyard.foresight.time import Constants, seconds
from trainyard.foresight.work import Work

Floats = NDArray[np.float64]
SPREADS = ("low", "high")
"""Constants that follow from errors, and not from least squares."""


@dataclass(frozen=True)
class Case:
    """A measurement of time."""

    source: str
    setting: Setting
    work: Work
    measured: float
    """Seconds a step."""

    group: Mapping[str, str]


def cases(rows: Mapping[str, Sequence[Row]]) -> list[Case]:
    """Those of the rows that have a time and are no outlier by their source's own word."""
    found = []
    for source, of_source in rows.items():
        for row in of_source:
            setting = Setting(**row["row"])
            seconds_ = _seconds(setting, row["measured"])
            if seconds_ and not row["outlier"]:
                work = work_of.of(setting)
                found.append(Case(source, setting, work, seconds_, row["group"]))
    return found


def _seconds(setting: Setting, measured: Mapping[str, float]) -> float:
    rate = measured.get("tokens_per_second_per_gpu")
    if rate:
        return setting.tokens / setting.gpus / rate
    return measured.get("step_seconds", 0.0)


def stacked(of: Sequence[Case]) -> Work:
    """The cases' work as one whose fields are arrays."""
    return Work(
        **{
            field.name: np.array([getattr(case.work, field.name) for case in of])  # type: ignore[misc]
            for field in fields(Work)
        }
    )


def predicted(work: Work, constants: Constants) -> Floats:
    """Seconds a step of each stacked case."""
    return np.asarray(sum(seconds(work, constants).values()))


def fit(of: Sequence[Case], start: Constants) -> Constants:
    """The constants that explain the cases best.

    Logarithms of constants are fitted to logarithms of times, so that 10 % too fast counts as much
    as 10 % too slow; large errors count linearly (soft L1 beyond 10 %), and a source with n rows
    as √n. Each constant is drawn to where it starts by the weight of a twentieth of a row for a factor of e.
    """
    names = [field.name for field in fields(Constants) if field.name not in SPREADS]
    work, measured = stacked(of), np.log([case.measured for case in of])
    counts = {source: sum(case.source == source for case in of) for source in {c.source for c in of}}
    weights = np.array([counts[case.source] ** -0.25 for case in of])
    first = np.log([getattr(start, name) for name in names])

    def errors(logs: Floats) -> Floats:
        constants = replace(start, **dict(zip(names, np.exp(logs), strict=True)))
        off = (np.log(predicted(work, constants)) - measured) * weights
        pri = np.array([{'link': 1.0, 'network': .5, 'flash_ampere': .5, 'jitter': .02,'hopper8':.3}.get(n, 0.1) for n in names])
        return np.concatenate([off, pri * (logs - first)])

    import os
    found = least_squares(errors, first, loss="soft_l1", f_scale=0.05, max_nfev=200)
    if os.environ.get('V'): print('COST', found.cost)
    values = dict(zip(names, np.exp(found.x), strict=True))
    return replace(start, **{name: float(f"{value:.4g}") for name, value in values.items()})


def errors(of: Sequence[Case], constants: Constants) -> Floats:
    """Predicted over measured, less one."""
    return predicted(stacked(of), constants) / np.array([case.measured for case in of]) - 1


def as_dict(constants: Constants) -> dict[str, float]:
    return asdict(constants)
