"""Constants from measurements: least squares of logarithms, over all rows at once."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from trainyard.foresight import step_time as work_of
from trainyard.foresight.setting import Setting
from trainyard.foresight.step_time import Constants, Work, compute_seconds

ROWS = Path(__file__).parent / "rows"
Row = dict[str, Any]
"""``row``: fields of a Setting; ``measured``; ``group``: what a fold of cross-validation leaves
out; ``outlier``: whether the source itself calls the figure one."""

TIMES = tuple(
    """mpt vtrain_multi vtrain_single korthikanti torchtitan_h100 torchtitan_other fms_fsdp aws nemo
    megatron_bridge llama3_405b simumax""".split()
)
"""The sources that state times."""


def read(names: tuple[str, ...] = ()) -> dict[str, list[Row]]:
    """Source → its rows, as ``rows/`` has them; of all sources there, or of ``names``."""
    files = [ROWS / f"{name}.jsonl" for name in names] or sorted(ROWS.glob("*.jsonl"))
    return {
        file.stem: [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        for file in files
    }


Floats = NDArray[np.float64]

START = Constants(**json.loads(Path(__file__).with_name("start.json").read_text()))
"""What was believed before any row was looked at. The links' shares are NCCL's (A100 234.9 of 300
GB/s, H200 367.6 of 450: stas00/ml-engineering), attention's Dao 2023's tables; a block's
forward pass launches some 70 kernels, each of some 13 µs of eager PyTorch; the rest are guesses."""

SPREADS = ("low", "high", "low_elsewhere", "high_elsewhere")
"""Constants that follow from errors, and not from least squares."""

HELD = {"link": 1.0, "network": 0.5, "flash2": 0.5, "launch_us": 0.5}
"""Constants that others have measured, and how firmly they hold: the weight of so many rows."""

LIGHTLY = 0.1
"""How firmly the others hold."""


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
            measured = _seconds(setting, row["measured"])
            if measured and not row["outlier"]:
                work = work_of.compute_work(setting)
                found.append(Case(source, setting, work, measured, row["group"]))
    return found


def _seconds(setting: Setting, measured: Mapping[str, float]) -> float:
    rate = measured.get("tokens_per_second_per_gpu")
    if rate:
        return setting.tokens / setting.gpus / rate
    return measured.get("step_seconds", 0.0)


def stack_work(of: Sequence[Case]) -> Work:
    """The cases' work as one whose fields are arrays."""
    names = [field.name for field in fields(Work)]
    columns = {name: np.array([getattr(case.work, name) for case in of]) for name in names}
    return Work(**columns)  # type: ignore[arg-type]


def predict_step_seconds(work: Work, constants: Constants) -> Floats:
    """Seconds a step of each stacked case."""
    return np.asarray(sum(compute_seconds(work, constants).values()))


def fit(of: Sequence[Case], start: Constants = START) -> Constants:
    """The constants that explain the cases best.

    Logarithms of constants are fitted to logarithms of times, so that 10 % too fast counts as much
    as 10 % too slow. Errors beyond 5 % count less and less (soft L1), and a source with n rows as
    √n. Each constant is drawn to where it starts by ``HELD`` or ``LIGHTLY``.
    """
    names = [field.name for field in fields(Constants) if field.name not in SPREADS]
    work, measured = stack_work(of), np.log([case.measured for case in of])
    counts = Counter(case.source for case in of)
    weights = np.array([counts[case.source] ** -0.25 for case in of])
    pulls = np.array([HELD.get(name, LIGHTLY) for name in names])
    first = np.log([getattr(start, name) for name in names])

    def errors(logs: Floats) -> Floats:
        constants = replace(start, **dict(zip(names, np.exp(logs).tolist(), strict=True)))
        off = (np.log(predict_step_seconds(work, constants)) - measured) * weights
        return np.concatenate([off, pulls * (logs - first)])

    found = least_squares(errors, first, loss="soft_l1", f_scale=0.05, max_nfev=200)
    values = dict(zip(names, np.exp(found.x).tolist(), strict=True))
    return replace(start, **{name: float(f"{value:.4g}") for name, value in values.items()})


def errors(of: Sequence[Case], constants: Constants) -> Floats:
    """Predicted over measured, less one."""
    return (
        predict_step_seconds(stack_work(of), constants) / np.array([case.measured for case in of])
        - 1
    )
