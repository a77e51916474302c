"""How far foreseen step times are from published ones, by rows that the constants have not seen.

python -m benchmarks.foresight [--json] [--plot FILE]
python -m benchmarks.foresight --fit         # write the constants of time anew, from all rows
"""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.foresight import choosing, drawing, published, whole_runs
from benchmarks.foresight.fitting import Case, Floats, cases, errors, fit
from benchmarks.foresight.holding_out import (
    GROUPS,
    Score,
    constant_mfu,
    deciles,
    held_out,
    inside,
    score,
)
from trainyard.common import whole_file
from trainyard.foresight import time
from trainyard.foresight.time import CONSTANTS, Constants

PATH = Path(time.__file__).with_name("constants.json")


def fitted(of: list[Case]) -> Constants:
    """The constants of all rows, with the spreads of those that were held out: of a model's size
    where its GPU is known, of a GPU where it is not."""
    low, high = deciles(held_out(of, GROUPS["model size"]))
    low_elsewhere, high_elsewhere = deciles(held_out(of, GROUPS["GPU"]))
    spreads = {
        "low": low,
        "high": high,
        "low_elsewhere": low_elsewhere,
        "high_elsewhere": high_elsewhere,
    }
    return replace(fit(of), **{name: round(value, 3) for name, value in spreads.items()})


def write(constants: Constants) -> None:
    """Into ``constants.json``, under ``time``; what others have there stays."""
    whole = json.loads(PATH.read_text(encoding="utf-8"))
    whole["time"] = asdict(constants)
    whole_file.write(PATH, json.dumps(whole, indent=2) + "\n")


def validated(of: list[Case]) -> dict[str, Any]:
    """Scores by what is left out and by source, beside those of a constant MFU."""
    found: dict[str, Any] = {"fitted on all": score(errors(of, CONSTANTS))}
    for name, group in GROUPS.items():
        off = held_out(of, group)
        covered = inside(of, off, group)
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


def table(title: str, scores: dict[str, Score]) -> Table:
    """One fold a table."""
    shown = Table("rows of", "n", "mean", "within 10 %", "worst", "bias", "in 80 %", title=title)
    for name, one in scores.items():
        covered = "" if one.covered is None else f"{one.covered:.0%}"
        figures = f"{one.mean:.1%}", f"{one.within:.0%}", f"{one.worst:.0%}", f"{one.bias:+.1%}"
        shown.add_row(name, str(one.rows), *figures, covered)
    return shown


def main(
    as_json: Annotated[bool, typer.Option("--json", help="Figures as JSON.")] = False,
    refit: Annotated[bool, typer.Option("--fit", help="Write the constants anew.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Errors by source, as SVG.")] = None,
) -> None:
    of = cases(published.read())
    if refit:
        write(fitted(of))
        return
    scores = validated(of)
    choice = choosing.scores(of)
    runs = whole_runs.predicted()
    if plot:
        drawing.draw(of, held_out(of, GROUPS["model size"]), plot)
    if as_json:
        whole = {"time": scores, "choice": choice, "whole runs": runs}
        print(json.dumps(whole, indent=2, default=asdict))
        return
    console = Console()
    for title, found in scores.items():
        console.print(table(title, found if isinstance(found, dict) else {"all": found}))
    console.print(choosing.table(choice))
    console.print(whole_runs.table(runs))


if __name__ == "__main__":
    typer.run(main)
