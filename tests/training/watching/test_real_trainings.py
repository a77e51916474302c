"""Rules judge real trainings: each names its seeded fault, and none speaks of healthy ones.

Healthy trainings differ in model, data, seed, learning rate, batch, optimizer, schedule, precision,
ranks, and in whether they are resumed.
"""

import contextlib
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from steps.train import job
from tests.training import worlds
from tests.training.trainings import TOYS, arguments
from tests.training.watching.faults import FAULTS, Rank
from tests.training.watching.healthy import Case, case, workload, write_all
from tests.training.worlds import run_rank
from training.checkpoint import marker
from training.watching.__main__ import parse_metrics
from training.watching.watch_rule import Plan
from training.watching.watcher import Event, Watcher, parse_watching

pytestmark = [pytest.mark.sweep, pytest.mark.slow, pytest.mark.timeout(1800)]

Lines = list[dict[str, float]]


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_all(folder)
    return folder


@pytest.mark.parametrize("number", range(len(FAULTS)))
def test_a_rule_names_its_seeded_fault(number, data, tmp_path):
    fault = FAULTS[number]
    seeded = fault.case(number)
    found = collect_events(seeded, run(seeded, data, tmp_path / "ml", fault.rank))
    said = {event.rule for event in found}
    assert fault.rule in said


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_no_rule_speaks_of_twenty_healthy_trainings(first, data, tmp_path):
    for healthy in map(case, range(first, first + 20)):
        assert collect_events(healthy, run(healthy, data, tmp_path / "ml")) == [], healthy.name


def run(case: Case, data: Path, root: Path, rank: Rank = run_rank) -> list[Lines]:
    """The metric lines of each process of the training: of two, where it is resumed."""
    shutil.rmtree(root, ignore_errors=True)
    (root / "input/data").mkdir(parents=True)
    for split in ("train", "validation"):
        (root / "input/data" / split).symlink_to(data / case.data / split)
    found = [_once(case, root, rank)]
    if case.resumed:
        _forget(root, case.settings["max_steps"] // 2)
        found.append(_once(case, root, rank))
    shutil.rmtree(root)
    return found


def collect_events(case: Case, processes: list[Lines]) -> list[Event]:
    """What the rules say, by their thresholds of now, as in each of the processes."""
    settings, said = parse_watching(case.settings.get("watch", "")), []
    remembered: Lines = []
    for lines in processes:
        begun = int(lines[0]["step"]) - 1 if remembered else 0
        plan = Plan(case.settings["max_steps"], case.settings["warmup_steps"], begun)
        watcher = Watcher(settings, plan)
        watcher.begin([line for line in remembered if line["step"] <= begun])
        said += [event for line in lines for event in watcher.add(line)]
        remembered = lines
    return said


def _once(case: Case, root: Path, rank: Rank) -> Lines:
    log = root / "rank-0.log"
    log.unlink(missing_ok=True)
    settings: dict[str, Any] = workload(case.data) | case.settings
    if case.world == 1 and rank is run_rank:
        codes = [_run_job_here(log, arguments(root, settings))]
    else:
        codes = worlds.finish(worlds.start(root, case.world, target=rank, **settings), 600)
    text = log.read_text()
    lines = [line for line in map(parse_metrics, text.splitlines()) if "step" in line]
    if not lines or (any(codes) and rank is run_rank):
        raise RuntimeError(f"{case.name}: ranks ended with {codes}: {text[-3000:]}")
    return lines


def _run_job_here(log: Path, given: list[str]) -> int:
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
        for saved in marker.list_steps(folder):
            if saved > step:
                shutil.rmtree(marker.build_folder_path(folder, saved))
