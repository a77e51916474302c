"""Which part of a tensor lies where: in our files' headers, and for a rank that reads or writes."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed import checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.placement_types import _StridedShard

from training.checkpoint import tensor_table
from training.checkpoint.read_slices import build_part, compute_slices
from training.checkpoint.tensor_table import Layout, Part, Table
from training.tools.forward_trace import act_as_rank
from trainyard.common.errors import TrainingError


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
        beginning, _ = tensor_table.build_part_header(parts, order)
        name = f"shard-{rank:05d}-model-00001-of-00001.safetensors"
        (tmp_path / name).write_bytes(beginning + b"".join(contents[one] for one in order))
    state = {"w": torch.zeros(4, 3), "n": torch.zeros(2, dtype=torch.int64)}
    dcp.load(state, storage_reader=dcp.HuggingFaceStorageReader(str(tmp_path)), no_dist=True)
    assert torch.equal(state["w"], torch.arange(12.0).view(4, 3))
    assert torch.equal(state["n"], other)


@st.composite
def boxes(draw, shape: tuple[int, ...]) -> list[tuple[tuple, tuple]]:
    """Draw (offsets, sizes) of parts that cover a tensor, some of them empty."""
    found = [((), ())]
    for length in shape:
        cuts = sorted(draw(st.lists(st.integers(0, length), max_size=3)))
        ends = [0, *cuts, length]
        found = [((*o, a), (*s, b - a)) for o, s in found
                 for a, b in zip(ends, ends[1:], strict=False)]  # fmt: skip
    return found


@given(st.data(), st.lists(st.integers(0, 6), max_size=3).map(tuple))
def test_every_element_comes_once_and_from_where_it_lies(data, shape):
    whole = torch.arange(torch.Size(shape).numel()).view(shape)
    saved, wanted = data.draw(boxes(shape)), data.draw(boxes(shape))
    table = Table(
        layouts=(Layout(shape=shape, pieces=[(n, o, s) for n, (o, s) in enumerate(saved)]),),
        tensors={"w": ("I64", 0)},
    )
    for offsets, sizes in wanted:
        into = torch.full(sizes, -1)
        for one in compute_slices({"w": Part("I64", shape, offsets, sizes)}, table, ""):
            begin = [a + b for a, b in zip(saved[one.file][0], one.begin, strict=True)]
            assert one.sizes == saved[one.file][1]
            target = cut(into, one.into, one.lengths)
            assert (target == -1).all()
            target.copy_(cut(whole, begin, one.lengths))
        assert torch.equal(into, cut(whole, offsets, sizes).to(into.dtype))


def cut(tensor: torch.Tensor, offsets, sizes) -> torch.Tensor:
    return tensor[tuple(slice(o, o + s) for o, s in zip(offsets, sizes, strict=True))]


def test_a_tensor_is_all_of_it_and_of_a_type_that_safetensors_has():
    part = build_part("w", torch.zeros(2, 3, dtype=torch.bfloat16))
    assert part == Part("BF16", (2, 3), (0, 0), (2, 3))
    with pytest.raises(TrainingError, match="w: safetensors has no type torch.complex64"):
        build_part("w", torch.zeros(2, dtype=torch.complex64))


def test_a_part_that_is_not_what_is_said_of_it_is_refused():
    """Like a DTensor of an older torch, which does not say where its part lies."""

    class Elsewhere(torch.Tensor):
        _local_tensor = torch.zeros(1, 3)

    with pytest.raises(TrainingError, match=r"w: this rank has \[1, 3\] .* expected \[4, 3\]; use"):
        build_part("w", torch.zeros(4, 3).as_subclass(Elsewhere))


@given(st.integers(1, 40), st.integers(1, 5), st.integers(2, 4), st.data())
def test_a_part_is_told_of_any_number_of_rows(rows: int, shards: int, split: int, data):
    """FSDP2 shards what tensor parallelism has already split, both like torch.chunk."""
    rank = data.draw(st.integers(0, shards * split - 1))
    along, across = divmod(rank, split)
    mine = chunk(chunk(torch.arange(rows), split, across), shards, along)
    with act_as_rank(rank, shards * split):
        mesh = init_device_mesh("cpu", (shards, split))
        placed = [_StridedShard(0, split_factor=split), Shard(0)]
        weight = DTensor.from_local(
            torch.zeros(len(mine), 2), mesh, placed, shape=torch.Size((rows, 2)), stride=(2, 1)
        )
        part = build_part("w", weight)
    assert part.sizes == (len(mine), 2)
    assert part.offsets[0] == (mine[0] if len(mine) else part.offsets[0])


def chunk(rows: torch.Tensor, count: int, index: int) -> torch.Tensor:
    """Return a rank's rows; empty if there are fewer pieces than ranks."""
    pieces = torch.chunk(rows, count)
    return pieces[index] if index < len(pieces) else rows[:0]
