"""The time of a step, part by part, with two real ranks of which one is slower."""

import multiprocessing
import os
import time
from multiprocessing.connection import Connection
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from tests.training import worlds
from tests.training.worlds import PRELOADED, free_port
from training.config import TrainConfig
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
    """The identity, with a slow backward pass on rank 1."""

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


def _rank(rank: int, port: int, strategy: str, answer: Connection) -> None:
    from training.strategies import start_strategy

    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "GLOO_SOCKET_IFNAME": "lo"}
    given = {"strategy": strategy, "max_steps": 1, "global_batch": 4, "micro_batch": 1}
    config = TrainConfig(**given, learning_rate=0.1, precision="float32")
    with start_strategy(config, Workload()) as mine:
        mine.prepare(Model())
        mine.ranks.gather(None)
        mine.clock.skip()
        mine.clock.read()
        mine.begin(0)
        mine.backward([{"x": torch.ones(1, 4)}] * 2, torch.tensor(4.0))
        mine.clock.mark("forward_backward")
        answer.send(mine.clock.read())


def measured(strategy: str) -> list[dict[str, float]]:
    """Return both ranks' clock readings of a backward pass over two micro-batches."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    port, ends, processes = free_port(), [], []
    for rank in range(2):
        mine, theirs = context.Pipe()
        process = context.Process(target=_rank, args=(rank, port, strategy, theirs), daemon=True)
        process.start()
        ends.append(mine)
        processes.append(process)
    try:
        return [end.recv() if end.poll(worlds.SECONDS) else {} for end in ends]
    finally:
        for process in processes:
            process.kill()


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_waiting_for_the_slower_rank_is_communication_and_its_own_work_is_not(strategy):
    fast, slow = measured(strategy)
    assert fast["communication"] > 0.9 * SLOW > slow["communication"]
    assert slow["forward_backward"] > 2 * SLOW
    if strategy == "ddp":  # with fsdp it also waits for the slow one's weights, in the forward pass
        assert fast["forward_backward"] < SLOW
