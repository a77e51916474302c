"""The time of a step, part by part, with two real ranks of which one is slower."""

import json
import os
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from tests.training import worlds
from tests.training.trainings import config
from training.watching.clock import PARTS, Clock

pytestmark = pytest.mark.long

SLOW = 1  # seconds: more than a busy machine lets a rank wait


def test_time_belongs_to_the_part_that_ends_with_the_mark(monkeypatch):
    now = [7.0]
    monkeypatch.setattr(
        "training.watching.clock.time", SimpleNamespace(perf_counter=lambda: now[0])
    )
    clock = Clock(torch.device("cpu"))
    for _ in range(2):
        now[0] += 0.25
        clock.mark("data")
    now[0] += 0.5
    clock.skip()
    clock.mark("optimizer")
    first, second = clock.read(), clock.read()
    assert tuple(first) == PARTS
    assert first == dict.fromkeys(PARTS, 0.0) | {"data": 0.5}
    assert set(second.values()) == {0.0}


class Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs):
        return inputs.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(SLOW * int(os.environ["RANK"]))
        return gradient


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, inputs):
        return self.second(Slow.apply(self.first(inputs)))


class Workload:
    def inputs(self, batch):
        return (batch["x"],)

    def loss(self, outputs, batch):
        return outputs.sum()

    def blocks(self, model):
        return [model.first, model.second]


def time_a_step(strategy: str, given: list, environment: dict, root: Path, rank: int) -> None:
    """Run one rank's backward pass over two micro-batches; write its clock's reading."""
    from training.strategies import start_strategy

    torch.set_num_threads(1)
    os.environ.update(environment)
    settings = config(strategy=strategy, micro_batch=1, precision="float32")
    with start_strategy(settings, Workload()) as mine:
        mine.prepare(Model())
        mine.ranks.gather(None)
        mine.clock.skip()
        mine.clock.read()
        mine.begin(0)
        mine.backward([{"x": torch.ones(1, 4)}] * 2, torch.tensor(4.0))
        mine.clock.mark("forward_backward")
        (root / f"read-{rank}.json").write_text(json.dumps(mine.clock.read()))


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_waiting_for_the_slower_rank_is_communication_and_its_own_work_is_not(strategy, tmp_path):
    worlds.finish(worlds.start(tmp_path, 2, target=partial(time_a_step, strategy)))
    fast, slow = (json.loads((tmp_path / f"read-{rank}.json").read_text()) for rank in range(2))
    assert fast["communication"] > 0.9 * SLOW > slow["communication"]
    assert slow["forward_backward"] > 2 * SLOW
    if strategy == "ddp":  # with fsdp it also waits for the slow one's weights, in the forward pass
        assert fast["forward_backward"] < SLOW
