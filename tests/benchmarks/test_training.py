"""The benchmark of training runs, at a size at which its figures mean nothing."""

from dataclasses import replace
from pathlib import Path

import pytest
from rich.progress import Progress

from benchmarks.training.compare import Compared, Run, compare, section
from benchmarks.training.entries import ENTRIES, ESSENTIAL, prepare
from benchmarks.training.setting import Setting

pytestmark = pytest.mark.long

TINY = Setting(layers=1, heads=2, dim=16, context_length=16, steps=4)
LOSSES = {1: 5.5, 2: 5.0}


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return prepare(TINY, tmp_path)


@pytest.mark.slow
def test_trainyard_and_the_hand_written_loop_train_the_same_model(setting, tmp_path: Path):
    chosen = [entry for entry in ENTRIES if entry.name in ("hand", "ours")]
    with Progress(disable=True) as bar:
        compared = compare(setting, 1, chosen, 1, tmp_path / "scratch", bar)
    assert not compared.failed
    [hand], [ours] = compared.runs["hand"], compared.runs["ours"]
    assert list(hand.losses) == list(ours.losses) == [1, 2, 4]
    assert hand.losses[4] != hand.losses[1]
    assert ours.losses == pytest.approx(hand.losses, rel=1e-5)
    for run in (hand, ours):
        assert 0 < run.step_cpu < run.first_cpu
        assert 50e6 < run.training_bytes <= run.peak_bytes


@pytest.mark.slow
def test_a_contender_that_ends_with_an_error_is_reported(setting, tmp_path: Path):
    broken = replace(ENTRIES[0], name="broken", arguments=(), module="nowhere")
    with Progress(disable=True) as bar:
        compared = compare(setting, 1, [broken], 2, tmp_path / "scratch", bar)
    assert "nowhere" in compared.failed["broken"] and not compared.runs


@pytest.mark.parametrize(("off", "failed"), [(0.5e-4, False), (2e-4, True)])
def test_no_speed_of_a_contender_that_computes_something_else(monkeypatch, tmp_path, off, failed):
    """Its second run differs at one step."""
    entry = next(entry for entry in ENTRIES if entry.name == "accelerate")
    monkeypatch.setattr("benchmarks.training.entries.Entry.missing", lambda self: None)
    others = {1: 5.5, 2: 5.0 * (1 + off)}
    answers = iter([LOSSES, LOSSES, others, LOSSES])  # the second round begins with it
    monkeypatch.setattr(
        "benchmarks.training.compare.run", lambda *arguments: Run(losses=next(answers))
    )
    with Progress(disable=True) as bar:
        compared = compare(TINY, 1, [ENTRIES[0], entry], 2, tmp_path, bar)
    assert ("accelerate" in compared.failed) == failed
    assert ("accelerate" not in compared.runs) == failed


def test_a_ratio_may_be_above_one_by_the_noise_of_the_hand_written_loop_against_itself():
    runs = {name: [run(1.0), run(2.0), run(1.0)] for name in ESSENTIAL | {"accelerate"}}
    runs["hand_again"] = [run(1.0), run(2.2), run(0.95)]
    runs["ours"] = [run(1.04), run(2.08), run(1.04)]
    targets = {target.what: target for target in section(Compared(1, runs=runs)).targets}
    speed = targets["CPU a step, 1 process: float32 ÷ by hand"]
    assert speed.demanded == pytest.approx(1.05) and speed.met
    framework = targets["CPU a step, 1 process: default ÷ Accelerate's"]
    assert framework.demanded == 0.55 and not framework.met


def run(cpu: float) -> Run:
    return Run(
        losses=LOSSES,
        first_seconds=1,
        first_cpu=1,
        step_cpu=cpu,
        step_seconds=1,
        training_bytes=1,
        peak_bytes=1,
    )
