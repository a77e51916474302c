"""The interruption harness: a few trainings survive it, and it would see a fault."""

import random
from pathlib import Path

import pytest

from benchmarks.interruptions import trial
from benchmarks.interruptions.__main__ import run_all_trials, summarize_trials
from benchmarks.interruptions.training import (
    INTERVAL,
    STEPS,
    Layout,
    Training,
    is_whole,
    write_data,
)
from benchmarks.interruptions.trial import TEARS, Resume, Trial

pytestmark = pytest.mark.long

LAYOUT = Layout("ddp", 2)


def test_what_may_be_lost():
    killed = Resume("SIGKILL of a rank", "", LAYOUT, LAYOUT, 11, newest_whole=8, resumed=8)
    assert (killed.lost, killed.allowed_loss) == (3, INTERVAL)
    killed.torn = "file cut off"
    assert killed.allowed_loss == 2 * INTERVAL
    writing = Resume("SIGKILL during a write", "", LAYOUT, LAYOUT, 13, 8, 8, unfinished=True)
    assert (writing.lost, writing.allowed_loss) == (5, INTERVAL + 1)
    assert Resume(trial.STOP, "", LAYOUT, LAYOUT, 11, 11).allowed_loss == 0


class Wrote:
    """A training that wrote this down."""

    def __init__(self, *starts: dict[int, float]) -> None:
        self.written, self.starts = starts, len(starts)

    def losses(self, start: int) -> dict[int, str]:
        return {step: loss.hex() for step, loss in self.written[start - 1].items()}


@pytest.mark.parametrize(
    ("starts", "bitwise", "fault"),
    [
        (({1: 2.0, 2: 1.5}, {2: 1.5, 3: 1.0}), True, ""),
        (({1: 2.0, 2: 1.5}, {2: 1.5, 3: 1.0 + 2**-52}), True, "step 3"),
        (({1: 2.0, 2: 1.5}, {2: 1.5, 3: 1.0 + 2**-52}), False, ""),
        (({1: 2.0, 2: 1.5}, {2: 1.5, 3: 1.0 + 2e-5}), False, "a loss differs by 2.0e-05"),
        (({1: 2.0}, {3: 1.0}), True, "no loss of steps [2]"),
    ],
)
def test_a_curve_that_differs_is_seen(starts, bitwise, fault):
    one = Trial(0, bitwise=bitwise)
    expected = {step: loss.hex() for step, loss in {1: 2.0, 2: 1.5, 3: 1.0}.items()}
    trial._compare_losses(one, Wrote(*starts), expected)
    assert fault in " ".join(one.faults) and bool(one.faults) == bool(fault)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_curve_is_the_undisturbed_one_after_a_handful_of_interruptions(tmp_path: Path):
    found = summarize_trials(run_all_trials(tmp_path, 3, [2], 0))
    assert found["runs with a fault"] == 0 and found["losses compared"] >= 3 * STEPS
    assert found["largest error of one layout"] == 0.0


@pytest.mark.slow
def test_more_than_two_ranks_go_on_bitwise(tmp_path: Path):
    """Fails where DDP orders its buckets anew. Then each way to tear a checkpoint is tried."""
    write_data(tmp_path / "data", 0)
    training, layout = Training(tmp_path / "data", tmp_path / "run"), Layout("ddp", 3)
    training.start(layout)
    assert training.wait_for_end() == [0, 0, 0]
    (training.list_saved_folders()[-1] / "complete.json").unlink()
    training.start(layout)
    assert (
        training.wait_for_end() == [0, 0, 0] and training.find_resumed_step(2) == STEPS - INTERVAL
    )
    first, second = training.read_losses(1), training.read_losses(2)
    assert second == {step: first[step] for step in range(STEPS - INTERVAL + 1, STEPS + 1)}
    for act in TEARS.values():
        whole = [folder for folder in training.list_saved_folders() if is_whole(folder)]
        if whole:
            act(next(whole[-1].glob("*.safetensors")), random.Random(0))
            assert not is_whole(whole[-1])
