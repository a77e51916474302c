"""Other software can read our files' headers."""

from pathlib import Path

import torch
from torch.distributed import checkpoint as dcp

from training.checkpoint import tensor_table
from training.checkpoint.tensor_table import Part


def test_torchs_own_reader_puts_the_parts_of_a_tensor_together(tmp_path: Path):
    """Two ranks wrote half of a tensor each, and the second wrote another tensor."""
    halves = {1: torch.arange(6.0).view(2, 3), 2: torch.arange(6.0, 12).view(2, 3)}
    other = torch.tensor([7, -8], dtype=torch.int64)
    for rank, half in halves.items():
        parts = {"w": Part("F32", (4, 3), (2 * rank - 2, 0), (2, 3))}
        contents = {"w": half.numpy().tobytes()}
        if rank == 2:
            parts["n"] = Part("I64", (2,), (0,), (2,))
            contents["n"] = other.numpy().tobytes()
        order = sorted(parts)
        beginning, _ = tensor_table.part_header(parts, order)
        name = f"shard-{rank:05d}-model-00001-of-00001.safetensors"
        (tmp_path / name).write_bytes(beginning + b"".join(contents[one] for one in order))
    state = {"w": torch.zeros(4, 3), "n": torch.zeros(2, dtype=torch.int64)}
    dcp.load(state, storage_reader=dcp.HuggingFaceStorageReader(str(tmp_path)), no_dist=True)
    assert torch.equal(state["w"], torch.arange(12.0).view(4, 3))
    assert torch.equal(state["n"], other)
