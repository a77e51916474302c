"""Compare foreseen step times with published ones, by rows that the constants have not seen.

python -m benchmarks.foresight [--json FILE]
python -m benchmarks.foresight --fit         # write the constants of time anew, from all rows
"""

import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from benchmarks.foresight.fitting import Case, cases, errors, fit, read
from benchmarks.foresight.holding_out import (
    GROUPS,
    Choice,
    Score,
    choices,
    constant_mfu,
    flag_shared_devices,
    held_out,
    inside,
    reach,
    score,
)
from benchmarks.harness import JsonFile, keep, show_table, steps_of
from trainyard.common import atomic_file
from trainyard.foresight import step_time
from trainyard.foresight.step_time import CONSTANTS, Constants

PATH = Path(step_time.__file__).with_name("constants.json")


def fit_constants(of: list[Case]) -> Constants:
    """The constants of all rows, and the intervals of a source that none of them is of.

    On devices that are known, by the errors with a source left out where others have its device,
    too; on others with a device left out.
    """
    sources, devices = (held_out(of, GROUPS[name]) for name in ("source", "GPU"))
    several = flag_shared_devices(of)
    names = [case.source for case, too in zip(of, several, strict=True) if too]
    within = {
        "": reach(sources[several], names),
        "_elsewhere": reach(devices, [case.setting.gpu for case in of]),
    }
    ends = {
        f"{end}{suffix}": round(math.exp(sign * half), 3)
        for suffix, half in within.items()
        for end, sign in (("low", -1), ("high", 1))
    }
    return replace(fit(of), **ends)


def write(constants: Constants) -> None:
    """Into ``constants.json``, under ``time``; what others have there stays."""
    whole = json.loads(PATH.read_text(encoding="utf-8"))
    whole["time"] = asdict(constants)
    atomic_file.write_file(PATH, json.dumps(whole, indent=2) + "\n")


def validate_forecasts(of: list[Case]) -> dict[str, dict[str, Score]]:
    """Scores by what is left out and by source, beside those of a constant MFU."""
    unseen = {n: held_out(of, GROUPS[n]) for n in steps_of("left out: each", GROUPS)}
    sources = np.array([case.source for case in of])
    found = {"fitted on all": {"all": score(errors(of, CONSTANTS))}}
    for name, group in GROUPS.items():
        off = unseen[name]
        covered = inside(of, off, name, unseen)
        scores = found[f"without its {name}"] = {"all": score(off, covered)}
        for source in dict.fromkeys(sources.tolist()):
            scores[source] = score(off[sources == source], covered[sources == source])
        scores["a constant MFU"] = score(constant_mfu(of, group))
    return found


def show(scores: dict[str, dict[str, Score]], choice: list[Choice]) -> None:
    """A table for each fold, and one of the choices of a layout."""
    columns = ("n", "mean", "within 10 %", "worst", "bias", "in 80 %")
    for title, found in scores.items():
        rows = []
        for name, one in found.items():
            covered = "" if one.covered is None else f"{one.covered:.0%}"
            shares = f"{one.mean:.1%}", f"{one.within:.0%}", f"{one.worst:.0%}", f"{one.bias:+.1%}"
            rows.append((name, one.rows, *shares, covered))
        show_table((title, *columns), rows)
    told = [(one.group, one.layouts, f"{one.spread:.1%}", f"{one.lost:.1%}", f"{one.spearman:.2f}")
            for one in choice]  # fmt: skip
    columns = ("layouts of", "n", "slowest is slower by", "chosen is slower by", "Spearman")
    show_table(columns, told)


def main(
    json_file: JsonFile = None,
    refit: Annotated[bool, typer.Option("--fit", help="Write the constants anew.")] = False,
) -> None:
    """Print how far foreseen times are from published ones."""
    of = cases(read())
    if refit:
        write(fit_constants(of))
        return
    scores, choice = validate_forecasts(of), choices(of)
    show(scores, choice)
    told = {name: {n: asdict(s) for n, s in found.items()} for name, found in scores.items()}
    keep(json_file, {"time": told, "choice": [asdict(one) for one in choice]})


if __name__ == "__main__":
    typer.run(main)
