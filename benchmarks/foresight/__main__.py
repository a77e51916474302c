"""Compare predicted step times with published ones that the constants were not fitted to.

python -m benchmarks.foresight [--json FILE]
python -m benchmarks.foresight --fit         # write the constants of time anew, from all rows
"""

import math
from dataclasses import asdict, replace
from typing import Annotated

import numpy as np
import typer

from benchmarks.foresight import fitting, holding_out
from benchmarks.foresight.fitting import Case
from benchmarks.foresight.holding_out import GROUPS, Choice, Score
from benchmarks.harness import JsonFile, show_table, track_steps, write_json
from trainyard.foresight.step_time import CONSTANTS, Constants


def fit_with_intervals(cases: list[Case]) -> Constants:
    """Fit the constants to all cases, and the intervals for a source that is not among them.

    The interval for known devices follows from errors with a source left out, on devices that other
    sources have, too; the one for other devices from errors with a device left out.
    """
    sources = holding_out.hold_out_groups(cases, GROUPS["source"])
    devices = holding_out.hold_out_groups(cases, GROUPS["GPU"])
    several = holding_out.flag_shared_devices(cases)
    names = [case.source for case, too in zip(cases, several, strict=True) if too]
    within = {
        "": holding_out.compute_reach(sources[several], names),
        "_elsewhere": holding_out.compute_reach(devices, [case.setting.gpu for case in cases]),
    }
    ends = {
        f"{end}{suffix}": round(math.exp(sign * half), 3)
        for suffix, half in within.items()
        for end, sign in (("low", -1), ("high", 1))
    }
    return replace(fitting.fit_constants(cases), **ends)


def validate_forecasts(cases: list[Case]) -> dict[str, dict[str, Score]]:
    """Return the scores by what is left out and by source, and those of a constant MFU."""
    names = track_steps("left out: each", GROUPS)
    unseen = {name: holding_out.hold_out_groups(cases, GROUPS[name]) for name in names}
    sources = np.array([case.source for case in cases])
    errors = fitting.compute_errors(cases, CONSTANTS)
    found = {"fitted on all": {"all": holding_out.score_errors(errors)}}
    for name, group in GROUPS.items():
        off = unseen[name]
        covered = holding_out.flag_covered(cases, off, name, unseen)
        scores = found[f"without its {name}"] = {"all": holding_out.score_errors(off, covered)}
        for source in dict.fromkeys(sources.tolist()):
            here = sources == source
            scores[source] = holding_out.score_errors(off[here], covered[here])
        errors = holding_out.compute_mfu_errors(cases, group)
        scores["a constant MFU"] = holding_out.score_errors(errors)
    return found


def show_scores(scores: dict[str, dict[str, Score]], choice: list[Choice]) -> None:
    """Print a table for each fold, and one of the choices of a layout."""
    columns = ("n", "mean", "within 10 %", "worst", "bias", "in 80 %")
    for title, found in scores.items():
        rows = []
        for name, one in found.items():
            covered = "" if one.covered is None else f"{one.covered:.0%}"
            shares = f"{one.mean:.1%}", f"{one.within:.0%}", f"{one.worst:.0%}", f"{one.bias:+.1%}"
            rows.append((name, one.rows, *shares, covered))
        show_table((title, *columns), rows)
    table = [(one.group, one.layouts, f"{one.spread:.1%}", f"{one.lost:.1%}", f"{one.spearman:.2f}")
            for one in choice]  # fmt: skip
    columns = ("layouts of", "n", "slowest is slower by", "chosen is slower by", "Spearman")
    show_table(columns, table)


def main(
    json_file: JsonFile = None,
    refit: Annotated[
        bool, typer.Option("--fit_constants", help="Write the constants anew.")
    ] = False,
) -> None:
    """Print how far foreseen times are from published ones."""
    measured = fitting.select_cases(fitting.read_rows())
    if refit:
        fitting.write_constants("time", fit_with_intervals(measured))
        return
    scores, choice = validate_forecasts(measured), holding_out.judge_choices(measured)
    show_scores(scores, choice)
    tree = {name: {n: asdict(s) for n, s in found.items()} for name, found in scores.items()}
    write_json(json_file, {"time": tree, "choice": [asdict(one) for one in choice]})


if __name__ == "__main__":
    typer.run(main)
