"""A mixture of experts: what is routed, computed, balanced, handed on."""

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

from tests.training.torches import since
from training.host_reads import HostReads
from training.layout import Layout
from training.microbatches import MicroBatches
from training.muon import hidden
from training.strategies.blocks import recompute
from training.workloads import load
from training.workloads.language_model import hugging_face
from training.workloads.language_model.config import (
    LanguageModelConfig,
    refuse_layout,
    refuse_split,
)
from training.workloads.language_model.experts import MixtureOfExperts, grouped
from trainyard.common.errors import TrainingError

SHAPE = {"context_length": 32, "layers": 2, "heads": 4, "dim": 32, "experts": 4, "hidden_dim": 24}


def mixture(seed: int = 0, **given) -> MixtureOfExperts:
    """With weights and biases that are drawn, float64."""
    torch.manual_seed(seed)
    layer = MixtureOfExperts(LanguageModelConfig(**SHAPE | given)).double()
    for parameter in (*layer.parameters(), *layer.buffers()):
        torch.nn.init.normal_(parameter, std=0.3)
    return layer


def by_token(layer: MixtureOfExperts, token: torch.Tensor) -> torch.Tensor:
    """One token (dim,) as the paper writes it down."""
    router, experts = layer.router, layer.experts
    scores = [float(torch.sigmoid(row @ token)) for row in router.weight.detach()]
    wanted = [score + float(bias) for score, bias in zip(scores, router.bias, strict=True)]
    chosen = sorted(range(len(scores)), key=lambda n: (-wanted[n], n))[: router.active]
    made = torch.zeros_like(token)
    for number in chosen:
        gate, up, down = (
            one.weight.unflatten(0, (len(scores), -1))[number]
            for one in (experts.gate, experts.up, experts.down)
        )
        hidden = torch.nn.functional.silu(gate @ token) * (up @ token)
        made = made + scores[number] / sum(scores[n] for n in chosen) * (down @ hidden)
    return made


@given(seed=st.integers(0, 99), experts=st.integers(2, 6), tokens=st.integers(1, 9))
@settings(max_examples=20, deadline=None)
def test_a_token_is_the_weighed_sum_of_its_experts(seed, experts, tokens):
    layer = mixture(seed, experts=experts, active_experts=1 + seed % experts).eval()
    x = torch.randn(tokens, 32, dtype=torch.float64)
    expected = torch.stack([by_token(layer, token) for token in x])
    torch.testing.assert_close(layer(x[None])[0], expected, rtol=1e-12, atol=1e-12)


def test_of_equal_scores_the_first_experts_are_taken():
    layer = mixture()
    layer.router.weight.data.zero_()
    layer.router.bias = torch.tensor([0.0, 0.5, 0.5, 0.5], dtype=torch.float64)
    chosen, weights, counts = layer.router(torch.randn(5, 32, dtype=torch.float64))
    assert chosen.tolist() == [[1, 2]] * 5 and counts.tolist() == [0, 5, 5, 0]
    assert weights.tolist() == [[0.5, 0.5]] * 5


def test_gradients_are_those_of_numbers():
    """Of input, router and experts; no token is near enough to two routes to change its own."""
    layer = mixture(dim=8, heads=2, hidden_dim=3).eval()
    x = torch.randn(3, 8, dtype=torch.float64, requires_grad=True)
    weights = [parameter.detach().clone().requires_grad_() for parameter in layer.parameters()]
    names = [name for name, _ in layer.named_parameters()]

    def run(x, *weights):
        return torch.func.functional_call(layer, dict(zip(names, weights, strict=True)), (x,))

    assert torch.autograd.gradcheck(run, (x, *weights))


@pytest.mark.parametrize("counts", [[3, 0, 5], [0, 0, 8], [8, 0, 0]], ids=str)
def test_one_grouped_product_is_as_one_a_group(counts):
    """In bfloat16 torch has one, elsewhere there is one for each group."""
    torch.manual_seed(0)
    x, weights = torch.randn(8, 16), torch.randn(3, 24, 16)
    given = [t.bfloat16().requires_grad_() for t in (x, weights)]
    wide = [t.detach().double().requires_grad_() for t in given]
    for one in (given, wide):
        grouped(*one, torch.tensor(counts)).square().sum().backward()
    for narrow, exact in zip(given, wide, strict=True):
        off = (narrow.grad.double() - exact.grad).abs().max() / exact.grad.abs().max()
        assert off < 0.02


GROUPED = since("2.10.0", "torch.nn.functional.grouped_mm, which reads nothing,")


@pytest.mark.parametrize(
    ("dtype", "reads"),
    [pytest.param(torch.bfloat16, 0, marks=GROUPED), (torch.float32, 3)],
    ids=str,
)
def test_in_bfloat16_the_host_reads_nothing(dtype, reads):
    layer = mixture().to(dtype)
    x = torch.randn(2, 5, 32, dtype=dtype, requires_grad=True)
    with HostReads() as found:
        found.put([x, *layer.parameters(), *layer.buffers()])
        layer(x).square().sum().backward()
    assert len(found.found) == reads, found.found


