"""FSDP2's settings change speed and memory, never the curve; bfloat16 matches one process."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule

from steps.train import job
from tests.training import worlds
from tests.training.strategies.cases import MODEL, SETTINGS, container, distance, write_data
from tests.training.trainings import TOYS, arguments, config, losses, write_dataset
from training import strategies
from training.strategies.fsdp_sharding import gather_in_stored_dtype, shard_model
from training.strategies.ranks import Ranks, join_group
from training.workloads import load_packing, load_workload
from trainyard.common.errors import TrainingError

pytestmark = pytest.mark.long

STEPS = 4
UNTIED = json.dumps(MODEL | {"layers": 2, "tie_embeddings": False})
SHORT = SETTINGS | {"workload_config": UNTIED, "max_steps": STEPS}
SHORT |= dict.fromkeys(("checkpoint_interval", "validation_interval"), STEPS // 2)
CASES = {
    "kept": {"reshard_after_forward": "never", "gradient_accumulation": "unsharded"},
    "resharded": {"reshard_after_forward": 2, "forward_prefetch": 2, "backward_prefetch": 2},
    "offloaded": {"cpu_offload": True, "shard_degree": 2, "reshard_after_forward": "always"},
    "bfloat16": {"precision": "bfloat16", "shard_degree": 2, "forward_prefetch": 1},
}


@pytest.mark.sweep
@pytest.mark.slow
def test_every_setting_gives_the_curve_of_one_process_and_can_be_resumed(tmp_path):
    write_data(tmp_path / "data")
    roots = {name: container(tmp_path / "data", tmp_path / name) for name in ("alone", *CASES)}
    alone = roots.pop("alone")
    exact = SHORT | {"precision": "float64"}
    job.main(arguments(alone, exact | {"strategy": "single", "micro_batch": 16}))
    exact |= {"strategy": "fsdp", "micro_batch": 2}
    worlds.train_and_resume({roots[n]: exact | differs for n, differs in CASES.items()}, 4, STEPS)
    for name, root in roots.items():
        half = name == "bfloat16"
        for kind in ("loss", "validation_loss"):
            off = distance(losses(root, kind), losses(alone, kind))
            assert off < (5e-3 if half else 1e-13), (name, kind, off)
        first, again = ((root / n / "model.safetensors").read_bytes() for n in ("first", "model"))
        assert first == again, name


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_norms_are_gathered_with_their_block_where_both_compute_in_one_type(precision):
    with worlds.imagined_group(0, 2):
        chosen = config(strategy="fsdp", precision=precision, micro_batch=1)
        workload, ranks = (
            load_workload("language_model", MODEL),
            Ranks(0, 0, 2, torch.device("cpu")),
        )
        strategy = strategies.select_strategy(chosen)(chosen, workload, ranks)
        strategy.prepare(workload.model())
        norms = [m for n, m in strategy.model.named_modules() if n.endswith("norm")]
        assert norms and not any(isinstance(norm, FSDPModule) for norm in norms)


def test_models_of_others_train_in_bfloat16_as_in_one_process(tmp_path):
    """Covers BatchNorm, norms of inputs in float32, torch's own encoder layer."""
    codes = worlds.finish(worlds.start(tmp_path, 2, target=_train_others))
    assert codes == [0, 0], (tmp_path / "rank-0.log").read_text()


def _train_others(given: list[str], environment: dict[str, str], root: Path, rank: int) -> None:
    os.environ.update(environment)
    with (root / f"rank-{rank}.log").open("a", buffering=1) as log:
        os.dup2(log.fileno(), 2)
        torch.distributed.init_process_group("gloo")
        for build, width in OTHERS:
            _compare(build, width, rank)
        torch.distributed.destroy_process_group()


