"""What a training needs of its devices' memory, in words."""

from pathlib import Path

from pipelines.advice.training_setting import LoopTraining, describe_memory_need, of_recipe
from pipelines.recipe.read_recipe import load
from tests.conftest import CHECKOUT
from trainyard.foresight.memory import foresee

PROD = CHECKOUT / "recipes/prod.yaml"
SEVEN_BILLION = [f"workload.config.{name}={value}" for name, value in
                 {"dim": 4096, "layers": 32, "heads": 32}.items()]  # fmt: skip


def ours(*overrides: str, recipe: Path = PROD) -> LoopTraining:
    return of_recipe(load(recipe, [*SEVEN_BILLION, *overrides]))


def test_what_is_needed_is_told_with_its_interval_and_the_device():
    setting = ours()
    memory = foresee(setting.setting)
    said = describe_memory_need(setting, memory)
    assert f"needs {memory.peak.p50:.1f} GiB" in said and f"– {memory.peak.p90:.1f})" in said
    assert f"of the {memory.usable_gib:.1f} of its A100-40" in said
