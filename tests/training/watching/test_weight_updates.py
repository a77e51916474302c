"""The updates measured on the device are the real changes of the weights."""

import pytest
import torch
from torch import nn

from tests.training.trainings import SETTINGS
from training import optimizers
from training.config import TrainConfig
from training.watching import step_progress
from training.watching.step_progress import build_update_metrics, measure_updates


@pytest.mark.parametrize("optimizer", ["adamw", "lamb"])
def test_the_ratios_are_those_of_the_weights_before_and_after(optimizer):
    torch.manual_seed(0)
    config = TrainConfig(**SETTINGS | {"optimizer": optimizer, "weight_decay": 0.0})
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4), nn.Tanh(), nn.Linear(4, 4))
    built = optimizers.build_optimizer(config, model)
    for _ in range(4):
        matrices = [p for p in model.parameters() if p.dim() == 2]
        before = [p.detach().clone() for p in matrices]
        model(torch.randn(32, 8)).square().sum().backward()
        optimizers.take_step(built, torch.tensor(True))
        pairs = zip(matrices, before, strict=True)
        ratios = sorted(((p - b).norm() / p.norm()).item() for p, b in pairs)
        [usual] = measure_updates(built, torch.device("cpu")).tolist()
        assert usual == pytest.approx(ratios[1], rel=1e-2)
        built.zero_grad()


def test_where_there_is_nothing_to_measure_nothing_is_said():
    model = nn.LayerNorm(4)
    found = measure_updates(
        optimizers.build_optimizer(TrainConfig(**SETTINGS), model), torch.device("cpu")
    )
    assert build_update_metrics(found.tolist()) == {}


def test_ranks_that_hold_other_weights_are_put_together():
    assert build_update_metrics([1e-3, float("nan"), 3e-3]) == {"update_ratio": 2e-3}


@pytest.mark.parametrize("shape", [(3000, 40), (2, 10**5), (300, 7, 5, 5)])
def test_of_a_large_matrix_rows_are_as_good_as_all(shape: tuple[int, ...], monkeypatch):
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(shape))
    built = optimizers.build_optimizer(TrainConfig(**SETTINGS), nn.ParameterList([weight]))
    weight.grad = torch.randn(shape) * 1e-3
    optimizers.take_step(built, torch.tensor(True))
    some = measure_updates(built, torch.device("cpu"))
    monkeypatch.setattr(step_progress, "SAMPLED_ELEMENTS", weight.numel())
    torch.testing.assert_close(some, measure_updates(built, torch.device("cpu")), rtol=0.1, atol=0)


def test_of_a_large_vocabulary_words_that_occur_are_among_what_is_looked_at():
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(40_000, 32))
    built = optimizers.build_optimizer(TrainConfig(**SETTINGS), nn.ParameterList([weight]))
    weight.grad = torch.randn(weight.shape) * (torch.rand(len(weight), 1) < 0.03)
    optimizers.take_step(built, torch.tensor(True))
    [usual] = measure_updates(built, torch.device("cpu")).tolist()
    assert usual > 1e-4
