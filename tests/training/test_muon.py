"""Muon: its steps, its iterations, its weights; its layouts are in strategies/test_equivalence."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.distributed.tensor import Replicate, Shard

from tests.training.torches import since
from training.config import TrainConfig
from training.muon import COEFFICIENTS, ITERATIONS, Spread, _laid_out, hidden, orthogonal
from training.optimizers import build, moments, step
from training.workloads import load

HERE = torch.device("cpu")
GIVEN = {"max_steps": 10, "global_batch": 8, "micro_batch": 8, "learning_rate": 0.02}
"""Of every training here."""


def config(**fields) -> TrainConfig:
    return TrainConfig.model_validate(GIVEN | {"optimizer": "muon"} | fields)


def block(inside: int, outside: int, dtype: torch.dtype = torch.float32) -> nn.Linear:
    torch.manual_seed(1)
    return nn.Linear(inside, outside).to(dtype)


@since("2.9.0", "torch.optim.Muon, with which ours is compared,")
@pytest.mark.parametrize("shape", [(5, 9), (9, 5), (24, 40)], ids=["wide", "tall", "large"])
def test_it_takes_the_steps_of_torchs_muon(shape):
    """In bfloat16, in which torch's makes its iterations whatever the weights are in."""
    mine, theirs = block(*shape), block(*shape)
    spread = Spread([mine.weight], HERE, torch.bfloat16)
    ours = build(config(weight_decay=0.3, momentum=0.9), mine, spread=spread)
    muon = torch.optim.Muon(
        [theirs.weight], 0.02, 0.3, momentum=0.9, adjust_lr_fn="match_rms_adamw"
    )
    adamw = torch.optim.AdamW([theirs.bias], 0.02, (0.9, 0.95), weight_decay=0.0, fused=True)
    inputs = torch.arange(7.0 * shape[0]).reshape(7, shape[0]).sin()
    for _ in range(4):
        for model, optimizers in ((mine, [ours]), (theirs, [muon, adamw])):
            model(inputs).square().sum().backward()
            for optimizer in optimizers:
                optimizer.step()
            model.zero_grad()
        assert torch.equal(mine.bias, theirs.bias)
        assert torch.allclose(mine.weight, theirs.weight, rtol=0, atol=1e-6)
        # What rounds differently in float32 would be told apart by bfloat16 in the next step.
        mine.weight.data.copy_(theirs.weight.data)
    assert not torch.allclose(mine.weight, block(*shape).weight, rtol=0, atol=1e-2)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 99), st.floats(1e-3, 1e3))
def test_the_iterations_change_the_singular_values_alone(rows, columns, seed, size):
    """Against the quintic over numpy's singular values, whatever the matrix's shape and size."""
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.randn(rows, columns, dtype=torch.float64, generator=generator) * size
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    values, (a, b, c) = values / matrix.norm(), COEFFICIENTS
    for _ in range(ITERATIONS):
        values = a * values + b * values**3 + c * values**5
    assert torch.allclose(orthogonal(matrix), left @ torch.diag(values) @ right, atol=1e-9)


def test_hidden_matrices_are_those_of_blocks():
    """Not tables, norms, biases, stacks of matrices, nor what is frozen."""
    inside = nn.ModuleDict(
        {
            "linear": nn.Linear(3, 4),
            "frozen": nn.Linear(3, 4).requires_grad_(False),
            "image": nn.Conv2d(3, 4, 2),
            "line": nn.Conv1d(3, 4, 2),
            "norm": nn.LayerNorm(4),
            "table": nn.Embedding(5, 4),
            "own": nn.Linear(3, 4),
        }
    )
    found = hidden([inside], [inside["own"]])
    assert {id(one) for one in found} == {id(inside[n].weight) for n in ("linear", "image")}


def test_of_a_language_model_all_but_embeddings_logits_norms_and_biases():
    shape = {"layers": 2, "heads": 2, "dim": 8, "context_length": 4, "tie_embeddings": False}
    workload = load("language_model", shape | {"attention_bias": "all"})
    model = workload.model()
    found = {id(one) for one in hidden(workload.blocks(model), workload.embeddings(model))}
    names = {name for name, one in model.named_parameters() if id(one) in found}
    layers = (
        "attention.qkv",
        "attention.out",
        *(f"feed_forward.{n}" for n in ("gate", "up", "down")),
    )
    assert names == {f"blocks.{block}.{layer}.weight" for block in (0, 1) for layer in layers}


def test_a_convolution_is_one_matrix_of_its_outputs():
    torch.manual_seed(0)
    made = []
    for shape in ((6, 2, 3, 3), (6, 18)):
        holder = nn.Module()
        holder.weight = nn.Parameter(torch.arange(108.0).cos().reshape(shape))
        optimizer = build(config(), holder, spread=Spread([holder.weight], HERE))
        holder.weight.grad = torch.arange(108.0).sin().reshape(shape)
        optimizer.step()
        made.append(holder.weight.flatten(1))
    assert torch.equal(*made)


@pytest.mark.parametrize("taken", [0, 2])
def test_a_step_that_is_not_finite_leaves_everything_as_it_was(taken):
    model = block(3, 4)
    optimizer = build(config(), model, spread=Spread([model.weight], HERE))

    def take(value: float) -> None:
        for weight in model.parameters():
            weight.grad = torch.full_like(weight, value) + torch.arange(weight.shape[-1])
        step(optimizer, torch.tensor(value == value))

    def state() -> list[torch.Tensor]:
        kept = [tensor for _, held in moments(optimizer) for tensor in held.values()]
        return [tensor.clone() for tensor in (*model.parameters(), *kept)]

    for _ in range(taken):
        take(1.0)
    before = state()
    take(float("nan"))
    assert all(torch.equal(*pair) for pair in zip(before, state(), strict=True))
    take(2.0)
    assert not any(torch.equal(*pair) for pair in zip(before, state(), strict=True))


def test_its_state_is_a_momentum_of_matrices_and_adamws_of_the_rest():
    """Also where nothing has had a gradient so far; making it changes nothing."""
    model = block(3, 4)
    before = model.weight.detach().clone()
    optimizer = build(config(), model, spread=Spread([model.weight], HERE))
    found = {id(one): set(state) for one, state in moments(optimizer)}
    assert found[id(model.weight)] == {"momentum_buffer"}
    assert found[id(model.bias)] == {"step", "exp_avg", "exp_avg_sq"}
    assert all(not t.any() for _, state in moments(optimizer) for t in state.values())
    assert torch.equal(model.weight, before)


def test_parts_of_a_weight_are_taken_from_one_copy_and_cover_it():
    """A mesh of 2 replicas × 3 shards of rows × 2 of columns, which divide nothing evenly."""
    layout = _laid_out(torch.Size((7, 5)), (Replicate(), Shard(0), Shard(1)), (2, 3, 2))
    for owner in range(12):
        seen = torch.zeros(7, 5)
        for rank in layout.giving(owner):
            seen[layout.parts[rank]] += 1
        assert torch.equal(seen, torch.ones(7, 5)) and owner in layout.giving(owner)
    assert layout.cut and layout.sizes[0] == 3 * 3 and layout.sizes[-1] == 1 * 2


def test_a_model_without_blocks_is_refused_and_not_left_to_adamw(root, train):
    with pytest.raises(SystemExit):
        train(root, max_steps=1, optimizer="muon")
    assert "optimizer muon has nothing to update" in (root / "output/failure").read_text()
