"""Ranks of DDP part without waiting for each other's locks."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

from tests.training import worlds
from tests.training.trainings import config
from training.strategies import start_strategy

pytestmark = pytest.mark.long


class Workload:
    def blocks(self, model: nn.Module) -> list[nn.Module]:
        return []


def test_nothing_of_ddp_outlives_the_process_group(monkeypatch):
    """Torch's Reducer ends with Python's lock held; the last one to have the group waits so for
    threads of gloo that may want it: torch alone hung within 40 to 60 partings, twice.
    """
    for name, value in worlds.variables(worlds.free_port()).items():
        monkeypatch.setenv(name, value)
    with start_strategy(config(precision="float32"), Workload()) as strategy:
        strategy.prepare(nn.Linear(2, 2))
        assert strategy.forward.reducer is not None
        dist.all_reduce(torch.zeros(1))
    assert not {"reducer", "logger"} & vars(strategy.forward).keys()
    assert not dist.is_initialized()
