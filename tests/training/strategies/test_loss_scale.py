"""float16's gradients are scaled as by torch's GradScaler, and every rank skips the same steps."""

import math
import shutil

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from tests.training import worlds
from tests.training.strategies.cases import SETTINGS, container, write_data
from tests.training.test_loop import same, weights
from tests.training.test_step_numbers import ALONE, scalar
from tests.training.trainings import history, losses
from training.step_numbers import DeviceStepMetrics
from training.strategies import precision
from training.strategies.precision import LossScale
from trainyard.common.errors import TrainingError

pytestmark = pytest.mark.long

LARGE = 2.0**22
"""Initial scale at which the first steps of the trainings here overflow."""
FIRST = {"precision": "float16", "max_steps": 16, "warmup_steps": 2, "checkpoint_interval": 8}
SHORT = SETTINGS | FIRST | {"validation_interval": 8}


def test_the_scale_is_that_of_gradscaler(monkeypatch):
    usual = torch.amp.GradScaler("cpu")
    assert usual._init_scale == precision.INITIAL
    assert usual.get_growth_interval() == precision.INTERVAL
    theirs, ours = torch.amp.GradScaler("cpu", growth_interval=20), LossScale(ALONE.device)
    monkeypatch.setattr(precision, "INTERVAL", 20)
    weight = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    theirs.scale(weight)  # makes its tensors
    bad = {0, 1, 5, 27, 29, 30}
    for step in range(80):
        weight.grad = torch.tensor([math.inf if step in bad else 1.0])
        theirs.step(optimizer)
        theirs.update()
        ours.update(ours.has_overflow(weight.grad.norm()))
        assert float(ours.scale) == theirs.get_scale(), step
    assert ours.tensors["skipped_steps"] == len(bad)
    assert ours.tensors["good_steps"] == theirs.state_dict()["_growth_tracker"]


def test_a_gradient_that_overflows_leaves_out_its_step_alone():
    numbers, scaling = DeviceStepMetrics(ALONE.device), LossScale(ALONE.device)

    def add(number: int, loss: float = 6.0, norm: float = 1.0) -> bool:
        given = (scalar(loss), scalar(3.0), scalar(norm), scalar(loss))
        return bool(numbers.add(number, *given, scaling))

    assert add(1) and not add(2, norm=math.inf)
    read = numbers.read(ALONE)
    read.check(16)
    assert (read.number, read.left_out, read.skipped_steps, read.scale) == (2, True, 1, 2.0**16)
    assert add(3)
    read = numbers.read(ALONE)
    assert (read.left_out, read.skipped_steps, read.scale) == (False, 1, 2.0**15)
    assert not any(add(4 + one, norm=math.nan) for one in range(15))
    numbers.read(ALONE).check(16)
    assert scaling.scale == 1 and add(19)  # what overflowed only as scaled
    assert not add(20, norm=math.inf) and not add(21)
    expected = "gradient norm is inf at step 20 .* largest float16 number is 65504 .*scaled by 1\\)"
    with pytest.raises(TrainingError, match=expected):
        numbers.read(ALONE).check(16)


def test_a_loss_that_is_not_finite_is_so_by_itself():
    """Such a loss ends the training at any scale: losses are summed unscaled."""
    numbers, scaling = DeviceStepMetrics(ALONE.device), LossScale(ALONE.device)
    given = (scalar(math.nan), scalar(3.0), scalar(math.nan), scalar(math.nan))
    assert not numbers.add(1, *given, scaling)
    with pytest.raises(TrainingError, match="loss is nan at step 1 on rank 0, in the samples"):
        numbers.read(ALONE).check(16)


def test_a_training_goes_on_with_the_scale_that_it_had(root, train, monkeypatch):
    """Bit for bit, from a checkpoint of steps that changed the scale; skips leave no trace."""
    monkeypatch.setattr(precision, "INITIAL", LARGE)
    names = ("loss", "loss_scale", "skipped_steps")
    train(root, **FIRST)
    whole, trained = [losses(root, name) for name in names], weights(root)
    [middle] = root.glob("checkpoints/*/step-00000008")
    [shard] = middle.glob("*.safetensors")
    saved = load_file(shard)
    assert 1 < saved["loss_scale.scale"] <= LARGE / 2
    skipped = int(saved["loss_scale.skipped_steps"])
    assert saved["optimizer.out.weight.step"] == 8 - skipped < 8
    [newest] = root.glob("checkpoints/*/step-00000016")
    next(newest.glob("*.safetensors")).write_bytes(b"torn")
    shutil.rmtree(root / "model")
    monkeypatch.setattr(precision, "INITIAL", 1.0)
    train(root, **FIRST)
    assert [losses(root, name) for name in names] == whole and same(weights(root), trained)

    lines = [line for line in history(root) if "loss" in line]
    assert lines[0]["loss_scale"] == LARGE and lines[-1]["skipped_steps"] == skipped
    assert ["grad_norm" in line for line in lines] == [False] * skipped + [True] * (16 - skipped)
    assert all(math.isfinite(value) for line in lines for value in line.values())
    assert not any(name.startswith("watch.") for line in history(root) for name in line)


def run_watched(given, environment, root, rank):
    precision.INITIAL, update = LARGE, LossScale.update
    told = root / f"skipped-{rank}"

    def note_overflow(self, overflow):
        with told.open("a") as file:
            print(bool(overflow), file=file)
        update(self, overflow)

    LossScale.update = note_overflow
    worlds.run_rank(given, environment, root, rank)


@pytest.mark.sweep
@pytest.mark.slow
@pytest.mark.parametrize(
    "differs",
    [
        *({"strategy": "ddp"}, {"strategy": "fsdp"}),
        *({f"{kind}_parallel": 2} for kind in ("tensor", "context", "pipeline")),
    ],
    ids=str,
)
def test_all_ranks_leave_out_the_same_steps(tmp_path, differs):
    write_data(tmp_path / "data")
    root = container(tmp_path / "data", tmp_path / "root")
    started = worlds.start(root, 2, target=run_watched, **(SHORT | differs))
    assert worlds.finish(started) == [0, 0], (root / "rank-0.log").read_text()
    mine, other = ((root / f"skipped-{rank}").read_text().split() for rank in range(2))
    assert mine == other and {*mine} == {"True", "False"} and len(mine) == 16
    assert losses(root, "skipped_steps")[16] == mine.count("True")
    assert losses(root)[16] < losses(root)[1]
