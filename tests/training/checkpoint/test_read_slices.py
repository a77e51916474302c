"""A rank reads the right parts of the right files, however the tensor was cut and is cut now."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from training.checkpoint.read_slices import slices
from training.checkpoint.tensor_table import Layout, Part, Table


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
    whole = torch.arange(max(1, torch.Size(shape).numel())).view(shape or ()) if 0 not in shape \
        else torch.zeros(shape)  # fmt: skip
    saved, wanted = data.draw(boxes(shape)), data.draw(boxes(shape))
    table = Table(
        layouts=(Layout(shape=shape, pieces=[(n, o, s) for n, (o, s) in enumerate(saved)]),),
        tensors={"w": ("I64", 0)},
    )
    for offsets, sizes in wanted:
        into = torch.full(sizes, -1)
        for one in slices({"w": Part("I64", shape, offsets, sizes)}, table, ""):
            begin = [a + b for a, b in zip(saved[one.file][0], one.begin, strict=True)]
            assert one.sizes == saved[one.file][1]
            target = cut(into, one.into, one.lengths)
            assert (target == -1).all()
            target.copy_(cut(whole, begin, one.lengths))
        assert torch.equal(into, cut(whole, offsets, sizes).to(into.dtype))


def cut(tensor: torch.Tensor, offsets, sizes) -> torch.Tensor:
    return tensor[tuple(slice(o, o + s) for o, s in zip(offsets, sizes, strict=True))]
