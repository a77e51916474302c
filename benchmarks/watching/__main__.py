"""Watch rules on real trainings: each on its seeded fault, and all on healthy ones.

python -m benchmarks.watching [--runs 200] [--split S] [--only faults] [--folder F] [--json F]

Healthy trainings differ in model, data, seed, learning rate, batch, optimizer, schedule, precision,
ranks, and in whether they are resumed. With --folder the trainings' lines are kept there, and what
lies there is not trained again, but judged again. Exits with 1 when a rule misses its fault, or
speaks of a healthy training.
"""

import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.harness import JsonFile, keep
from benchmarks.watching import data, trial
from benchmarks.watching.faults import FAULTS
from benchmarks.watching.healthy import Case, cases
from tests.training.worlds import run_rank
from training.watching.rules import RULES
from trainyard.common import atomic_file


def main(
    runs: Annotated[int, typer.Option(help="Healthy trainings.")] = 200,
    split: Annotated[str, typer.Option(help="Of the healthy ones.")] = "unseen",
    only: Annotated[str, typer.Option(help="faults or healthy.")] = "",
    folder: Annotated[Path | None, typer.Option(help="Keep the lines here.")] = None,
    json_file: JsonFile = None,
) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        place = folder or Path(scratch) / "lines"
        place.mkdir(parents=True, exist_ok=True)
        data.write_all(Path(scratch) / "data")
        found: dict[str, Any] = {}
        if only != "healthy":
            found["faults"] = faults(Path(scratch), place)
        if only != "faults":
            found["healthy"] = healthy(cases(split, runs), Path(scratch), place)
    keep(json_file, found)
    missed = [one for one in found.get("faults", ()) if not one["fired"]]
    raise typer.Exit(bool(missed or found.get("healthy", {}).get("false")))


def faults(scratch: Path, place: Path) -> list[dict[str, Any]]:
    """Whether its rule speaks of each, and which others do."""
    found = []
    for number, fault in enumerate(track(FAULTS, "faults", transient=True)):
        case = fault.case(number)
        events = trial.judged(case, _lines(case, scratch, place, fault.rank))
        first = next((event for event in events if event.rule == fault.rule), None)
        others = sorted({event.rule for event in events} - {fault.rule})
        found.append({"rule": fault.rule, "fault": fault.what, "fired": first is not None,
                      "step": first and first.step, "line": first and first.line,
                      "others": others})  # fmt: skip
    table = Table("rule", "seeded fault", "fires at step", "value", "which fire, too")
    for one in found:
        value = one["line"].split("=")[2].split()[0] if one["line"] else ""
        step = str(one["step"]) if one["fired"] else "[red]never[/]"
        table.add_row(one["rule"], one["fault"], step, value, ", ".join(one["others"]))
    Console(width=150).print(table)
    return found


def healthy(chosen: list[Case], scratch: Path, place: Path) -> dict[str, Any]:
    """How often each rule speaks of them; it should not."""
    told, lines = [], 0
    learned = Counter[bool | None]()
    for case in track(chosen, "healthy", transient=True):
        processes = _lines(case, scratch, place)
        lines += sum(map(len, processes))
        if not case.tuned:  # a base has learned what there is
            learned[trial.learned(processes)] += 1
        told += [(case.name, event) for event in trial.judged(case, processes)]
    spoke = Counter(event.rule for _, event in told)
    table = Table("rule", f"spoke in {len(chosen)} healthy trainings, {lines} lines")
    for rule in RULES:
        table.add_row(rule, str(spoke[rule]))
    Console(width=150).print(table)
    for name, event in told:
        print(name, event.line)
    print(
        f"held-out loss of the {learned.total()} from fresh weights: {learned[True]} end below "
        f"their first, {learned[False]} do not, {learned[None]} were looked at once"
    )
    false = sorted({name for name, _ in told})
    return {"trainings": len(chosen), "lines": lines, "spoke": dict(spoke), "false": false,
            "learned": learned[True], "not_learned": learned[False]}  # fmt: skip


def _lines(case: Case, scratch: Path, place: Path, rank: Any = run_rank) -> list[trial.Lines]:
    path = place / f"{case.name}.json"
    found = trial.read(path)
    if found is None:
        found = trial.run(case, scratch / "data", scratch / "ml", rank)
        atomic_file.write(path, json.dumps(found))
    return found


if __name__ == "__main__":
    typer.run(main)
