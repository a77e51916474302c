"""Asynchronous tensor parallel: a block's collectives are one with its products; numbers stay.

torch has the fused products for CUDA alone, so processors take what it says that they compute
(``on_processors``), and what the compiler's passes have made of the graphs is run as it is
(``as_graphs``).
"""

import os
from pathlib import Path

import pytest
import torch

from benchmarks.strategies.fused import as_graphs, on_processors
from tests.training import worlds
from training.config import TrainConfig
from training.strategies.asynchronous import check
from trainyard.common.errors import TrainingError

EXACT = 1e-12  # relative, in float64
SETTINGS = {
    **{"max_steps": 1, "global_batch": 1, "micro_batch": 1, "learning_rate": 1e-3},
    **{"tensor_parallel": 2, "compile": True, "async_tensor_parallel": True},
}
MODEL = {
    **{"context_length": 32, "layers": 2, "heads": 4, "kv_heads": 2, "dim": 32},
    "attention_bias": "qkv",
}


def test_a_block_is_fused_and_has_the_loss_and_gradients_of_one_process(tmp_path):
    codes = worlds.finish(worlds.start(tmp_path, 2, target=_compare_each))
    assert codes == [0, 0], (tmp_path / "rank-0.log").read_text()


def _compare_each(given: list[str], environment: dict[str, str], root: Path, rank: int) -> None:
    from torch.distributed.device_mesh import init_device_mesh

    os.environ.update(environment)
    torch.set_num_threads(1)
    with (root / f"rank-{rank}.log").open("a", buffering=1) as log:
        os.dup2(log.fileno(), 2)
        on_processors()
        torch.distributed.init_process_group("gloo")
        mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tensor",))
        _compare(mesh)
        torch.distributed.destroy_process_group()


def _compare(mesh) -> None:
    """One process's loss and gradients, and those of two whose products are fused.

    Of a single sample, whose gathering torch's pass does not know without ours.
    """
    from training.strategies import asynchronous, tensor
    from training.strategies.blocks import adapt_blocks
    from training.strategies.sharding import full
    from training.workloads import load

    workload = load("language_model", MODEL)
    torch.manual_seed(0)
    whole, split = (workload.model().double() for _ in range(2))
    split.load_state_dict(whole.state_dict())
    tensor.split(split, workload, mesh, True)
    options = asynchronous.options(mesh.get_group())
    adapt_blocks(workload.blocks(split), TrainConfig(**SETTINGS), options)
    tokens = torch.randint(0, 200, (1, 33), generator=torch.Generator().manual_seed(1))
    batch, ends = {"tokens": tokens.int()}, []
    with as_graphs() as found, tensor.losses(workload):
        for model in (whole, split):
            outputs = model(*workload.inputs(batch))
            loss = tensor.score(workload, lambda o: workload.loss(o, batch), outputs)
            loss.backward()
            ends.append(loss.item())
    assert found == [(4, 0), (4, 0)], found  # both blocks' forward, and backward: none is left
    assert abs(ends[1] / ends[0] - 1) < EXACT
    expected = dict(whole.named_parameters())
    for name, parameter in split.named_parameters():
        mine = full(parameter.grad)
        off = (mine - expected[name].grad).abs().max() / expected[name].grad.abs().max()
        assert off < EXACT, (name, off)


@pytest.mark.parametrize(
    ("gpus", "reads", "rank", "expected"),
    [
        (0, True, 0, "there is no CUDA device here"),
        (8, False, 1, r"GPU 1 cannot read GPU 0's memory \(no NVLink\)"),
        (1, True, 1, "joins GPUs of several machines; this one has 1"),
    ],
)
def test_gpus_that_share_no_memory_are_refused(monkeypatch, gpus, reads, rank, expected):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.cuda, "can_device_access_peer", lambda one, other: reads)
    with pytest.raises(TrainingError, match=f"async_tensor_parallel .*{expected}"):
        check(TrainConfig(**SETTINGS), rank, rank % max(1, gpus))
