"""Emulated float8 products: their results, what stays unchanged, and scales of whole tensors."""

import json
from collections import Counter

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from steps.train import job
from tests.training import trainings, worlds
from tests.training.strategies.cases import MODEL, SETTINGS, container, distance, write_data
from tests.training.torches import since
from tests.training.trainings import arguments, history, losses
from training import strategies
from training.config import TrainConfig
from training.strategies.ranks import Ranks
from training.strategies.single import Strategy
from training.strategy_table import OPTIONS
from training.workloads import load_workload
from trainyard.common.errors import TrainingError

pytestmark = [since(OPTIONS["float8"].least_torch, "float8"), pytest.mark.long]

DIM = 64

LARGEST = {torch.float8_e4m3fn: 448.0, torch.float8_e5m2: 57344.0}
"""Largest numbers of both types (OCP 8-bit Floating Point Specification, table 2)."""


def config(**settings) -> TrainConfig:
    return trainings.config(**{"strategy": "single", "precision": "float32"} | settings)


def convert_to_float8(model: nn.Module, **settings) -> nn.Module:
    from training.strategies import float8

    float8.convert_linear_layers([model], config(**settings), torch.device("cpu"), emulate=True)
    return model


def round_scaled(x: Tensor, kind: torch.dtype, along: int | None) -> Tensor:
    """Return ``x`` rounded to 8 bits, with one scale, or one for all elements along ``along``."""
    largest = x.abs().max() if along is None else x.abs().amax(along, keepdim=True)
    scale = (LARGEST[kind] / largest.double()).float()
    if along is not None:
        scale = torch.exp2(torch.floor(torch.log2(scale)))
    return (x * scale).to(kind).float() / scale


@pytest.mark.parametrize("float8", ["tensorwise", "rowwise"])
def test_products_and_gradients_are_those_of_rounded_factors(float8):
    torch.manual_seed(0)
    x, grown = torch.randn(32, 48, requires_grad=True), torch.randn(32, 64)
    layer = convert_to_float8(nn.Sequential(nn.Linear(48, 64)), float8=float8)[0]
    layer(x).backward(grown)
    rows = float8 == "rowwise"
    small = torch.float8_e4m3fn
    narrow = small if rows else torch.float8_e5m2  # of gradients
    weight = layer.weight.detach()
    along = (lambda dimension: dimension) if rows else (lambda dimension: None)
    out = round_scaled(x.detach(), small, along(1)) @ round_scaled(weight, small, along(1)).T
    into = round_scaled(grown, narrow, along(1)) @ round_scaled(weight, small, along(0))
    held = round_scaled(grown, narrow, along(0)).T @ round_scaled(x.detach(), small, along(0))
    torch.testing.assert_close(layer(x), out + layer.bias)
    torch.testing.assert_close(x.grad, into)
    torch.testing.assert_close(layer.weight.grad, held)
    exact = nn.functional.linear(x, layer.weight, layer.bias)
    assert torch.equal(layer.eval()(x), exact) and not torch.equal(layer.train()(x), exact)


def test_what_is_no_plain_layer_of_the_right_width_stays_as_it_is():
    class Other(nn.Linear):
        pass

    called, model = [], nn.Sequential(nn.Linear(32, 32), Other(32, 32), nn.Linear(32, 8))
    first = model[0]
    first.register_forward_hook(lambda *given: called.append(given))
    kinds, names = [type(one) for one in model], [*model.state_dict()]
    convert_to_float8(model, float8="tensorwise")
    assert [type(one) is kind for one, kind in zip(model, kinds, strict=True)] == [0, 1, 1]
    assert model[0] is first and [*model.state_dict()] == names
    model(torch.randn(16, 32))
    assert called
    with pytest.raises(TrainingError, match="a layer 15 rows, .* needs a multiple of 16"):
        model(torch.randn(15, 32))


@pytest.mark.parametrize(
    ("layer", "settings", "expected"),
    [
        (nn.Linear(32, 8), {}, "no linear layer .* multiples of 16; theirs are: 8 × 32"),
        (nn.GELU(), {}, "theirs are: none. Set float8 to none"),
        (nn.Linear(32, 48), {"strategy": "ddp", "tensor_parallel": 2},
         "0, 48 × 32, cannot be shared by tensor_parallel 2 ranks in multiples of 16"),
    ],
    ids=["narrow", "none", "split"],
)  # fmt: skip
def test_a_model_that_has_no_such_product_is_refused(layer, settings, expected):
    with pytest.raises(TrainingError, match=expected):
        convert_to_float8(nn.Sequential(layer), float8="rowwise", **settings)


