"""Tests of whether a training fits into memory, and of the change that makes it fit."""

from pathlib import Path

import pytest

from pipelines.advice.training_setting import LoopTraining, describe_memory_need, of_recipe, remedy
from pipelines.recipe.read_recipe import load
from tests.conftest import CHECKOUT
from trainyard.foresight.memory import foresee

PROD = CHECKOUT / "recipes/prod.yaml"
SEVEN_BILLION = [f"workload.config.{name}={value}" for name, value in
                 {"dim": 4096, "layers": 32, "heads": 32}.items()]  # fmt: skip
RECOMPUTED = "train.loop.activation_checkpointing=full"


def ours(*overrides: str, recipe: Path = PROD) -> LoopTraining:
    return of_recipe(load(recipe, [*SEVEN_BILLION, *overrides]))


@pytest.mark.parametrize(
    "overrides",
    [
        ("train.loop.activation_checkpointing=none",),
        ("train.loop.activation_checkpointing=none", "train.loop.micro_batch=1",
         "train.loop.strategy=ddp", "train.loop.shard_degree=0"),
        (RECOMPUTED, "train.loop.strategy=deepspeed", "train.loop.shard_degree=0",
         "train.loop.compile=false"),
        ("workload.config.layers=120", "train.loop.micro_batch=1"),
    ],
)  # fmt: skip
def test_with_the_change_that_is_advised_the_training_fits(overrides: tuple[str, ...]):
    """Checked with the same recipe and that change, read from its file."""
    before = ours(*overrides)
    assert foresee(before.setting).fits != "yes"
    said = remedy(before)
    field, _, value = said.removeprefix("set ").partition(": ")[0].partition(" to ")
    assert field.startswith("train.loop."), said
    after = ours(*overrides, f"{field}={value}")
    assert foresee(after.setting).fits == "yes"
    assert after.setting.tokens == before.setting.tokens  # nothing else is learned


def test_where_no_single_change_does_it_says_so():
    assert remedy(ours("workload.config.layers=2000")).startswith("no single change")


def test_what_is_needed_is_told_with_its_interval_and_the_device():
    setting = ours()
    memory = foresee(setting.setting)
    said = describe_memory_need(setting, memory)
    assert f"needs {memory.peak.p50:.1f} GiB" in said and f"– {memory.peak.p90:.1f})" in said
    assert f"of the {memory.usable_gib:.1f} of its A100-40" in said
