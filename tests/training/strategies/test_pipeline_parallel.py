"""Each of torch's pipeline schedules against one process, and the data sent between the stages."""

import json
import os
from pathlib import Path
from unittest import mock

import pytest
import torch
import torch.distributed as dist

from tests.training import worlds
from tests.training.torches import trains_here
from training.config import TrainConfig
from training.strategies.mesh import Mesh
from training.strategies.pipeline_parallel import (
    HEADER,
    describe_tensors,
    make_meta_tensors,
    sendable,
)
from training.strategies.ranks import Ranks
from training.strategies.single import Strategy
from training.strategy_table import SCHEDULES
from training.weights.initial.build_model import build_on_meta
from training.workloads import load
from trainyard.common.errors import TrainingError

pytestmark = pytest.mark.long

EXACT = 1e-13  # relative, in float64
BATCH = 8
MODEL = {"context_length": 16, "layers": 8, "heads": 2, "dim": 16}
BASE = {
    **{"max_steps": 4, "global_batch": BATCH, "micro_batch": 1, "learning_rate": 0.01},
    "precision": "float64",
}
TWO = {"pipeline_parallel": 2}
CASES = {
    **{name: TWO | {"pipeline_schedule": name, "strategy": "fsdp"} for name in SCHEDULES},
    "tensor": TWO | {"pipeline_schedule": "interleaved_1f1b", "tensor_parallel": 2},
    "four": {"pipeline_parallel": 4, "pipeline_schedule": "looped_bfs"},
    "one stage each": {
        **{"pipeline_parallel": 4, "pipeline_schedule": "interleaved_1f1b"},
        "pipeline_stages_per_rank": 1,
    },
    "recomputed": TWO | {"pipeline_schedule": "interleaved_1f1b", "activation_checkpointing": True},
}
"""Name → settings; those that ``refuse_torch`` accepts for this torch must train (``allowed``)."""
UNTIED = ("gpipe", "looped_bfs")


def trained(strategy: Strategy, workload) -> list[float]:
    """Return losses and norms of two steps, then a validation loss."""
    strategy.prepare(build_on_meta(workload.model, seed=0))
    tokens = torch.randint(0, 200, (BATCH, 17), generator=torch.Generator().manual_seed(1))
    micro, share = strategy.config.micro_batch, BATCH // strategy.data_world
    mine = tokens.int()[strategy.data_rank * share :][:share]
    found: list[float] = []
    for step in range(2):
        batches = [{"tokens": part} for part in mine.split(micro)]
        units = workload.units({"tokens": tokens}).double()
        strategy.begin(step)
        loss = strategy.backward(batches, units)
        strategy.micro.end(strategy.data_groups(), torch.ones((), dtype=torch.bool))
        found += [float(strategy.sum(loss.clone())), float(strategy.clip())]
        strategy.update(0.01, torch.ones((), dtype=torch.bool))
    return [*found, float(strategy.sum(strategy.validate({"tokens": mine}).detach().double()))]


def allowed() -> dict[str, dict]:
    """Return each case that the job would start under this torch."""
    return {name: case for name, case in CASES.items() if trains_here(BASE | case)}


def no_pickles(*_: object) -> None:
    raise AssertionError("a pickle between ranks")


def compare(given: list[str], environment: dict[str, str], root: Path, rank: int) -> None:
    """Run one rank; write how far each case is from one process into ``off.json``."""
    os.environ.update(environment)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    cpu, off = torch.device("cpu"), {}
    for tied in (True, False):
        workload = load("language_model", MODEL | {"tie_embeddings": tied})
        alone = Strategy(TrainConfig(**BASE, strategy="single"), workload, Ranks(0, 0, 1, cpu))
        expected = trained(alone, workload)
        for name, case in allowed().items():
            if tied == (name in UNTIED):
                continue
            strategy = Mesh(TrainConfig(**(BASE | case)), workload, Ranks(rank, rank, 4, cpu))
            with mock.patch("torch.distributed.distributed_c10d._object_to_tensor", no_pickles):
                mine = trained(strategy, workload)
            pairs = zip(mine, expected, strict=True)
            off[name] = max(abs(a / b - 1) for a, b in pairs)
    if rank == 0:
        (root / "off.json").write_text(json.dumps(off))
    dist.barrier()


@pytest.mark.sweep
def test_every_schedule_gives_the_losses_of_one_process_and_sends_no_pickles(tmp_path):
    codes = worlds.finish(worlds.start(tmp_path, 4, target=compare))
    assert codes == [0] * 4
    off = json.loads((tmp_path / "off.json").read_text())
    assert off.keys() == allowed().keys()
    assert {name: one for name, one in off.items() if one > EXACT} == {}


def test_what_goes_between_stages_is_told_in_numbers():
    sent = (torch.zeros(2, 3), torch.zeros(4, dtype=torch.int64))
    numbers = describe_tensors(sent, requires_grad=True)
    assert len(numbers) == HEADER and all(isinstance(one, int) for one in numbers)
    for one, other in zip(sent, make_meta_tensors(numbers), strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype) and other.is_meta
    assert [one.requires_grad for one in make_meta_tensors(numbers)] == [True, False]
    assert not make_meta_tensors(describe_tensors(sent, requires_grad=False))[0].requires_grad
    with pytest.raises(TrainingError, match="gives str: let Workload.stage"):
        describe_tensors(["text"], requires_grad=True)
    with pytest.raises(TrainingError, match="16 tensors, whose shapes take 65 numbers; 64 fit"):
        describe_tensors([torch.zeros(1, 1)] * 16, requires_grad=True)
    assert sendable(torch.zeros(2, 3).T).is_contiguous()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"pipeline_parallel": 1, "pipeline_schedule": "gpipe"}, "pipeline_parallel is 1"),
        ({"pipeline_schedule": "1f1b", "pipeline_stages_per_rank": 2}, "1f1b has 1 on a rank"),
    ],
)
def test_what_a_schedule_cannot_do_is_refused(settings, expected):
    with pytest.raises(ValueError, match=expected):
        TrainConfig(**(BASE | TWO | settings))


@pytest.mark.parametrize(
    ("settings", "count", "expected"),
    [
        ({"pipeline_parallel": 4}, 2, "4 ranks need as many micro-batches"),
        (
            {"pipeline_parallel": 4, "pipeline_schedule": "interleaved_1f1b"},
            13,
            "13 / 4 = 3 rounds, which are not of equally many; 12 or 16 would do",
        ),
    ],
)
def test_micro_batches_that_a_schedule_cannot_share_are_refused(settings, count, expected):
    config = TrainConfig(**(BASE | TWO | settings | {"global_batch": count}))
    with pytest.raises(ValueError, match=expected):
        config.micro_batches(config.pipeline_parallel)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"pipeline_parallel": 1}, 1),
        ({}, 2),
        ({"pipeline_schedule": "interleaved_1f1b"}, 4),
        ({"pipeline_schedule": "interleaved_1f1b", "pipeline_stages_per_rank": 3}, 6),
    ],
)
def test_a_schedule_has_its_usual_number_of_stages_unless_the_recipe_sets_it(settings, expected):
    assert TrainConfig(**(BASE | TWO | settings)).stages == expected
