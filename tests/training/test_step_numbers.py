"""A step whose numbers are not finite changes nothing, and is named when the host reads them."""

import copy
import math

import pytest
import torch
from torch import nn

from tests.training.test_loop import poison
from tests.training.trainings import config
from training.microbatches import MicroBatches
from training.optimizers import Average, build_optimizer, iter_moments, take_step
from training.step_numbers import DeviceStepMetrics, Step
from training.strategies.ranks import Ranks
from trainyard.common.errors import TrainingError

ALONE = Ranks(0, 0, 1, torch.device("cpu"))


def scalar(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64)


def add(numbers: DeviceStepMetrics, number: int, loss=6.0, units=3.0, norm=1.0) -> bool:
    return bool(numbers.add(number, *map(scalar, (loss, units, norm, loss))))


def test_the_last_steps_numbers_are_read_and_all_units():
    numbers = DeviceStepMetrics(ALONE.device)
    assert add(numbers, 1) and add(numbers, 2, loss=8.0)
    read = numbers.read(ALONE, [7.0])
    assert (read.number, read.loss, read.units, read.units_since) == (2, 8.0, 3.0, 6.0)
    assert read.by_rank == ((7.0,),) and read.rank_losses == (8.0,)
    read.check(16)
    assert numbers.read(ALONE).units_since == 0


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"loss": math.nan}, "loss is nan at step 2 on rank 0, .* positions 16 to 31"),
        ({"loss": math.inf, "norm": math.nan}, "loss is inf at step 2 on rank 0"),
        ({"norm": math.inf}, "gradient norm is inf at step 2"),
        ({"units": 0.0, "norm": math.nan}, "step 2: the 16 samples .* hold no unit that counts"),
    ],
)
def test_the_first_wrong_step_is_the_one_that_is_told(wrong, expected):
    numbers = DeviceStepMetrics(ALONE.device)
    assert add(numbers, 1) and not add(numbers, 2, **wrong)
    assert not add(numbers, 3)  # what came after it does not count either
    assert not add(numbers, 4, loss=math.nan)
    with pytest.raises(TrainingError, match=expected):
        numbers.read(ALONE).check(16)


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ([0, 0, math.nan, 0], "on rank 2, in the samples at positions 24 to 31 of the order"),
        ([math.nan, 0, 0, math.inf], "on rank 0, 3, in the samples at positions 16 to 31 of"),
        ([0, 0, 0, 0], "on rank .the sum., in the samples at positions 16 to 31 of the order"),
    ],
)
def test_the_samples_are_those_of_the_ranks_that_are_named(wrong, expected):
    """Ranks 0 and 1 take one half of the global batch, 2 and 3 the other (tensor parallel)."""
    given = {"units": 1.0, "norm": 1.0, "scale": 0.0, "left_out": False, "skipped_steps": 0}
    step = Step(number=2, loss=math.nan, rank_losses=tuple(wrong), shares=(0, 0, 1, 1), by_rank=(),
                units_since=1.0, **given)  # fmt: skip
    with pytest.raises(TrainingError, match=expected):
        step.check(16)


@pytest.mark.parametrize("kind", ["adamw", "lamb"])
@pytest.mark.parametrize("taken", [0, 2])
def test_a_step_that_is_not_finite_leaves_everything_as_it_was(kind, taken):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    optimizer = build_optimizer(config(optimizer=kind, weight_decay=0.5), model)
    average, micro = Average(model, 0.5), MicroBatches(model, 0, 8)
    dict(iter_moments(optimizer))

    def train(number: int, finite: bool) -> None:
        micro.begin_step(8 * number, ALONE.device)
        micro.begin(0)
        inputs = torch.randn(8, 4) if finite else torch.full((8, 4), math.nan)
        model(inputs).square().sum().backward()
        counts = torch.tensor(finite)
        micro.end([], counts)
        take_step(optimizer, counts)
        optimizer.zero_grad()
        average.update(number, counts)

    def state() -> dict[str, torch.Tensor]:
        names = {p: n for n, p in model.named_parameters()}
        found = {
            f"{names[p]}.{k}": t for p, kinds in iter_moments(optimizer) for k, t in kinds.items()
        }
        kept = model.state_dict() | found | {f"average.{n}": t for n, t in average.tensors.items()}
        return copy.deepcopy(kept)

    for number in range(taken):
        train(number, finite=True)
    before = state()
    train(taken, finite=False)
    assert all(torch.equal(tensor, before[name]) for name, tensor in state().items())
    train(taken, finite=True)
    assert not torch.equal(state()["0.weight"], before["0.weight"])


@pytest.mark.parametrize(
    ("settings", "saved"),
    [
        ({"log_interval": 50, "checkpoint_interval": 4}, [4]),
        ({"log_interval": 50, "checkpoint_interval": 50, "validation_interval": 9}, []),
        ({"log_interval": 50, "checkpoint_interval": 2, "optimizer": "lamb"}, [2, 4, 6]),
    ],
)
def test_a_wrong_step_is_named_late_and_never_saved(root, train, settings, saved):
    poison(root, lambda place: place // 8 == 6)
    with pytest.raises(SystemExit):
        train(root, **({"max_steps": 30, "validation_interval": 50, "micro_batch": 4} | settings))
    message = (root / "output/failure").read_text()
    assert message.startswith("loss is nan at step 7 on rank 0, in the samples at")
    assert "nothing is saved: lower learning_rate" in message
    found = sorted(int(p.parent.name[5:]) for p in root.glob("checkpoints/*/*/complete.json"))
    assert found == saved and not (root / "model").exists()
