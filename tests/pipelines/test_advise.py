"""Tests of ``python -m pipelines.advise``: advice for a training, and the recipe that adopts it."""

import json
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import yaml

from pipelines.advice.training_setting import derive_recipe_training
from pipelines.recipe.read_recipe import load_recipe
from pipelines.validate import validate_recipe as validated
from tests.conftest import call_module

pytestmark = pytest.mark.long

PROD = Path("recipes/prod.yaml")


def advise(*arguments: str) -> CompletedProcess:
    return call_module("pipelines.advise", *arguments)


def test_the_written_recipe_is_valid_and_makes_what_was_advised(tmp_path: Path):
    place = tmp_path / "advised.yaml"
    arguments = ("--recipe", str(PROD), "--max-nodes", "8", "--set", "gate.min_examples=9")
    out = advise(*arguments, "--apply", str(place), "--json").stdout
    best = json.loads(out)["advised"][0]
    recipe = load_recipe(place)
    assert recipe.gate.min_examples == 9
    assert recipe.train.instance_count == best["instances"]
    setting = derive_recipe_training(recipe).setting
    assert setting.model_dump(exclude_defaults=True) == best["setting"]
    assert [f for f in validated(place, ())[1] if f.severity == "error"] == []
    assert set(yaml.safe_load(place.read_text())) == {"extends", "gate", "train"}
    assert place.read_text().startswith("# By python -m pipelines.advise --recipe recipes/prod")


def test_what_the_recipe_has_to_do_with_it_is_said():
    done = advise("--recipe", str(PROD), "--max-nodes", "4", "--deadline", "8d")
    assert done.returncode == 0
    for part in (
        "misses the deadline",
        "train.loop.global_batch 1024 stays",
        "interruptions, a save every",
        "layouts are refused by our loop; one reason: ",
        "assumed: a vocabulary of 50,304",
    ):
        assert part in done.stdout


def test_a_recipe_of_a_laptop_is_advised_for_machines_that_are_named(tmp_path: Path):
    done = advise("--recipe", "recipes/laptop.yaml")
    assert done.returncode == 1 and "train.instance_type ml.m5.large" in done.stderr
    assert "--instances" in done.stderr
    place = tmp_path / "gpu.yaml"
    named = ("--instances", "ml.g5.12xlarge", "--max-nodes", "2", "--apply", str(place))
    assert advise("--recipe", "recipes/laptop.yaml", *named).returncode == 0
    assert load_recipe(place).train.instance_type == "ml.g5.12xlarge"


def test_fallbacks_are_advised_too_and_do_not_stand_twice(tmp_path: Path):
    place = tmp_path / "other.yaml"
    fallback = "train.fallback_instance_types=[ml.p4de.24xlarge,ml.p5.48xlarge]"
    few = ("--max-nodes", "4", "--set", fallback, "--budget", "1e9")
    done = advise("--recipe", str(PROD), *few, "--json", "--apply", str(place))
    assert len(json.loads(done.stdout)["question"]["instances"]) == 3
    train = load_recipe(place).train
    assert train.instance_type == "ml.p5.48xlarge"
    assert train.fallback_instance_types == ("ml.p4de.24xlarge",)


def test_a_script_cannot_be_foreseen_and_the_language_model_needs_no_tracing():
    for words, said in (
        (("--recipe", "examples/trainer.yaml"), "the computation of"),
        (("--recipe", str(PROD), "--trace"), "predicted by formula"),
    ):
        done = advise(*words)
        assert done.returncode == 1 and said in " ".join(done.stderr.split())