def _compare(build, width: tuple[int, ...], rank: int) -> None:
    """Compare a few steps' losses on one rank's half of each batch with one process's on all of
    it.
    """
    mesh = init_device_mesh("cpu", (1, 2), mesh_dim_names=("replicate", "shard"))
    settings = config(strategy="fsdp", precision="bfloat16", micro_batch=4)
    torch.manual_seed(0)
    whole, split = build(), build()
    split.load_state_dict(whole.state_dict())
    shard_model(split, [*split][:-1], mesh, settings)
    optimizers = [torch.optim.AdamW(model.parameters(), 1e-2) for model in (whole, split)]
    for step in range(4):
        batch = torch.randn(8, *width, generator=torch.Generator().manual_seed(step))
        halves = batch.chunk(2)
        mine = halves[rank]
        with torch.autocast("cpu", torch.bfloat16):
            one = sum(whole(half).float().square().mean() for half in halves) / 2
            two = split(mine).float().square().mean()
        for loss, optimizer in zip((one, two), optimizers, strict=True):
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        two = two.detach().clone()
        torch.distributed.all_reduce(two)
        # Four of bfloat16's steps: processors round differently.
        assert abs(float(two / 2 / one) - 1) < 2**-6, (build.__name__, step, two / 2, one)
    whole.eval(), split.eval()
    with torch.no_grad(), gather_in_stored_dtype(split):
        ours = split(batch)
    assert ours.dtype == torch.float32
    weights = {name: p.full_tensor() for name, p in split.named_parameters()}
    whole.load_state_dict(weights | dict(split.named_buffers()))
    with torch.no_grad():
        assert torch.allclose(ours, whole(batch), atol=1e-6), build.__name__


def _pictures():
    block = [nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()]
    return nn.Sequential(
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()),
        nn.Sequential(*block),
        nn.Sequential(nn.Flatten(), nn.Linear(8 * 36, 4)),
    )


def _rows():
    first = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32))
    return nn.Sequential(
        first, nn.Sequential(nn.Linear(32, 32), nn.GroupNorm(4, 32)), nn.Linear(32, 3)
    )


def _encoder():
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    return nn.Sequential(nn.Linear(12, 16), layer, nn.Linear(16, 3))


OTHERS = [(_pictures, (3, 8, 8)), (_rows, (16,)), (_encoder, (5, 12))]


def write_numbers(folder: Path, samples: int) -> None:
    """Write x and y for ``toys.scaled``; only the first and the 12th x are above 0.9."""
    numbers = np.random.default_rng(0).random((2, samples), np.float32) * np.float32(0.9)
    numbers[0, [0, 11]] = 0.95
    packing = load_packing("toys.scaled", {})
    content = dict(zip("xy", numbers, strict=True))
    for split in ("train", "validation"):
        write_dataset(folder / split, content, packing.fields, workload=packing.info)


@pytest.mark.slow
def test_weights_without_dimensions_are_trained_as_in_one_process(tmp_path, monkeypatch):
    """Also one that in most micro-batches gets no gradient, and in some steps on one rank only."""
    monkeypatch.syspath_prepend(str(TOYS))
    settings = {
        **{"workload": "toys.scaled", "global_batch": 4, "micro_batch": 2, "max_steps": 8},
        **{"precision": "float64", "ema_decay": 0.5, "checkpoint_interval": 4},
    }
    roots = {name: tmp_path / name for name in ("alone", "fsdp")}
    for root in roots.values():
        write_numbers(root / "input/data", 24)
    job.main(arguments(roots["alone"], settings | {"strategy": "single"}))
    worlds.train_and_resume({roots["fsdp"]: settings | {"strategy": "fsdp"}}, 2, 8)
    for kind in ("loss", "validation_loss"):
        assert distance(losses(roots["fsdp"], kind), losses(roots["alone"], kind)) < 1e-13
    found, expected = (load_file(root / "model/model.safetensors") for root in roots.values())
    assert found.keys() == expected.keys() and found["rare"].dim() == 0
    assert all(torch.allclose(found[n], expected[n], rtol=1e-12, atol=0) for n in found)


def test_weights_of_two_types_in_one_unit_are_named(monkeypatch):
    for name, value in worlds.variables(worlds.free_port()).items():
        monkeypatch.setenv(name, value)
    model = nn.ModuleDict({"one": nn.Linear(2, 2), "other": nn.Linear(2, 2).double()})
    settings = config(strategy="fsdp", precision="float32")
    expected = r"^one\.weight is float32 and other\.weight is float64: weights that are sharded"
    with join_group(30), pytest.raises(TrainingError, match=expected):
        mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("replicate", "shard"))
        shard_model(model, [], mesh, settings)