def prepare_strategy(**settings) -> Strategy:
    workload = load_workload("language_model", MODEL)
    chosen = config(**settings)
    strategy = strategies.select_strategy(chosen)(
        chosen, workload, Ranks(0, 0, 1, torch.device("cpu"))
    )
    torch.manual_seed(0)
    strategy.prepare(workload.model())
    return strategy


def test_weights_names_and_validation_know_nothing_of_it():
    plain, other = (
        prepare_strategy(precision="bfloat16", float8=one) for one in ("none", "tensorwise")
    )
    batch = {"tokens": torch.randint(97, 123, (4, 33), dtype=torch.int32)}
    gradients = []
    for strategy in (plain, other):
        strategy.begin(0)
        strategy.backward([batch], torch.full((), 128.0, dtype=torch.float64))
        gradients.append(strategy.model.blocks["0"].attention.qkv.weight.grad.clone())
    assert 0 < (gradients[1] - gradients[0]).norm() < 0.1 * gradients[0].norm()
    found, expected = other.collect_state(), plain.collect_state()
    assert [*found] == [*expected]
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor) and found[name].dtype == tensor.dtype, name
    for strategy in (plain, other):
        strategy.model.eval()
    with torch.no_grad():
        assert torch.equal(other.validate(batch), plain.validate(batch))


def test_a_weight_that_is_cast_before_it_is_gathered_is_a_byte_over_the_wire():
    cast = {"float8": "tensorwise", "float8_all_gather": True}
    narrow, wide = (count_gathered_types(precision="bfloat16", **one) for one in (cast, {}))
    block = 4 * 4 * DIM * DIM  # queries, keys, values and the output, of a float32 model of DIM
    assert narrow[torch.uint8] > 0 and torch.uint8 not in wide
    assert wide[torch.bfloat16] > narrow[torch.uint8] + narrow.get(torch.bfloat16, 0) + block


class Gathers(TorchDispatchMode):
    """Counts the bytes that all-gathers bring to this rank's group, by type."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[torch.dtype] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.c10d._allgather_base_.default:
            self.found[args[0].dtype] += args[0].nbytes
        return func(*args, **(kwargs or {}))


def count_gathered_types(**settings) -> Counter[torch.dtype]:
    """Count what rank 0 of four gathers in a step; no other rank exists."""
    with worlds.imagined_group(0, 4):
        chosen = config(strategy="fsdp", micro_batch=1, **settings)
        workload = load_workload("language_model", MODEL | {"dim": DIM})
        strategy = strategies.select_strategy(chosen)(
            chosen, workload, Ranks(0, 0, 4, torch.device("cpu"))
        )
        strategy.prepare(workload.model())
        strategy.begin(0)
        tokens = torch.randint(97, 123, (1, 33), dtype=torch.int32)
        with Gathers() as counting:
            strategy.backward([{"tokens": tokens}], torch.full((), 32.0, dtype=torch.float64))
        return counting.found


@pytest.mark.slow
def test_weights_that_are_cast_before_they_are_gathered_have_the_scales_of_whole_ones(tmp_path):
    """In the first step only the order of sums differs; in the second a sum's last digit may change
    a weight's rounding to 8 bits.
    """
    write_data(tmp_path / "data")
    steps = SETTINGS | {"workload_config": json.dumps(MODEL | {"layers": 2}), "max_steps": 2}
    steps |= {"precision": "float32", "float8": "tensorwise"}
    steps |= {"checkpoint_interval": 2, "validation_interval": 2}
    alone, gathered = (container(tmp_path / "data", tmp_path / n) for n in ("alone", "gathered"))
    job.main(arguments(alone, steps | {"strategy": "single"}))
    worlds.train_each({gathered: steps | {"strategy": "fsdp", "float8_all_gather": True}}, 2)
    ours, expected = ([*history(root)][0] for root in (gathered, alone))
    assert ours["step"] == expected["step"] == 1
    assert ours["loss"] == pytest.approx(expected["loss"], rel=1e-6)
    assert ours["grad_norm"] == pytest.approx(expected["grad_norm"], rel=1e-5)
    for kind in ("loss", "validation_loss"):
        assert distance(losses(gathered, kind), losses(alone, kind)) < 1e-3
