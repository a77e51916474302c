"""Judge real trainings by the watch rules: each rule's seeded fault, and healthy ones.

python -m benchmarks.watching [--runs 200] [--split S] [--only faults] [--folder F] [--json F]

Healthy trainings differ in model, data, seed, learning rate, batch, optimizer, schedule, precision,
ranks, and in whether they are resumed. With --folder the trainings' lines are kept there, and what
lies there is not trained again, but judged again. Exits with 1 when a rule misses its fault, or
speaks of a healthy training.
"""

import contextlib
import json
import shutil
import sys
import tarfile
import tempfile
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.progress import track

from benchmarks.harness import JsonFile, keep, show_table
from benchmarks.watching.faults import FAULTS, Rank
from benchmarks.watching.healthy import Case, base, cases, workload, write_all
from steps.train import job
from tests.training import worlds
from tests.training.trainings import TOYS, arguments
from tests.training.worlds import run_rank
from training.checkpoint import marker
from training.watching.__main__ import parse_metrics
from training.watching.rules import RULES
from training.watching.watch_rule import Plan
from training.watching.watcher import Event, Watcher, read_watching
from trainyard.common import atomic_file

Lines = list[dict[str, float]]


def run(
    case: Case, data: Path, root: Path, rank: Rank = run_rank, *, keep: bool = False
) -> list[Lines]:
    """The metric lines of each process of the training: of two, where it is resumed.

    ``keep``: its files stay in ``root``.
    """
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    (root / "input").mkdir()
    (root / "input/data").mkdir()
    for split in ("train", "validation"):
        (root / "input/data" / split).symlink_to(data / case.data / split)
    if case.tuned:
        (root / "input/data/start").symlink_to(_base(case.data, data))
    found = [_once(case, root, rank)]
    if case.resumed:
        _forget(root, case.settings["max_steps"] // 2)
        found.append(_once(case, root, rank))
    if not keep:
        shutil.rmtree(root)
    return found


def judged(case: Case, processes: list[Lines]) -> list[Event]:
    """What the rules say, by their thresholds of now, as in each of the processes."""
    settings, said = read_watching(case.settings.get("watch", "")), []
    remembered: Lines = []
    for lines in processes:
        begun = int(lines[0]["step"]) - 1 if remembered else 0
        plan = Plan(
            case.settings["max_steps"],
            case.settings["warmup_steps"],
            begun,
            fine_tuning=case.tuned,
        )
        watcher = Watcher(settings, plan)
        watcher.begin([line for line in remembered if line["step"] <= begun])
        said += [event for line in lines for event in watcher.add(line)]
        remembered = lines
    return said


def learned(processes: list[Lines]) -> bool | None:
    """Whether the loss of held-out samples, which no rule looks at, was lower
    at the last step that has it than at the first; None where fewer than two have it.
    """
    every = {line["step"]: line["validation_loss"] for lines in processes for line in lines
             if "validation_loss" in line}  # fmt: skip
    return every[max(every)] < every[min(every)] if len(every) > 1 else None


def _base(name: str, data: Path) -> Path:
    """A folder with the model of a training on these data; made when it is asked for first."""
    folder = data / name / "base"
    if not folder.exists():
        root = data / name / "trained"
        run(base(name), data, root, keep=True)
        folder.mkdir()
        with tarfile.open(folder / "model.tar.gz", "w:gz") as tar:
            tar.add(root / "model", ".")
    return folder


def _once(case: Case, root: Path, rank: Rank) -> Lines:
    log = root / "rank-0.log"
    log.unlink(missing_ok=True)
    settings: dict[str, Any] = workload(case.data) | case.settings
    if case.world == 1 and rank is run_rank:
        codes = [_here(log, arguments(root, settings))]
    else:
        codes = worlds.finish(worlds.start(root, case.world, target=rank, **settings), 600)
    text = log.read_text()
    lines = [line for line in map(parse_metrics, text.splitlines()) if "step" in line]
    if not lines or (any(codes) and rank is run_rank):
        raise RuntimeError(f"{case.name}: ranks ended with {codes}: {text[-3000:]}")
    return lines


def _here(log: Path, given: list[str]) -> int:
    """The train job in this process, which has imported all of it already; its exit status."""
    sys.path[:0] = [] if str(TOYS) in sys.path else [str(TOYS)]
    torch.set_num_threads(1)
    with log.open("w") as file, contextlib.redirect_stdout(file):
        try:
            job.main(given)
        except SystemExit as ended:
            return int(ended.code or 0)
    return 0


def _forget(root: Path, step: int) -> None:
    """As if the training had been interrupted there: what it saved later, and made, is gone."""
    shutil.rmtree(root / "model")
    for folder in root.glob("checkpoints/*"):
        for saved in marker.steps(folder):
            if saved > step:
                shutil.rmtree(marker.folder_of(folder, saved))


def read(path: Path) -> list[Lines] | None:
    """What an earlier start of the benchmark has left of a training."""
    return json.loads(path.read_text()) if path.exists() else None


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
        write_all(Path(scratch) / "data")
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
        events = judged(case, _lines(case, scratch, place, fault.rank))
        first = next((event for event in events if event.rule == fault.rule), None)
        others = sorted({event.rule for event in events} - {fault.rule})
        found.append({"rule": fault.rule, "fault": fault.what, "fired": first is not None,
                      "step": first and first.step, "line": first and first.line,
                      "others": others})  # fmt: skip
    rows = []
    for one in found:
        value = one["line"].split("=")[2].split()[0] if one["line"] else ""
        step = one["step"] if one["fired"] else "[red]never[/]"
        rows.append((one["rule"], one["fault"], step, value, ", ".join(one["others"])))
    columns = ("rule", "seeded fault", "fires at step", "value", "which fire, too")
    show_table(columns, rows, "", 150)
    return found


def healthy(chosen: list[Case], scratch: Path, place: Path) -> dict[str, Any]:
    """How often each rule speaks of them; it should not."""
    told, lines = [], 0
    lower = Counter[bool | None]()
    for case in track(chosen, "healthy", transient=True):
        processes = _lines(case, scratch, place)
        lines += sum(map(len, processes))
        if not case.tuned:  # a base has learned what there is
            lower[learned(processes)] += 1
        told += [(case.name, event) for event in judged(case, processes)]
    spoke = Counter(event.rule for _, event in told)
    columns = ("rule", f"spoke in {len(chosen)} healthy trainings, {lines} lines")
    show_table(columns, ((rule, spoke[rule]) for rule in RULES))
    for name, event in told:
        print(name, event.line)
    print(
        f"held-out loss of the {lower.total()} from fresh weights: {lower[True]} end below "
        f"their first, {lower[False]} do not, {lower[None]} were looked at once"
    )
    false = sorted({name for name, _ in told})
    return {"trainings": len(chosen), "lines": lines, "spoke": dict(spoke), "false": false,
            "learned": lower[True], "not_learned": lower[False]}  # fmt: skip


def _lines(case: Case, scratch: Path, place: Path, rank: Any = run_rank) -> list[Lines]:
    path = place / f"{case.name}.json"
    found = read(path)
    if found is None:
        found = run(case, scratch / "data", scratch / "ml", rank)
        atomic_file.write(path, json.dumps(found))
    return found


if __name__ == "__main__":
    typer.run(main)
