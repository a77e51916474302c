"""Runs a training and reads what it printed; has the rules judge it."""

import contextlib
import json
import shutil
import sys
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from benchmarks.watching.data import workload
from benchmarks.watching.faults import Rank
from benchmarks.watching.healthy import Case, base
from steps.train import job
from tests.training import worlds
from tests.training.trainings import TOYS, arguments
from tests.training.worlds import run_rank
from training.checkpoint import marker
from training.watching.__main__ import parsed
from training.watching.watch_rule import Plan
from training.watching.watcher import Event, Watcher, read_watching

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
            optimizer=case.settings.get("optimizer", "adamw"),
            grad_clip=case.settings.get("grad_clip", 1.0),
            fine_tuning=case.tuned,
        )
        watcher = Watcher(settings, plan)
        watcher.begin([line for line in remembered if line["step"] <= begun])
        said += [event for line in lines for event in watcher.add(line)]
        remembered = lines
    return said


def learned(processes: list[Lines]) -> bool | None:
    """Whether the loss of held-out samples, which no rule but ``overfitting`` looks at, was lower
    at the last step that has it than at the first; None where fewer than two have it.
    """
    every = {line["step"]: line["validation_loss"] for lines in processes for line in lines
             if "validation_loss" in line}  # fmt: skip
    return every[max(every)] < every[min(every)] if len(every) > 1 else None


def counted(events: list[Event]) -> dict[str, int]:
    """Rule → how often it spoke."""
    return dict(Counter(event.rule for event in events))


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
    lines = [line for line in map(parsed, text.splitlines()) if "step" in line]
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
