"""Ranks of DDP part without waiting for each other's locks."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

from tests.training.worlds import free_port
from training.config import TrainConfig
from training.strategies import start_strategy

pytestmark = pytest.mark.long

GIVEN = {"strategy": "ddp", "max_steps": 1, "global_batch": 2, "micro_batch": 1,
         "learning_rate": 0.1, "warmup_steps": 1, "precision": "float32"}  # fmt: skip


class Workload:
    def blocks(self, model: nn.Module) -> list[nn.Module]:
        return []


def test_nothing_of_ddp_outlives_the_process_group(monkeypatch):
    """Torch's Reducer ends with Python's lock held; the last one to have the group waits so for
    threads of gloo that may want it: torch alone hung within 40 to 60 partings, twice.
    """
    port = free_port()
    for name, value in {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": "0",
                        "LOCAL_RANK": "0", "WORLD_SIZE": "1"}.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    with start_strategy(TrainConfig(**GIVEN), Workload()) as strategy:
        strategy.prepare(nn.Linear(2, 2))
        assert strategy.forward.reducer is not None
        dist.all_reduce(torch.zeros(1))
    assert not {"reducer", "logger"} & vars(strategy.forward).keys()
    assert not dist.is_initialized()
