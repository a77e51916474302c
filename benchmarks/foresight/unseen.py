"""How far foreseen step times are from vTrain's one-node rows that no constant was fitted to.

git clone https://github.com/VIA-Research/vTrain
python -m benchmarks.foresight.unseen vTrain/data/ground_truth_single.csv

Of the file's rows the 40 are left out that this repository has: constants were fitted to them.
"""

import csv
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from benchmarks.foresight import published
from benchmarks.foresight.choosing import LEAST
from benchmarks.foresight.fitting import Case, Floats, errors
from benchmarks.foresight.holding_out import score
from trainyard.foresight import work
from trainyard.foresight.setting import Setting
from trainyard.foresight.time import CONSTANTS

FIELDS = {
    "tensor": "tensor parallelism",
    "pipeline": "pipeline parallelism",
    "gpus": "# GPUs",
    "micro_batch": "micro batch",
    "hidden": "hidden size",
    "heads": "attention heads",
    "layers": "# layers",
    "sequence": "sequence length",
}
"""Field of a setting → the file's column."""

CLOSE = 0.05


def read(path: Path) -> list[Case]:
    """Return the file's rows that this repository does not have."""
    known = {Setting(**row["row"]) for row in published.vtrain_single()}
    with path.open(encoding="utf-8-sig", newline="") as file:
        found = [_case(columns) for columns in csv.DictReader(file)]
    return [case for case in found if case.setting not in known]


def _case(columns: dict[str, str]) -> Case:
    fields = {name: int(columns[column]) for name, column in FIELDS.items()}
    samples = int(columns["data parallelism"]) * fields["micro_batch"]
    accumulation = int(columns["global batch"]) // samples
    setting = Setting(**{**published.VTRAIN, **fields, "accumulation": accumulation})
    measured = float(columns["iteration time (ms)"]) / 1000
    return Case("vtrain_single", setting, work.of(setting), measured, {})


def report(of: list[Case]) -> Iterator[str]:
    """Say how far off they are: all, by tensor-parallel degree, and the choice of a layout."""
    off = errors(of, CONSTANTS)
    degrees = np.array([case.setting.tensor for case in of])
    folds = {f"tensor {degree}": degrees == degree for degree in np.unique(degrees)}
    for name, fold in {"all": degrees > 0, **folds}.items():
        one = score(off[fold])
        yield f"{name}: {one.rows} rows, mean {one.mean:.1%}, within 10 % {one.within:.0%}"
    lost = list(losses(of, off))
    near = sum(one <= CLOSE for one in lost)
    yield f"fastest within {CLOSE:.0%} in {near} of {len(lost)} groups; worst {max(lost):.0%}"


def losses(of: list[Case], off: Floats) -> Iterator[float]:
    """Yield, of each model, number of GPUs and global batch, by what share the chosen layout takes
    longer than the fastest."""
    groups = defaultdict(list)
    for case, error in zip(of, off, strict=True):
        it = case.setting
        foreseen = case.measured * (1 + error)
        groups[it.hidden, it.layers, it.gpus, it.tokens].append((foreseen, case.measured))
    for group in groups.values():
        if len(group) >= LEAST:
            yield min(group)[1] / min(measured for _, measured in group) - 1


def main(
    path: Annotated[Path, typer.Argument(help="vTrain's data/ground_truth_single.csv.")],
) -> None:
    for line in report(read(path)):
        print(line)


if __name__ == "__main__":
    typer.run(main)
