"""The part of a tensor that a rank has, and tensors that no checkpoint can hold."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.placement_types import _StridedShard

from training.checkpoint.read_slices import part_of
from training.checkpoint.tensor_table import Part
from training.tools.forward_trace import standing_for
from trainyard.common.errors import TrainingError


def test_a_tensor_is_all_of_it():
    part = part_of("w", torch.zeros(2, 3, dtype=torch.bfloat16))
    assert part == Part("BF16", (2, 3), (0, 0), (2, 3))


def test_a_type_that_safetensors_lacks_is_refused():
    with pytest.raises(TrainingError, match="w: safetensors has no type torch.complex64"):
        part_of("w", torch.zeros(2, dtype=torch.complex64))


def test_a_part_that_is_not_what_is_said_of_it_is_refused():
    """Like a DTensor of an older torch, which does not say where its part lies."""

    class Elsewhere(torch.Tensor):
        _local_tensor = torch.zeros(1, 3)

    with pytest.raises(
        TrainingError, match=r"w: this rank has \[1, 3\] .* expected \[4, 3\]; take"
    ):
        part_of("w", torch.zeros(4, 3).as_subclass(Elsewhere))


@given(st.integers(1, 40), st.integers(1, 5), st.integers(2, 4), st.data())
def test_a_part_is_told_of_any_number_of_rows(rows: int, shards: int, split: int, data):
    """FSDP2 shards what tensor parallelism has already split, both like torch.chunk."""
    rank = data.draw(st.integers(0, shards * split - 1))
    along, across = divmod(rank, split)
    mine = chunk(chunk(torch.arange(rows), split, across), shards, along)
    with standing_for(rank, shards * split):
        mesh = init_device_mesh("cpu", (shards, split))
        placed = [_StridedShard(0, split_factor=split), Shard(0)]
        weight = DTensor.from_local(
            torch.zeros(len(mine), 2), mesh, placed, shape=torch.Size((rows, 2)), stride=(2, 1)
        )
        part = part_of("w", weight)
    assert part.sizes == (len(mine), 2)
    assert part.offsets[0] == (mine[0] if len(mine) else part.offsets[0])


def chunk(rows: torch.Tensor, count: int, index: int) -> torch.Tensor:
    """Return a rank's rows; empty if there are fewer pieces than ranks."""
    pieces = torch.chunk(rows, count)
    return pieces[index] if index < len(pieces) else rows[:0]
