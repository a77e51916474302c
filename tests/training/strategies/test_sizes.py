"""Any number of samples, in any layout: no rank waits for one that does not come."""

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch

from steps.train import job
from tests.training import worlds
from tests.training.torches import trains_here
from tests.training.trainings import TOYS, arguments, losses, write_ragged
from training.checkpoint.checkpoints import Checkpoints
from training.config import TrainConfig
from training.data.dataset import Dataset
from training.data.shard_writer import write_dataset
from training.export.weight_location import ALONE
from training.loop import Loop
from training.strategies import start_strategy
from training.strategies.single import Strategy
from training.strategy_table import SCHEDULES
from training.workloads import load_packing, load_workload
from trainyard.common.errors import TrainingError

pytestmark = pytest.mark.long

RANKS = 4
SECONDS = 20  # a collective's limit: a hang fails, and does not last
EXACT = 1e-12  # relative, in float64
MODEL = {"context_length": 16, "layers": 4, "heads": 2, "dim": 16}
BASE = {
    **{"max_steps": 2, "global_batch": 12, "micro_batch": 3, "learning_rate": 0.01},
    **{"precision": "float64", "log_interval": 1, "validation_samples": 1},
}
FSDP, TWO_STAGES = {"strategy": "fsdp"}, {"pipeline_parallel": 2}
LAYOUTS = {
    "ddp": {"strategy": "ddp"},
    "hybrid": FSDP | {"shard_degree": 2},
    "ddp × tensor": {"tensor_parallel": 2},
    "fsdp × tensor": FSDP | {"tensor_parallel": 2},
    "ddp × context": {"context_parallel": 2},
    "fsdp × context": FSDP | {"context_parallel": 2},
    "ddp × pipeline": TWO_STAGES,
    **{f"fsdp × {name}": FSDP | TWO_STAGES | {"pipeline_schedule": name} for name in SCHEDULES},
    "four stages": {"pipeline_parallel": 4, "pipeline_stages_per_rank": 1}
    | {"pipeline_schedule": "interleaved_1f1b"},
    "tensor × pipeline": TWO_STAGES | {"tensor_parallel": 2},
    "context × pipeline": FSDP | TWO_STAGES | {"context_parallel": 2},
    "context × tensor": FSDP | {"context_parallel": 2, "tensor_parallel": 2},
}
TRAIN = (1, 3, 7, 10, 13)
"""Samples of the train split, in turn: fewer than ranks, fewer than a batch, odd remainders."""
VALIDATION = (1, 13, 4, 12, 3, 7)
"""Samples of a validation, in turn: fewer than ranks, one micro-batch or less, one of each of four
ranks, and one more."""


def write_data(folder: Path) -> None:
    packing, random = load_packing("language_model", MODEL), np.random.default_rng(0)
    for split, samples in [("validation", max(VALIDATION)), *((f"train-{n}", n) for n in TRAIN)]:
        rows = random.integers(97, 123, (samples, 17)).astype(np.uint16)
        write_dataset(folder / split, {"tokens": rows}, packing.fields, shard_bytes=200,
                      workload=packing.info)  # fmt: skip


def train_and_validate(loop: Loop, lines: list[dict], data: Path, samples: int) -> dict[str, float]:
    """Train on so many samples, then validate on each number of them; return all losses."""
    validation = Dataset(data / "validation")
    loop.train(Dataset(data / f"train-{samples}"), validation)
    found = {f"step {line['step']}": line["loss"] for line in lines if "loss" in line}
    for count in VALIDATION:
        found[f"{count} samples"] = loop._validate(validation, {"": range(count)})[0]
    return found


def train_layouts(given: list[str], environment: dict[str, str], root: Path, rank: int) -> None:
    """Run one rank through every layout; it writes the losses into ``found-<rank>.json``."""
    os.environ.update(environment)
    torch.set_num_threads(1)
    workload, found = load_workload("language_model", MODEL), {}
    for number, (name, layout) in enumerate(list_startable_layouts().items()):
        config = TrainConfig(**BASE | layout, collective_timeout_seconds=SECONDS)
        os.environ["TORCHELASTIC_RESTART_COUNT"] = str(number)  # a group of its own in the store
        with start_strategy(config, workload) as strategy:
            lines: list[dict] = []
            folder = root / "checkpoints" / str(number)
            checkpoints = Checkpoints(folder, "one", 1, strategy.ranks, SECONDS)
            strategy.backward = partial(without_pickles, strategy.backward)
            loop = Loop(config, workload, strategy, checkpoints, lines.append)
            found[name] = train_and_validate(loop, lines, root / "data", TRAIN[number % len(TRAIN)])
            del strategy.backward
            check_odd_rank(strategy, rank)
        (root / f"found-{rank}.json").write_text(json.dumps(found))


