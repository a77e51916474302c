"""The exported model."""

import json
from pathlib import Path

import pytest
import torch

from training.export.artifact import load_artifact, save_artifact
from training.export.weight_location import LocalWeights
from training.workloads import load_workload
from trainyard.common.errors import DataError

SETTINGS = {"context_length": 8, "layers": 1, "heads": 2, "dim": 16}


@pytest.fixture
def saved_model(tmp_path: Path) -> tuple[Path, torch.nn.Module]:
    workload = load_workload("language_model", SETTINGS)
    model = workload.model()
    description = {"workload": "language_model", "workload_config": SETTINGS, "steps": 3}
    lines = [{"step": 1, "loss": 2.5}]
    save_artifact(tmp_path, LocalWeights(model.state_dict()), workload, description, lines)
    return tmp_path, model


def test_the_model_reads_back_and_answers_the_same(saved_model):
    folder, model = saved_model
    _, found, description = load_artifact(folder)
    tokens = torch.randint(0, 257, (2, 8))
    assert torch.equal(found(tokens), model(tokens))
    assert not found.training and description["steps"] == 3
    assert json.loads((folder / "history.jsonl").read_text()) == {"step": 1, "loss": 2.5}
    assert not list(folder.glob(".*"))


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda f: (f / "config.json").unlink(), "config.json: is missing"),
        (lambda f: (f / "model.safetensors").unlink(), "model.safetensors: is missing"),
        (lambda f: (f / "model.safetensors").write_bytes(b"not weights"), "weights are not those"),
        (lambda f: edit(f, workload_config=SETTINGS | {"dim": 32}), "weights are not those"),
        (lambda f: edit(f, workload_config=SETTINGS | {"layers": 2}), "weights are not those"),
        (lambda f: (f / "config.json").write_bytes(b"{"), "config.json: is damaged"),
        (lambda f: (f / "config.json").write_bytes(b"{}"), "config.json: is damaged"),
    ],
)
def test_damage_is_named(saved_model, damage, expected):
    damage(saved_model[0])
    with pytest.raises(DataError, match=expected):
        load_artifact(saved_model[0])


def edit(folder: Path, **fields) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def test_the_language_model_loads_without_our_code(tmp_path):
    """Loads with Hugging Face's transformers; the text is long enough for positions to matter."""
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    settings = {"context_length": 24, "layers": 2, "heads": 2, "dim": 16}
    workload = load_workload("language_model", settings)
    model = workload.model()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.5)
    description = {"workload": "language_model", "workload_config": settings, "steps": 3}
    save_artifact(tmp_path, LocalWeights(model.state_dict()), workload, description, [])
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path)
    tokens = torch.randint(0, 257, (2, 24))
    with torch.no_grad():
        assert torch.allclose(theirs(tokens).logits, model(tokens), atol=1e-4)
    assert theirs.config.eos_token_id == workload.tokenizer.end
