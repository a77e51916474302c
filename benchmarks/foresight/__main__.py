"""How far foreseen step times are from published ones, by rows that the constants have not seen.

python -m benchmarks.foresight [--json] [--plot FILE] [--peers]
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

from benchmarks.foresight import choosing, drawing, peers, published, whole_runs
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
from trainyard.foresight.time import CONSTANTS, Constants, composed

PATH = Path(time.__file__).with_name("constants.json")


def fitted(of: list[Case]) -> Constants:
    """The constants of all rows, and intervals from errors of rows that were held out.

    On devices that are known: a model's size or, where others have the GPU, too, a source at a
    time; on others, a GPU at a time.
    """
    size, source = (held_out(of, GROUPS[name]) for name in ("model size", "source"))
    kinds = np.array([composed(case.setting) for case in of])
    found = fit(of)
    shared = np.array([len({case.source for case in of if _same_gpu(case, one)}) > 1 for one in of])
    for suffix, alike in (("", ~kinds), ("_composed", kinds)):
        found = _with(found, suffix, np.concatenate([size[alike], source[alike & shared]]))
    return _with(found, "_elsewhere", held_out(of, GROUPS["GPU"]))


def _same_gpu(case: Case, other: Case) -> bool:
    return case.setting.gpu == other.setting.gpu


def _with(constants: Constants, suffix: str, off: Floats) -> Constants:
    low, high = (round(value, 3) for value in deciles(off))
    return replace(constants, **{f"low{suffix}": low, f"high{suffix}": high})


def write(constants: Constants) -> None:
    """Into ``constants.json``, under ``time``; what others have there stays."""
    whole = json.loads(PATH.read_text(encoding="utf-8"))
    whole["time"] = asdict(constants)
    whole_file.write(PATH, json.dumps(whole, indent=2) + "\n")


def validated(of: list[Case]) -> dict[str, Any]:
    """Scores by what is left out and by source, beside those of a constant MFU."""
    found: dict[str, Any] = {"fitted on all": score(errors(of, CONSTANTS))}
    unseen = held_out(of, GROUPS["source"])
    for name, group in GROUPS.items():
        off = held_out(of, group)
        covered = inside(of, off, group, unseen)
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
    with_peers: Annotated[
        bool, typer.Option("--peers", help="Ask Calculon and llm-analysis, too.")
    ] = False,
) -> None:
    of = cases(published.read())
    if refit:
        write(fitted(of))
        return
    scores = validated(of)
    choice = choosing.scores(of)
    runs = whole_runs.predicted()
    beside = peers.scores(of) if with_peers else {}
    if plot:
        drawing.draw(of, held_out(of, GROUPS["model size"]), plot)
    if as_json:
        whole = {"time": scores, "choice": choice, "whole runs": runs, "peers": beside}
        print(json.dumps(whole, indent=2, default=asdict))
        return
    console = Console()
    for title, found in scores.items():
        console.print(table(title, found if isinstance(found, dict) else {"all": found}))
    console.print(choosing.table(choice))
    console.print(whole_runs.table(runs))
    if beside:
        console.print(peers.table(beside))


if __name__ == "__main__":
    typer.run(main)
