"""Checkpoints under a torch that cannot write safetensors itself: whole tensors, in both ways."""

import pytest
import torch
from torch.distributed import checkpoint as dcp

from training import whole_checkpoint
from training.checkpoint import Checkpoints
from training.strategies.ranks import Ranks
from trainyard.common.errors import TrainingError

ALONE = Ranks(0, 0, 1, torch.device("cpu"))


def state() -> dict[str, torch.Tensor]:
    return {"model.w": torch.arange(6.0).reshape(2, 3), "optimizer.w.step": torch.tensor(3.0)}


@pytest.fixture
def old(monkeypatch):
    """As in torch 2.5."""

    def pretend() -> None:
        for name in ("Writer", "Reader"):
            monkeypatch.delattr(dcp, f"HuggingFaceStorage{name}")

    yield pretend


@pytest.mark.parametrize("reads", ["old", "new"])
def test_an_old_torch_writes_what_both_read(tmp_path, old, monkeypatch, reads):
    with monkeypatch.context() as before:
        for name in ("Writer", "Reader"):
            before.delattr(dcp, f"HuggingFaceStorage{name}")
        with Checkpoints(tmp_path, "t", 2, ALONE) as checkpoints:
            checkpoints.save(3, state())
    if reads == "old":
        old()
    empty = {name: torch.zeros_like(tensor) for name, tensor in state().items()}
    assert Checkpoints(tmp_path, "t", 2, ALONE).resume(lambda: empty) == 3
    assert all(torch.equal(empty[name], tensor) for name, tensor in state().items())


def test_an_old_torch_reads_what_a_new_one_wrote(tmp_path, old):
    with Checkpoints(tmp_path, "t", 2, ALONE) as checkpoints:
        checkpoints.save(3, state())
    old()
    empty = {name: torch.zeros_like(tensor) for name, tensor in state().items()}
    assert Checkpoints(tmp_path, "t", 2, ALONE).resume(lambda: empty) == 3
    assert all(torch.equal(empty[name], tensor) for name, tensor in state().items())


def test_parts_of_tensors_are_refused(tmp_path):
    class Part(torch.Tensor):
        pass

    with pytest.raises(TrainingError, match="model.w is sharded: with torch .* 2.8 or newer"):
        whole_checkpoint.write(tmp_path, {"model.w": torch.zeros(2).as_subclass(Part)}, 0)
    whole_checkpoint.write(tmp_path, {"model.w": torch.zeros(2)}, 0)
    with pytest.raises(TrainingError, match="holds model.w not as a whole; .* resume it in its"):
        whole_checkpoint.read(tmp_path, {"model.w": torch.zeros(3)})