def without_pickles(run: Callable, *given) -> torch.Tensor:
    """Check that no step's ranks send each other pickles, which the host would wait for."""
    pickles = AssertionError("a pickle between ranks")
    with mock.patch("torch.distributed.distributed_c10d._object_to_tensor", side_effect=pickles):
        return run(*given)


def check_odd_rank(strategy: Strategy, rank: int) -> None:
    """Check that a rank without gradients, or with inputs of another shape, is not waited for."""
    for parameter in strategy.model.parameters():
        parameter.grad = None if rank == 1 else torch.zeros_like(parameter)
    assert float(strategy.clip()) == 0
    if strategy.config.pipeline_parallel > 1:
        size = 2 if strategy.data_rank else 1
        batches = [
            strategy.take_local_slice({"tokens": torch.zeros(size, 17, dtype=torch.int64)})
        ] * 2
        with pytest.raises(
            TrainingError, match=r"[24]: a micro-batch has inputs int64 \([12], \d+\)"
        ):
            strategy.backward(batches, torch.ones((), dtype=torch.float64))


def list_startable_layouts() -> dict[str, dict]:
    """Return each layout that the job would start under this torch."""
    return {name: one for name, one in LAYOUTS.items() if trains_here(BASE | one)}


def alone(root: Path, samples: int) -> dict[str, float]:
    config, workload = (
        TrainConfig(**BASE, strategy="single"),
        load_workload("language_model", MODEL),
    )
    lines: list[dict] = []
    checkpoints = Checkpoints(root / f"alone-{samples}", "one", 1, ALONE)
    loop = Loop(config, workload, Strategy(config, workload, ALONE), checkpoints, lines.append)
    return train_and_validate(loop, lines, root / "data", samples)


@pytest.mark.slow
def test_any_number_of_samples_in_any_layout_gives_the_losses_of_one_process(tmp_path):
    write_data(tmp_path / "data")
    expected = {samples: alone(tmp_path, samples) for samples in TRAIN}
    codes = worlds.finish(worlds.start(tmp_path, RANKS, target=train_layouts), 200)
    files = [tmp_path / f"found-{rank}.json" for rank in range(RANKS)]
    found = [json.loads(file.read_text()) if file.exists() else {} for file in files]
    assert [[*one] for one in found] == [[*list_startable_layouts()]] * RANKS, (
        f"the next one fails: {codes}"
    )
    for rank in range(RANKS):
        for number, curve in enumerate(found[rank].values()):
            of_one = expected[TRAIN[number % len(TRAIN)]]
            assert curve == {name: pytest.approx(of_one[name], rel=EXACT) for name in of_one}


@pytest.mark.slow
def test_a_loss_over_the_micro_batch_is_the_same_on_any_number_of_ranks(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(TOYS))
    packing, numbers = load_packing("toys.pairs", {}), np.random.default_rng(0).random((2, 24))
    content = dict(zip("xy", numbers.astype(np.float32), strict=True))
    settings = {"workload": "toys.pairs", "micro_batch": 2, "precision": "float64"}
    roots = [tmp_path / name for name in ("alone", "ddp", "fsdp")]
    for root in roots:
        for split in ("train", "validation"):
            size = 24 if split == "train" else 11
            part = {name: column[:size] for name, column in content.items()}
            write_dataset(root / "input/data" / split, part, packing.fields, shard_bytes=200,
                          workload=packing.info)  # fmt: skip
    job.main(arguments(roots[0], settings | {"strategy": "single"}))
    worlds.train_each({root: settings | {"strategy": root.name} for root in roots[1:]}, 2)
    for root in roots[1:]:
        for kind in ("loss", "validation_loss"):
            assert losses(root, kind) == pytest.approx(losses(roots[0], kind), rel=EXACT), root


def another_setting(given: list[str], environment: dict[str, str], root: Path, rank: int) -> None:
    more = ["--validation_interval", "3"] if rank else []
    worlds.run_rank([*given, *more], environment, root, rank)


@pytest.mark.slow
def test_ranks_with_other_settings_or_validation_data_end_with_their_difference(tmp_path):
    """The first would never meet in a validation, the second not in its last micro-batch."""
    settings = {"strategy": "fsdp", "micro_batch": 2, "collective_timeout_seconds": SECONDS}
    machines = [tmp_path / name for name in ("one", "other")]
    for number, machine in enumerate(machines):
        write_ragged(machine / "input/data/train", 20, seed=1)
        write_ragged(machine / "input/data/validation", 20 + 4 * number, seed=2)
    failure = machines[0] / "output/failure"
    one = worlds.start(machines[0], 2, target=another_setting, **settings)
    assert worlds.finish(one) == [1, 1]
    assert "validation_interval: is 3 on rank 1, and 5 on rank 0; start" in failure.read_text()
    assert worlds.finish(worlds.start(machines, 2, **settings)) == [1, 1]
    assert "rank 1 differs from rank 0: validation data " in failure.read_text()
