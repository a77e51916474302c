"""Micro-batches draw and count the same, whichever rank takes them."""

import copy

import pytest
import torch
from torch import nn

from training.dropout import Dropout
from training.microbatches import MicroBatches, seed_generators
from training.strategies.block_wrapping import recompute_block


class Counted(nn.Module):
    """A model with BatchNorm, and buffers of other kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.register_buffer("mask", torch.tensor([0.1, -torch.inf]))
        self.register_buffer("pointer", torch.tensor(5))
        self.register_buffer("scratch", torch.zeros(()), persistent=False)
        self.dropouts = nn.Sequential(nn.Dropout(0.5), Dropout(0.5))

    def forward(self, x):
        self.pointer += int(x.sum())
        return self.dropouts(self.norm(x))


def batches(count: int, size: int) -> list[torch.Tensor]:
    samples = torch.arange(count * size * 3.0).view(count * size, 3)
    return [*samples.sin().add(samples % 7).split(size)]


def run(model: nn.Module, given: list[torch.Tensor], first: int = 0) -> list[torch.Tensor]:
    micro = MicroBatches(model, seed=7, size=len(given[0]))
    micro.begin_step(first, torch.device("cpu"))
    outputs = []
    for number, batch in enumerate(given):
        micro.begin(number)
        outputs.append(model(batch))
    micro.end([], torch.tensor(True))
    return outputs


@pytest.mark.parametrize("seed", [0, 7, 2**63, 2**64 - 1])
def test_a_seed_gives_the_numbers_that_torchs_own_call_gives(seed):
    torch.manual_seed(seed)
    expected = torch.rand(3)
    seed_generators(seed, torch.device("cpu"))
    assert torch.equal(torch.rand(3), expected)


def test_a_buffer_moves_once_a_step_by_the_mean_of_what_each_micro_batch_made_of_it():
    model, given = Counted(), batches(4, 5)
    before = model.state_dict(keep_vars=True)
    expected = []
    for batch in given:
        alone = copy.deepcopy(model)
        run(alone, [batch])
        expected.append(alone.norm.running_var)
    first = copy.deepcopy(model)
    run(first, given[:1])
    run(model, given)
    assert torch.allclose(model.norm.running_var, torch.stack(expected).mean(0), rtol=1e-6)
    mean = torch.stack([batch.mean(0) for batch in given]).mean(0)
    assert torch.allclose(model.norm.running_mean, 0.1 * mean, rtol=1e-5)  # as BatchNorm's own
    assert int(model.norm.num_batches_tracked) == 1  # a step is counted once
    assert model.pointer == first.pointer != 5
    assert model.mask.tolist() == before["mask"].tolist()  # to the last bit, infinities too
    after = model.state_dict(keep_vars=True)
    assert all(after[name] is tensor for name, tensor in before.items())


def test_a_micro_batch_draws_the_same_whichever_rank_takes_it():
    given = batches(4, 6)
    every = run(Counted(), given, first=96)
    second_rank = run(Counted(), given[2:], first=96 + 12)
    assert all(torch.equal(a, b) for a, b in zip(every[2:], second_rank, strict=True))


def test_no_two_micro_batches_or_steps_drop_the_same():
    """Holds for torch's dropout and ours; all masks of three steps of two ranks are different."""
    model = nn.Sequential(nn.Dropout(0.5))
    ours = nn.Sequential(Dropout(0.5))
    ones = [torch.ones(4, 16)] * 2
    for kind in (model, ours):
        masks = [
            tuple(mask.flatten().tolist())
            for step in range(3)
            for rank in range(2)
            for mask in run(kind, ones, first=step * 16 + rank * 8)
        ]
        assert len({*masks}) == 12


def test_a_stage_draws_otherwise_than_another():
    found = []
    for stage in (0, 1):
        micro = MicroBatches(nn.Dropout(), seed=0, size=4, stage=stage)
        micro.begin_step(0, torch.device("cpu"))
        micro.begin(0)
        found.append(torch.rand(4))
    assert not torch.equal(*found)


@pytest.mark.parametrize("later", [False, True], ids=["at once", "after the next one's forward"])
def test_a_pass_that_is_made_again_drops_the_same_and_counts_nothing(later):
    """Under 1F1B the next micro-batch is already under way by then."""
    kept, recomputed = Counted(), Counted()
    recompute_block(recomputed)
    given, gradients = batches(2, 6), []
    for model in (kept, recomputed):
        micro = MicroBatches(model, seed=1, size=6)
        micro.begin_step(0, torch.device("cpu"))
        outputs = []
        for number, batch in enumerate(given):
            micro.begin(number)
            outputs.append(model(batch).square().sum())
            if not later:
                outputs[-1].backward()
        if later:
            for output in outputs:
                output.backward()
        micro.end([], torch.tensor(True))
        gradients.append(model.norm.weight.grad)
    assert torch.equal(*gradients)
    assert all(
        torch.equal(tensor, recomputed.state_dict()[name])
        for name, tensor in kept.state_dict().items()
    )
