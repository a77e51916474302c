"""A rank's part of a checkpoint is in several files: the writer keeps whole files in memory."""

from pathlib import Path

import torch

from training import checkpoint
from training.checkpoint import Checkpoints
from training.strategies.ranks import Ranks

RANKS = Ranks(0, 0, 1, torch.device("cpu"))


def test_files_are_a_sixteenth_of_the_bytes_or_one_tensor(monkeypatch):
    monkeypatch.setattr(checkpoint, "SMALLEST", 10)
    numbers = checkpoint._files({"large": 500, **{f"small{n}": 10 for n in range(50)}})
    # A thousand bytes: at most 62 in a file, which are six of the small ones.
    assert numbers["large"] == 1
    counts = [[*numbers.values()].count(file) for file in range(2, 11)]
    assert counts == [6] * 8 + [2]


def test_small_states_are_not_cut():
    assert set(checkpoint._files({"a": 2**20, "b": 2**20}).values()) == {1}


def test_a_checkpoint_of_several_files_comes_back_whole(monkeypatch, tmp_path: Path):
    monkeypatch.setattr(checkpoint, "SMALLEST", 100)
    state = {f"tensor{n}": torch.randn(8, 8) for n in range(20)}
    saved = {name: tensor.clone() for name, tensor in state.items()}
    checkpoints = Checkpoints(tmp_path, "training", 1, RANKS)
    checkpoints.save(3, state)
    checkpoints.finish()
    files = [*tmp_path.rglob("*.safetensors")]
    assert len(files) == 20 and max(file.stat().st_size for file in files) < 1000
    for tensor in state.values():
        tensor.zero_()
    assert checkpoints.resume(lambda: state) == 3
    assert all(torch.equal(state[name], saved[name]) for name in saved)
