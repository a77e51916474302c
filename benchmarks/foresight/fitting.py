"""Fit constants to measurements: least squares of logarithms, over all rows at once."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from trainyard.common import atomic_file
from trainyard.foresight import memory
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


def read_rows(names: tuple[str, ...] = ()) -> dict[str, list[Row]]:
    """Return source → its rows in ``rows/``; of all sources there, or only of ``names``."""
    files = [ROWS / f"{name}.jsonl" for name in names] or sorted(ROWS.glob("*.jsonl"))
    return {
        file.stem: [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        for file in files
    }


def write_constants(part: str, constants: Constants | memory.Constants) -> None:
    """Write constants to trainyard's ``constants.json`` under ``part``; keep its other parts."""
    path = Path(memory.__file__).with_name("constants.json")
    whole = json.loads(path.read_text(encoding="utf-8")) | {part: asdict(constants)}
    atomic_file.write_file(path, json.dumps(whole, indent=2) + "\n")


Floats = NDArray[np.float64]

START = Constants(**json.loads(Path(__file__).with_name("start.json").read_text()))
"""Assumptions made before any row was fitted. The links' shares are NCCL's (A100 234.9 of 300
GB/s, H200 367.6 of 450: stas00/ml-engineering), attention's Dao 2023's tables; a block's
forward pass launches some 70 kernels, each of some 13 µs of eager PyTorch; the rest are guesses."""

SPREADS = ("low", "high", "low_elsewhere", "high_elsewhere")
"""Constants that follow from errors, and not from least squares."""

HELD = {"link": 1.0, "network": 0.5, "flash2": 0.5, "launch_us": 0.5}
"""Constants that others have measured → how firmly they are held: the weight in rows."""

LIGHTLY = 0.1
"""How firmly the other constants are held."""


@dataclass(frozen=True)
class Case:
    """A published measurement of a training's step time."""

    source: str
    setting: Setting
    work: Work
    measured: float
    """Seconds a step."""

    group: Mapping[str, str]


def select_cases(rows: Mapping[str, Sequence[Row]]) -> list[Case]:
    """Return the rows that state a time and that their own source does not call outliers."""
    found = []
    for source, of_source in rows.items():
        for row in of_source:
            setting = Setting(**row["row"])
            measured = _compute_measured_seconds(setting, row["measured"])
            if measured and not row["outlier"]:
                work = work_of.compute_work(setting)
                found.append(Case(source, setting, work, measured, row["group"]))
    return found


def _compute_measured_seconds(setting: Setting, measured: Mapping[str, float]) -> float:
    """Return the measured seconds of a step, or 0 if the row states none."""
    rate = measured.get("tokens_per_second_per_gpu")
    return setting.tokens / setting.gpus / rate if rate else measured.get("step_seconds", 0.0)


def stack_work(cases: Sequence[Case]) -> Work:
    """Return the work of all cases as one whose fields are arrays."""
    names = [field.name for field in fields(Work)]
    columns = {name: np.array([getattr(case.work, name) for case in cases]) for name in names}
    return Work(**columns)  # type: ignore[arg-type]


def predict_step_seconds(work: Work, constants: Constants) -> Floats:
    """Return the predicted seconds of a step for each of the stacked cases."""
    return np.asarray(sum(compute_seconds(work, constants).values()))


def fit_constants(cases: Sequence[Case], start: Constants = START) -> Constants:
    """Return the constants that explain the cases best.

    Logarithms of constants are fitted to logarithms of times, so that 10 % too fast counts as much
    as 10 % too slow. Errors beyond 5 % count less and less (soft L1), and a source with n rows as
    √n. ``HELD`` or ``LIGHTLY`` says how firmly each constant is held where it starts.
    """
    names = [field.name for field in fields(Constants) if field.name not in SPREADS]
    work, measured = stack_work(cases), np.log([case.measured for case in cases])
    counts = Counter(case.source for case in cases)
    weights = np.array([counts[case.source] ** -0.25 for case in cases])
    pulls = np.array([HELD.get(name, LIGHTLY) for name in names])
    first = np.log([getattr(start, name) for name in names])

    def compute_residuals(logs: Floats) -> Floats:
        constants = replace(start, **dict(zip(names, np.exp(logs).tolist(), strict=True)))
        off = (np.log(predict_step_seconds(work, constants)) - measured) * weights
        return np.concatenate([off, pulls * (logs - first)])

    found = least_squares(compute_residuals, first, loss="soft_l1", f_scale=0.05, max_nfev=200)
    values = dict(zip(names, np.exp(found.x).tolist(), strict=True))
    return replace(start, **{name: float(f"{value:.4g}") for name, value in values.items()})


def compute_errors(cases: Sequence[Case], constants: Constants) -> Floats:
    """Return the relative errors of the predictions: predicted over measured, minus 1."""
    measured = np.array([case.measured for case in cases])
    return predict_step_seconds(stack_work(cases), constants) / measured - 1