@pytest.mark.parametrize("rate", [0.0, 0.1])
def test_the_bias_brings_the_load_to_the_mean(rate):
    layer = mixture(balance_rate=rate)
    layer.router.bias = torch.tensor([9.0, 0, 0, 0], dtype=torch.float64)  # one is always taken
    x = torch.randn(400, 32, dtype=torch.float64)
    for _ in range(200):
        _, _, counts = layer.router(x)
    most = float(counts.max() / counts.double().mean())
    assert most < 1.25 if rate else most == 2
    layer.eval()
    before = layer.router.bias
    layer(x)
    assert layer.router.bias is before  # of what is not trained nothing is learned


@pytest.mark.parametrize("size", [1, 2, 8])
def test_the_bias_is_the_global_batchs_whatever_the_micro_batch(size):
    whole, parts = mixture(balance_rate=0.1), mixture(balance_rate=0.1)
    x = torch.randn(8, 5, 32, dtype=torch.float64)
    whole(x)
    micro = MicroBatches(parts, seed=0, size=size)
    micro.step(0, torch.device("cpu"))
    for number, batch in enumerate(x.split(size)):
        micro.begin(number)
        parts(batch)
    micro.end([], torch.tensor(True))
    torch.testing.assert_close(parts.router.bias, whole.router.bias, rtol=0, atol=1e-14)


def test_a_pass_that_is_made_again_takes_the_same_routes():
    """Though the first one has changed the bias, so far here that all tokens would go elsewhere."""
    kept, again = mixture(balance_rate=50.0), mixture(balance_rate=50.0)
    recompute(again)
    x = torch.randn(4, 5, 32, dtype=torch.float64, requires_grad=True)
    for layer in (kept, again):
        micro = MicroBatches(layer, seed=0, size=4)
        micro.step(0, torch.device("cpu"))
        micro.begin(0)
        layer(x).square().sum().backward()
        micro.end([], torch.tensor(True))
    for one, other in zip(kept.parameters(), again.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-12, atol=1e-12)
    assert torch.equal(kept.router.bias, again.router.bias)


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@pytest.mark.parametrize("beside", [{}, {"qk_norm": True, "attention_bias": "qkv"}], ids=str)
def test_what_is_exported_is_a_model_of_transformers(beside, tmp_path):
    workload = load("language_model", SHAPE | {"norm_eps": 1e-5, "kv_heads": 2} | beside)
    torch.manual_seed(0)
    ours = workload.model().eval()
    with torch.no_grad():
        for tensor in (*ours.parameters(), *(b for n, b in ours.named_buffers() if "bias" in n)):
            tensor.add_(torch.randn_like(tensor) * 0.2)
    state = ours.state_dict()
    found, config = workload.export(state)
    back = workload.restore(found)
    assert back.keys() == state.keys()
    assert all(torch.equal(back[name], tensor) for name, tensor in state.items())
    save_file({n: t.contiguous().clone() for n, t in found.items()}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(config))
    theirs, told = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(told.values()), told
    tokens = torch.randint(0, 257, (3, 32), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        one, other = ours(tokens), theirs.float()(tokens).logits
    assert float((one - other).abs().max() / one.abs().max()) < 2e-5
    described = json.loads(theirs.config.to_json_string(use_diff=False))
    assert hugging_face.differences(workload.config, described) == []
    with pytest.raises(TrainingError, match="n_shared_experts is 1; the language model knows 0"):
        hugging_face.settings(described | {"n_shared_experts": 1})


def test_muon_does_not_take_all_experts_for_one_matrix():
    workload = load("language_model", SHAPE)
    model = workload.model()
    names = {weight: name for name, weight in model.named_parameters()}
    found = {names[weight].split(".", 2)[2] for weight in hidden(workload.blocks(model))}
    assert found == {"attention.qkv.weight", "attention.out.weight", "feed_forward.router.weight"}


def test_a_token_costs_what_its_experts_do():
    dense = load("language_model", SHAPE | {"experts": 0, "hidden_dim": 48})
    sparse = load("language_model", SHAPE)  # two of four, of half the width
    routers = 6 * 2 * 4 * 32
    costs = [workload.flops(workload.model()) for workload in (dense, sparse)]
    assert costs[1] - costs[0] == routers


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"experts": 1}, "active_experts 2 of experts 1"),
        ({"experts": 4, "active_experts": 5}, "active_experts 5 of experts 4"),
        ({"experts": 4, "attention_bias": "all"}, "set it to qkv or none"),
    ],
    ids=["one", "too many active", "bias"],
)
def test_impossible_experts_are_refused(fields, expected):
    with pytest.raises(ValueError, match=expected):
        LanguageModelConfig(**fields)


def test_what_cannot_share_experts_is_refused():
    config = LanguageModelConfig(**SHAPE)
    assert refuse_split(config, 1, 2) is None
    assert "share them by expert_parallel" in refuse_split(config, 2, 1)
    assert refuse_layout(config, Layout(expert_parallel=4)) is None
    assert "make experts a multiple" in refuse_layout(config, Layout(expert_parallel=3))
    assert "set compile to false" in refuse_layout(config, Layout(compile=True))
    dense = LanguageModelConfig()
    assert "experts 0 cannot be shared" in refuse_layout(dense, Layout(expert_parallel=2))
