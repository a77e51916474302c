"""Initial values: distributed as torch's own, and the same however the model is cut."""

import math
from collections.abc import Callable
from functools import cache

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor, nn

from training.weights.initial.build_model import (
    build_on_meta,
    describe_costly_weights,
    find_initial_values,
    materialize_model,
)
from training.weights.initial.initial_values import list_named_tensors
from training.weights.initial.replay import WholeValue

pytestmark = pytest.mark.long

SIDE = 200


def _make_model_class(draw: Callable[[Tensor], object]) -> type[nn.Module]:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.empty(SIDE, SIDE))
            draw(self.weight)

    return Model


DRAWS = {
    "normal": lambda w: nn.init.normal_(w, 1.0, 3.0),
    "uniform": lambda w: nn.init.uniform_(w, -2.0, 0.5),
    "trunc_normal": lambda w: nn.init.trunc_normal_(w, 0.1, 0.5, -0.6, 1.0),
    "kaiming_uniform": lambda w: nn.init.kaiming_uniform_(w, a=math.sqrt(5)),
    "kaiming_normal": lambda w: nn.init.kaiming_normal_(w, mode="fan_out"),
    "xavier_uniform": nn.init.xavier_uniform_,
    "xavier_normal": lambda w: nn.init.xavier_normal_(w, 2.0),
    "orthogonal": nn.init.orthogonal_,
    "exponential": lambda w: w.data.exponential_(2.0),
    "scaled": lambda w: w.data.copy_(torch.randn(SIDE, SIDE) * 0.02),
    "data": lambda w: w.data.normal_(0, 0.1).clamp_(-0.1, 0.1).abs_(),
    "gumbel": lambda w: w.data.uniform_().log_().neg_().log_().neg_(),
}


@pytest.mark.parametrize("name", DRAWS)
def test_numbers_are_distributed_as_torchs_own(name):
    """Compares two samples by Kolmogorov and Smirnov's distance, and the first two moments."""
    torch.manual_seed(0)
    model = _make_model_class(DRAWS[name])
    theirs, ours = (
        made.weight.detach() for made in (model(), materialize_model(build_on_meta(model, 1)))
    )
    assert stats.ks_2samp(theirs.flatten(), ours.flatten(), method="asymp").pvalue > 1e-4
    spread = float(theirs.std())
    assert abs(float(ours.mean() - theirs.mean())) < 6 * spread / SIDE
    assert float(ours.std()) == pytest.approx(spread, rel=0.05)
    assert not torch.equal(ours[0], ours[1])


def test_neighbours_and_weights_do_not_depend_on_each_other():
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = (nn.Parameter(torch.randn(SIDE, SIDE)) for _ in range(2))

    model = materialize_model(build_on_meta(Model, 0))
    a, b = model.a.detach(), model.b.detach()
    other_seed = materialize_model(build_on_meta(Model, 1)).a.detach()
    pairs = [(a, b), (a[1:], a[:-1]), (a[:, 1:], a[:, :-1]), (a, other_seed)]
    for one, other in pairs:
        found = torch.corrcoef(torch.stack([one.flatten(), other.flatten()]))[0, 1]
        assert abs(float(found)) < 5 / SIDE


