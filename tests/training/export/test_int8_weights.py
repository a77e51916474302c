"""int8 weights: close to the full ones, smaller, and in an artifact like any other."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from training.export import artifact
from training.export.safetensors_file import SCALE, dequantise_weights, quantise_weight, write
from training.export.weight_location import LocalWeights
from training.weights.finetuning import base_model
from training.workloads import load
from trainyard.common.errors import DataError

SETTINGS = {"context_length": 16, "layers": 2, "heads": 2, "dim": 32}
TOKENS = torch.arange(32).view(2, 16)


@pytest.fixture
def both(tmp_path: Path) -> tuple[Path, Path]:
    """The folders of a language model, full and as int8."""
    torch.manual_seed(0)
    workload = load("language_model", SETTINGS)
    described = {"workload": "language_model", "workload_config": SETTINGS}
    state = workload.model().state_dict()
    artifact.save(tmp_path / "full", LocalWeights(state), workload, described, [])
    artifact.add_code(tmp_path / "full", "language_model")
    write(tmp_path / "full", tmp_path / "int8")
    return tmp_path / "full", tmp_path / "int8"


@given(
    st.lists(st.integers(1, 6), min_size=2, max_size=4),
    st.floats(1e-30, 1e30),
    st.integers(0, 99),
)
def test_each_weight_is_half_a_step_of_its_channel_away_at_most(shape, size, seed):
    weight = torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * size
    weight[0] = 0
    stored, scale = quantise_weight(weight)
    assert (stored.dtype, stored.shape) == (torch.int8, weight.shape)
    found = dequantise_weights({"w": stored, "w" + SCALE: scale})["w"]
    step = weight.abs().flatten(1).amax(1).view(scale.shape) / 127
    assert ((found - weight).abs() <= 0.501 * step).all() and not found[0].any()


def test_the_artifact_opens_like_any_other_and_is_near(both):
    full, int8 = both
    _, whole, _ = artifact.open_artifact(full)
    _, found, description = artifact.open_artifact(int8)
    assert description["workload"] == "language_model" and not found.training
    with torch.inference_mode():
        away = (found(TOKENS) - whole(TOKENS)).norm() / whole(TOKENS).norm()
    assert 0 < away < 0.02
    sizes = [(folder / "model.safetensors").stat().st_size for folder in both]
    assert sizes[1] < 0.35 * sizes[0]
    here = {p.relative_to(full) for p in full.rglob("*") if p.is_file()}
    assert here == {p.relative_to(int8) for p in int8.rglob("*") if p.is_file()}


def test_a_training_may_begin_with_it(both):
    _, int8 = both
    workload = load("language_model", SETTINGS)
    model = workload.model()
    base_model.fill(model, workload, "language_model", int8, "s3://b/m")
    _, served, _ = artifact.open_artifact(int8)
    assert torch.equal(model(TOKENS), served(TOKENS))


def test_transformers_refuses_it_rather_than_reading_integers_as_weights(both):
    from transformers import AutoModelForCausalLM

    with pytest.raises(ValueError, match="model_type"):
        AutoModelForCausalLM.from_pretrained(both[1])


def test_what_cannot_be_quantised_is_refused(both, tmp_path: Path):
    full = both[0]
    weights = load_file(full / "model.safetensors")
    name = next(name for name, weight in weights.items() if weight.dim() > 1)
    for value in (torch.nan, torch.inf):
        weights[name][0, 0] = value
        save_file(weights, full / "model.safetensors")
        with pytest.raises(DataError, match=f"weight {name} is not finite"):
            write(full, tmp_path / "another")
    save_file({"bias": torch.ones(3)}, full / "model.safetensors")
    with pytest.raises(DataError, match="no weight of the model has two dimensions"):
        write(full, tmp_path / "another")
