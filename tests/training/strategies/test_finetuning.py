"""Models with frozen, unused, tied and batch-normalised weights train, save and resume bit for bit.

The sweep has all models under all strategies.
"""

import functools
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from steps.train import job
from tests.training import worlds
from tests.training.strategies.cases import distance
from tests.training.strategies.tuned_models import MODELS, SETTINGS, STEPS, STRATEGIES
from tests.training.torches import trains_here
from tests.training.trainings import TOYS, arguments, losses, write_ragged
from training.export.artifact import load_artifact

pytestmark = pytest.mark.long

EXACT = 1e-12  # relative, in float64


def settings_of(model: str, strategy: str) -> dict:
    return SETTINGS | STRATEGIES[strategy][1] | {"workload_config": json.dumps(MODELS[model])}


def compile_quickly() -> None:
    """Run torch.compile without the code generator, which takes most of its time."""
    torch.compile = functools.partial(torch.compile, backend="aot_eager")


def write_data(root: Path) -> Path:
    write_ragged(root / "input/data/train", 100, seed=1)
    write_ragged(root / "input/data/validation", 10, seed=2)
    return root


@pytest.fixture
def alone(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(TOYS))

    def run(name: str, **settings) -> Path:
        root = write_data(tmp_path / "alone" / name)
        job.main(arguments(root, settings))
        return root

    return run


def first_losses(root: Path) -> dict[int, float]:
    lines = (root / "first/history.jsonl").read_text().splitlines()
    return {one["step"]: one["loss"] for one in map(json.loads, lines) if "loss" in one}


def resumed_as_it_was(root: Path) -> bool:
    printed = (root / "rank-0.log").read_text()
    assert f"resumed from the checkpoint of step {STEPS // 2}" in printed, printed[-3000:]
    models = [(root / name / "model.safetensors").read_bytes() for name in ("first", "model")]
    return models[0] == models[1] and losses(root) == first_losses(root)


@pytest.mark.sweep
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("model", MODELS)
def test_every_strategy_gives_the_curve_of_one_process_and_resumes_bitwise(alone, tmp_path, model):
    for world in (1, 2, 3, 4):
        cases = {
            write_data(tmp_path / f"{model}, {name}"): settings_of(model, name)
            for name, (ranks, _) in STRATEGIES.items()
            if ranks == world and trains_here(settings_of(model, name))
        }
        worlds.train_and_resume(cases, world, STEPS, compile_quickly)
        for root, settings in cases.items():
            assert resumed_as_it_was(root), root
            if model == "torch's dropout" and "pipeline_parallel" in settings:
                continue  # each stage has its own masks: torch draws them in sequence
            one = settings_of(model, "single") | {"global_batch": settings["global_batch"]}
            expected = alone(f"{root.name} by one", **one)
            for kind in ("loss", "validation_loss"):
                assert distance(losses(root, kind), losses(expected, kind)) < EXACT, root
            same_state(root, expected)


def same_state(root: Path, expected: Path) -> None:
    """Compare weights and buffers, whichever rank saw the batches."""
    mine, theirs = (load_file(r / "model/model.safetensors") for r in (root, expected))
    assert mine.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert torch.allclose(mine[name], tensor, rtol=1e-9, atol=1e-12), name


@pytest.mark.parametrize(("model", "micro_batch"), [("all of it", 4), ("frozen body", 16)])
def test_dropout_and_ties_do_not_depend_on_the_micro_batch(alone, model, micro_batch):
    settings = settings_of(model, "single")
    if model == "all of it":  # but for BatchNorm, which normalises by it
        settings |= {"workload_config": json.dumps(MODELS[model] | {"norm": ""})}
    one = alone("one", **settings)
    other = alone("other", **settings | {"micro_batch": micro_batch})
    assert distance(losses(one), losses(other)) < EXACT


def test_a_tied_weight_is_written_once_and_read_as_it_was(alone):
    root = alone("tied", **settings_of("tied", "single"))
    described = json.loads((root / "model/config.json").read_text())
    assert described["tied_weights"] == {"head.weight": "embedding.weight"}
    weights = load_file(root / "model/model.safetensors")
    assert "head.weight" not in weights
    assert described["parameters"] == sum(tensor.numel() for tensor in weights.values())
    _, model, _ = load_artifact(root / "model")
    assert model.head.weight is model.embedding.weight
    assert torch.equal(model.head.weight, weights["embedding.weight"].to(model.head.weight))


def test_nothing_to_train_is_said_before_the_first_step(alone, tmp_path):
    with pytest.raises(SystemExit):
        alone("frozen", **SETTINGS | {"strategy": "single", "workload_config": '{"frozen": "all"}'})
    failure = (tmp_path / "alone/frozen/output/failure").read_text()
    assert failure.startswith("all weights of the model are frozen")


@pytest.mark.slow
def test_a_tie_that_tensor_parallel_would_tear_is_refused_before_the_first_step(tmp_path):
    root = write_data(tmp_path / "torn")
    config = {"tied": True, "splits": False}
    settings = settings_of("tied", "tensor × 2") | {"workload_config": json.dumps(config)}
    worlds.train_each({root: settings}, 2)
    failure = (root / "output/failure").read_text()
    assert failure.startswith("embedding.weight and head.weight are one weight, but became two")
    assert "step=1" not in (root / "rank-0.log").read_text()


def test_what_fails_after_the_last_step_leaves_its_reason(alone, tmp_path, monkeypatch):
    from training.export import artifact

    monkeypatch.setattr(artifact, "save_artifact", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        alone("broken", **settings_of("plain", "single"))
    failure = (tmp_path / "alone/broken/output/failure").read_text()
    assert failure == "ZeroDivisionError: division by zero"


@pytest.mark.parametrize(
    ("model", "another"),
    [
        ({"dropout": 0.3}, False),
        ({"norm": "frozen batch"}, False),
        ({"norm": "batch"}, True),
        ({"dropout": 0.3, "kind": "torch"}, True),
        ({"dropout": 0.3, "kind": "functional", "said": True}, True),
    ],
)
def test_the_micro_batch_makes_another_training_where_it_shapes_the_weights(alone, model, another):
    settings = {"strategy": "single", "workload_config": json.dumps(model)}
    settings |= {"max_steps": 1, "checkpoint_interval": 1, "validation_interval": 1}
    root = alone("one", **SETTINGS | settings)
    job.main(arguments(root, SETTINGS | settings | {"micro_batch": 4}))
    assert len([*root.glob("checkpoints/*/step-*")]) == 1 + another


def test_draws_that_nobody_declared_end_the_job_at_its_first_step(alone, tmp_path):
    config = json.dumps({"dropout": 0.3, "kind": "functional"})
    with pytest.raises(SystemExit):
        alone("undeclared", **SETTINGS | {"strategy": "single", "workload_config": config})
    root = tmp_path / "alone/undeclared"
    assert "set by_batch = True" in (root / "output/failure").read_text()
    assert not [*root.glob("checkpoints/*/step-*")]