class Odd(nn.Module):
    """A model with initialisers that do more than draw."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 24, padding_idx=7)
        self.memory = nn.LSTM(6, 10)
        with torch.no_grad():
            self.memory.bias_ih_l0[10:20].fill_(1.0)
        self.fused = nn.Parameter(torch.Tensor(30, 20))
        for part in self.fused.data.chunk(3):
            nn.init.xavier_uniform_(part)
        self.strided = nn.Parameter(torch.zeros(12, 9))
        with torch.no_grad():
            self.strided[::3, 1:8:2] += 2.0
            self.strided[2].normal_()
        nn.init.trunc_normal_(self.embedding.weight[1:3], std=0.02)
        self.norm = nn.BatchNorm2d(8)
        self.convolution = nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last)
        self.target = nn.Linear(6, 10)
        self.target.weight.data.copy_(self.memory.weight_ih_l0.data[:10])
        self.orthogonal = nn.Parameter(nn.init.orthogonal_(torch.empty(12, 12)))
        self.given = nn.Parameter(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        self.temperature = nn.Parameter(torch.zeros(()))
        self.temperature.data.copy_(torch.tensor(1.5))
        self.narrow = nn.Parameter(torch.randn(40, dtype=torch.bfloat16) / 3)
        self.register_buffer("mask", torch.tril(torch.ones(9, 9)).bool(), persistent=False)
        self.register_buffer("bias", torch.tril(torch.ones(9, 9)).view(1, 1, 9, 9))
        self.register_buffer("rope", torch.outer(torch.arange(5.0), torch.arange(4.0)).cos())
        self.scale = torch.full((2,), 3.0)
        if self.fused.std() > 0 and self.mask.sum().item() == 45:
            self.target.bias.data.fill_(self.scale.tolist()[0])


def test_what_initialisers_do_besides_drawing():
    model, fresh = materialize_model(build_on_meta(Odd, 3)), Odd()
    assert {n: (t.shape, t.dtype) for n, t in list_named_tensors(model).items()} == {
        n: (t.shape, t.dtype) for n, t in list_named_tensors(fresh).items()
    }
    assert model.embedding.weight[7].eq(0).all() and model.embedding.weight[8].ne(0).all()
    assert float(model.embedding.weight[1:3].detach().abs().max()) < 0.1
    assert model.memory.bias_ih_l0[10:20].eq(1).all() and model.memory.bias_ih_l0[:10].ne(1).all()
    assert torch.equal(model.strided == 2.0, fresh.strided == 2.0)
    assert torch.equal(model.strided == 0.0, fresh.strided == 0.0)
    assert torch.equal(model.target.weight, model.memory.weight_ih_l0[:10])
    assert torch.allclose(model.orthogonal @ model.orthogonal.T, torch.eye(12), atol=1e-5)
    for name in ("given", "temperature", "mask", "bias", "rope", "scale"):
        assert torch.equal(getattr(model, name), getattr(fresh, name)), name
    assert model.target.bias.eq(3).all()


def drawn_part(data, shape: torch.Size) -> tuple[slice, ...]:
    """Draw a range of each dimension, perhaps an empty one."""
    part = []
    for size in shape:
        start = data.draw(st.integers(0, size))
        part.append(slice(start, data.draw(st.integers(start, size))))
    return tuple(part)


@cache
def _odd() -> tuple[dict, dict]:
    return find_initial_values(build_on_meta(Odd, 5)), list_named_tensors(
        materialize_model(build_on_meta(Odd, 5))
    )


@given(st.data())
def test_a_part_is_the_same_numbers_as_in_the_whole(data):
    known, whole = _odd()
    name = data.draw(st.sampled_from(sorted(known)))
    part = drawn_part(data, whole[name].shape)
    wanted = whole[name].detach()[part]
    into = torch.full_like(wanted, 9, memory_format=torch.contiguous_format)
    known[name].write(part, into)
    assert torch.equal(into, wanted)


def test_large_rows_are_cut_anywhere():
    """Rows longer than a chunk, and many short rows."""

    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(40, 50_001))

    known = find_initial_values(build_on_meta(Wide, 0))["weight"]
    whole = materialize_model(build_on_meta(Wide, 0)).weight.detach()
    for part in ((slice(3, 5), slice(17, 40_000)), (slice(0, 40), slice(49_990, 50_001))):
        into = torch.empty([one.stop - one.start for one in part])
        known.write(part, into)
        assert torch.equal(into, whole[part])


def test_only_what_mixes_elements_is_made_whole_and_that_is_told():
    known = find_initial_values(build_on_meta(Odd, 0))
    assert {n for n, one in known.items() if isinstance(one, WholeValue)} == {
        *("bias", "convolution.weight", "embedding.weight", "mask"),
        *("orthogonal", "target.weight"),
    }
    assert "linalg_qr" in str(describe_costly_weights({"orthogonal": known["orthogonal"]}))


class Hidden(nn.Module):
    """A model that keeps a tensor where no module holds it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, weight = nn.Linear(3, 3), torch.ones(3)
        self.scaled = lambda x: x * weight


class Shared(nn.Module):
    """A model with two weights in one memory."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.other = nn.Parameter(self.linear.weight.data)


class Own(nn.Module):
    """A model that draws from its own generator."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(3))
        nn.init.normal_(self.weight, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("model", [Hidden, Shared, Own])
def test_what_cannot_be_recorded_is_built_really_and_that_is_told(model, caplog):
    found = [build_on_meta(model, 0) for _ in range(2)]
    assert "cannot be built on meta" in caplog.text
    one, other = map(list_named_tensors, found)
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert not any(tensor.is_meta for tensor in one.values())


class Tied(nn.Module):
    """A model with tied, frozen and listed weights, and buffers that are saved or not."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 5), nn.Linear(3, 5)
        self.second.weight = self.first.weight
        self.first.bias.requires_grad_(False)
        self.norm, self.listed = nn.BatchNorm1d(5), [self.first.weight]
        self.memory = nn.LSTM(5, 5)
        self.register_buffer("table", torch.arange(4.0), persistent=False)


def test_ties_objects_and_tables_are_there_afterwards():
    model = build_on_meta(Tied, 0)
    assert all(tensor.is_meta for tensor in list_named_tensors(model).values())
    weight = model.first.weight
    materialize_model(model)
    assert not any(tensor.is_meta for tensor in list_named_tensors(model).values())
    assert model.second.weight is model.first.weight is model.listed[0] is weight
    assert not model.first.bias.requires_grad and model.second.bias.requires_grad
    assert model.table.tolist() == [0, 1, 2, 3] and model.norm.running_var.eq(1).all()
    assert model.memory(torch.ones(2, 1, 5))[0].isfinite().all()
