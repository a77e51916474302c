"""Optimizers over whole and sharded weights, and the average of the weights."""

import copy

import pytest
import torch
from torch import nn

from steps.train import job
from tests.training.strategies.cases import SETTINGS, container, write_data
from tests.training.trainings import arguments, compute_metrics, config, losses
from training.data.dataset import Dataset
from training.export.artifact import load_artifact
from training.optimizers import Average, build_optimizer, iter_moments

pytestmark = pytest.mark.long

FINITE = torch.tensor(True)

SHORT = SETTINGS | {"precision": "float64", "max_steps": 6}
SHORT |= {"validation_interval": 3, "checkpoint_interval": 3}


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3)).double()


def take(trained: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    inputs = torch.arange(20, dtype=torch.float64).reshape(5, 4).sin()
    for _ in range(steps):
        optimizer.zero_grad()
        trained(inputs).square().sum().backward()
        optimizer.step()


def test_lamb_is_the_algorithm_of_the_paper():
    """Algorithm 2 of You et al. 2020 in numpy, two steps of one matrix."""
    weight = nn.Parameter(torch.tensor([[1.0, -2.0], [0.5, 3.0]], dtype=torch.float64))
    holder = nn.Module()
    holder.weight = weight
    settings = config(optimizer="lamb", weight_decay=0.1, beta1=0.9, beta2=0.99)
    optimizer = build_optimizer(settings, holder)
    x, m, v = weight.detach().numpy().copy(), 0.0, 0.0
    for step in (1, 2):
        weight.grad = weight.detach().cos() * step
        g = weight.grad.numpy().copy()
        m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
        ratio = (m / (1 - 0.9**step)) / ((v / (1 - 0.99**step)) ** 0.5 + 1e-6)
        update = ratio + 0.1 * x
        x = x - 0.01 * (x**2).sum() ** 0.5 / (update**2).sum() ** 0.5 * update
        optimizer.step()
        assert weight.detach().numpy() == pytest.approx(x, rel=1e-12)


def test_norms_and_biases_are_not_decayed():
    trained = model()
    before = copy.deepcopy(trained.state_dict())
    optimizer = build_optimizer(config(weight_decay=1.0), trained)
    for parameter in trained.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    changed = {n for n, t in trained.state_dict().items() if not torch.equal(t, before[n])}
    assert changed == {"0.weight"}


@pytest.mark.parametrize("kind", ["adamw", "lamb"])
def test_making_the_state_changes_nothing(kind):
    one, other = model(), model()
    first, second = (build_optimizer(config(optimizer=kind), each) for each in (one, other))
    for _, state in iter_moments(second):
        assert all(not tensor.any() for tensor in state.values())
    assert all(parameter.grad is None for parameter in other.parameters())
    for trained, optimizer in ((one, first), (other, second)):
        take(trained, optimizer, 3)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_the_average_of_the_weights():
    trained = model()
    average = Average(trained, 0.75)
    expected = trained[0].weight.detach().clone()
    optimizer = build_optimizer(config(), trained)
    for decay, step in ((0.1, 0), (2 / 11, 1), (0.75, 26), (0.75, 1000)):  # 27 / 36 = 0.75
        take(trained, optimizer, 1)
        average.update(step, FINITE)
        expected = decay * expected + (1 - decay) * trained[0].weight.detach()
    last = trained[0].weight.detach().clone()
    average.swap()
    assert torch.allclose(trained[0].weight, expected, rtol=1e-12)
    average.swap()
    assert torch.equal(trained[0].weight, last)


@pytest.mark.parametrize("kind", ["adamw", "lamb"])
def test_weights_without_a_gradient_have_a_state_too_and_frozen_ones_none(kind):
    """A checkpoint therefore holds the same names, whichever weights had a gradient so far."""
    trained = nn.ModuleDict({"used": nn.Linear(4, 2), "unused": nn.Linear(4, 2)}).double()
    trained["used"].bias.requires_grad_(False)
    optimizer = build_optimizer(config(optimizer=kind, weight_decay=0.5), trained)
    before = copy.deepcopy(trained["unused"].state_dict())
    take(trained["used"], optimizer, 2)
    found = dict(iter_moments(optimizer))
    named = {name for name, parameter in trained.named_parameters() if parameter in found}
    assert named == {"used.weight", "unused.weight", "unused.bias"}
    assert [float(found[trained[name].weight]["step"]) for name in ("used", "unused")] == [2, 0]
    assert all({*state} == {"step", "exp_avg", "exp_avg_sq"} for state in found.values())
    assert all(torch.equal(before[name], t) for name, t in trained["unused"].state_dict().items())


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_data(folder)
    return folder


def test_the_average_is_what_is_validated_and_handed_on_and_resumed(data, tmp_path, caplog):
    caplog.set_level("INFO", logger="training")
    root = container(data, tmp_path)
    job.main(arguments(root, SHORT | {"strategy": "single", "ema_decay": 0.5}))
    workload, found, _ = load_artifact(root / "model")
    validation = Dataset(root / "input/data/validation")
    expected = compute_metrics(workload, found, validation)["loss"]["value"]
    assert losses(root, "validation_loss")[6] == pytest.approx(expected, rel=1e-5)

    whole = losses(root, "validation_loss")[6]
    for newest in root.glob("checkpoints/*/step-00000006/complete.json"):
        newest.unlink()
    job.main(arguments(root, SHORT | {"strategy": "single", "ema_decay": 0.5}))
    assert "resumed from the checkpoint of step 3" in caplog.text
    assert losses(root, "validation_loss")[6] == whole
