"""Compare foreseen step times with published ones, by rows that the constants have not seen.

python -m benchmarks.foresight [--json]
python -m benchmarks.foresight --fit         # write the constants of time anew, from all rows
"""

import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.foresight.fitting import Case, Floats, cases, errors, fit, read
from benchmarks.foresight.holding_out import (
    GROUPS,
    Score,
    choices,
    constant_mfu,
    held_out,
    inside,
    reach,
    score,
    shared,
    show_choices,
)
from benchmarks.harness import show_table
from trainyard.common import atomic_file
from trainyard.foresight import step_time
from trainyard.foresight.step_time import CONSTANTS, Constants

PATH = Path(step_time.__file__).with_name("constants.json")


def fitted(of: list[Case]) -> Constants:
    """The constants of all rows, and the intervals of a source that none of them is of.

    On devices that are known, by the errors with a source left out where others have its device,
    too; on others with a device left out.
    """
    sources, devices = (held_out(of, GROUPS[name]) for name in ("source", "GPU"))
    several = shared(of)
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
    atomic_file.write(PATH, json.dumps(whole, indent=2) + "\n")


def validated(of: list[Case]) -> dict[str, Any]:
    """Scores by what is left out and by source, beside those of a constant MFU."""
    found: dict[str, Any] = {"fitted on all": score(errors(of, CONSTANTS))}
    unseen = {name: held_out(of, group) for name, group in GROUPS.items()}
    for name, group in GROUPS.items():
        off = unseen[name]
        covered = inside(of, off, name, unseen)
        found[f"without its {name}"] = {
            "all": score(off, covered),
            **_by_source(of, off, covered),
            "a constant MFU": score(constant_mfu(of, group)),
        }
    return found


def _by_source(of: list[Case], off: Floats, covered: Floats) -> dict[str, Score]:
    sources = np.array([case.source for case in of])
    return {
        source: score(off[sources == source], covered[sources == source])
        for source in dict.fromkeys(sources.tolist())
    }


def show(title: str, scores: dict[str, Score]) -> None:
    """One fold a table."""
    rows = []
    for name, one in scores.items():
        covered = "" if one.covered is None else f"{one.covered:.0%}"
        figures = f"{one.mean:.1%}", f"{one.within:.0%}", f"{one.worst:.0%}", f"{one.bias:+.1%}"
        rows.append((name, one.rows, *figures, covered))
    columns = ("rows of", "n", "mean", "within 10 %", "worst", "bias", "in 80 %")
    show_table(columns, rows, title)


def main(
    as_json: Annotated[bool, typer.Option("--json", help="Figures as JSON.")] = False,
    refit: Annotated[bool, typer.Option("--fit", help="Write the constants anew.")] = False,
) -> None:
    of = cases(read())
    if refit:
        write(fitted(of))
        return
    scores = validated(of)
    choice = choices(of)
    if as_json:
        print(json.dumps({"time": scores, "choice": choice}, indent=2, default=asdict))
        return
    for title, found in scores.items():
        show(title, found if isinstance(found, dict) else {"all": found})
    show_choices(choice)


if __name__ == "__main__":
    typer.run(main)
