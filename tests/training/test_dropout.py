"""Masks belong to samples: the same in any batch, different for any other sample, step, module."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

from tests.training import worlds
from training.dropout import Dropout, assign_name_hashes, derive_sample_keys


def find_kept_elements(
    first: int, count: int, *, p=0.5, seed=0, width=64, module=None
) -> torch.Tensor:
    """Return boolean (count, width): elements kept of the samples from position ``first`` on."""
    module = module or Dropout(p)
    module.samples = derive_sample_keys(seed, first, count)
    return module(torch.ones(count, width)) != 0


@given(
    seed=st.integers(0, 2**32 - 1),
    first=st.integers(0, 2**50),
    cuts=st.lists(st.integers(1, 7), min_size=1, max_size=6),
)
def test_a_samples_mask_does_not_depend_on_its_company(seed, first, cuts):
    starts = np.cumsum([0, *cuts]).tolist()
    parts = [
        find_kept_elements(first + start, size, seed=seed)
        for start, size in zip(starts[:-1], cuts, strict=True)
    ]
    assert torch.equal(torch.cat(parts), find_kept_elements(first, starts[-1], seed=seed))


@pytest.mark.parametrize("p", [0.05, 0.5])
def test_as_many_are_dropped_as_was_asked_for_and_each_by_itself(p):
    """4,096 samples of 256 elements; all limits are 5 standard errors of independent draws."""
    mask = find_kept_elements(10**6, 4096, p=p, width=256).double()
    error = (p * (1 - p)) ** 0.5
    assert abs(mask.mean() - (1 - p)) < 5 * error / mask.numel() ** 0.5
    for dimension in (0, 1):
        rates = mask.mean(dimension)
        spread = error / mask.shape[dimension] ** 0.5
        assert (rates - (1 - p)).abs().max() < 5 * spread
        assert 0.7 < rates.std() / spread < 1.3
    centred = (mask - mask.mean()) / mask.std()
    for rows, columns in ((1, 0), (0, 1), (1, 1), (2, 0), (0, 16)):  # neighbours
        one = centred[: len(mask) - rows, : 256 - columns]
        assert abs((one * centred[rows:, columns:]).mean()) < 5 / one.numel() ** 0.5


@pytest.mark.parametrize("dimension", [1, 2])
def test_tensor_parallel_ranks_drop_their_parts_of_the_whole_mask(dimension):
    """Seven positions or five columns over three ranks, each of which sees only its part."""
    whole, x = Dropout(0.5), torch.rand(3, 7, 5)
    whole.samples = derive_sample_keys(0, 40, 3)
    parts = []
    for rank, part in enumerate(x.chunk(3, dimension)):
        with worlds.imagined_group(rank, 3):
            mesh = init_device_mesh("cpu", (3,))
            layout = {"shape": x.shape, "stride": x.stride(), "run_check": False}
            shared = DTensor.from_local(part, mesh, [Shard(dimension)], **layout)
            parts.append(whole(shared).to_local())
    assert torch.equal(torch.cat(parts, dimension), whole(x))


def test_ranks_that_share_sequences_drop_their_parts_of_the_whole_mask():
    """Covers (sample, t, width): a rank has some of the t, in any order."""
    module, x = Dropout(0.5), torch.ones(3, 8, 5)
    module.samples = derive_sample_keys(0, 40, 3)
    whole = module(x)
    for mine in ([0, 1, 6, 7], [2, 3, 4, 5], [7, 0]):
        module.positions = torch.tensor(mine)
        assert torch.equal(module(x[:, mine]), whole[:, mine])


def test_what_is_left_is_scaled_up_and_so_is_its_gradient():
    module = Dropout(0.75)
    module.samples = derive_sample_keys(0, 0, 8)
    x = torch.full((8, 32), 3.0, requires_grad=True)
    module(x).sum().backward()
    assert {*module(x).unique().tolist()} == {0.0, 12.0}
    assert torch.equal(x.grad, module(x).detach() / 3)


def test_steps_seeds_and_places_have_masks_of_their_own():
    model = nn.ModuleDict({name: Dropout(0.5) for name in ("a", "b")})
    assert assign_name_hashes(model) == [model["a"], model["b"]]
    one = find_kept_elements(0, 64, module=model["a"])
    others = {
        "the next step": find_kept_elements(64, 64, module=model["a"]),
        "another seed": find_kept_elements(0, 64, seed=1, module=model["a"]),
        "another module": find_kept_elements(0, 64, module=model["b"]),
        "the next sample": one.roll(1, 0),
        "the next element": one.roll(1, 1),
    }
    for name, other in others.items():
        alike = (one == other).double().mean()
        assert abs(alike - 0.5) < 5 * 0.5 / one.numel() ** 0.5, name


def test_a_sample_may_take_several_rows():
    module = Dropout(0.5)
    module.samples = derive_sample_keys(3, 0, 4)
    x = torch.ones(4, 6, 8)
    assert torch.equal(module(x.flatten(0, 1)).view_as(x), module(x))


def test_outside_of_a_training_it_is_torchs_and_in_evaluation_nothing():
    module, x = Dropout(0.5), torch.ones(4, 8)
    torch.manual_seed(1)
    drawn = module(x)
    torch.manual_seed(1)
    assert torch.equal(drawn, nn.Dropout(0.5)(x))
    module.samples = derive_sample_keys(0, 0, 4)
    assert module.eval()(x) is x
