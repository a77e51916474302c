"""A setting of foresight's is written as the fields of a recipe that make it."""

from pathlib import Path

import pytest

from pipelines.advice import recipe_advice as engine
from pipelines.advice.training_setting import of_recipe
from pipelines.recipe.read_recipe import load
from trainyard.foresight.layouts import Count, Machine, fitting
from trainyard.foresight.memory import Memory
from trainyard.foresight.memory import foresee as remember
from trainyard.foresight.setting import Setting

PROD = Path("recipes/prod.yaml")
P4D = Machine(gpu="A100-40", gpus=8, node_gbps=400)


def layouts(*overrides: str, nodes: int = 4) -> list[Setting]:
    """Return the recipe's layouts on that many machines that fit and that our loop supports."""
    recipe = load(PROD, overrides)
    it = of_recipe(recipe).setting
    space = engine.space(recipe, it.precision)
    found = fitting(it, P4D, nodes, 1024, space, _remembered, Count())
    return [setting for setting, _ in found]


def _remembered(setting: Setting) -> Memory:
    return remember(setting)


def written(setting: Setting, *overrides: str) -> Setting:
    """Return foresight's setting of the recipe that has the setting's fields."""
    recipe = load(PROD, overrides)
    assert recipe.train.loop
    fields = engine.fields(setting, recipe.train.loop)
    nodes = setting.gpus // setting.gpus_per_node
    changed = [f"train.instance_count={nodes}"]
    changed += [f"train.loop.{name}={value}" for name, value in fields.items()]
    return of_recipe(load(PROD, [*overrides, *changed])).setting


@pytest.mark.parametrize(
    "overrides", [(), ("train.loop.strategy=deepspeed", "train.loop.shard_degree=0")], ids=str
)
def test_the_recipe_makes_the_setting_that_was_advised(overrides: tuple[str, ...]):
    found = {_strategy(one): one for one in layouts(*overrides)}
    assert len(found) > (2 if overrides else 10)
    for setting in found.values():
        assert written(setting, *overrides) == setting


def _strategy(one: Setting) -> tuple:
    degrees = (one.tensor > 1, one.context > 1, one.pipeline > 1, one.interleave > 1)
    return one.shard, one.shard_degree > 0, *degrees


def test_nothing_is_advised_that_the_loop_refuses():
    found = layouts()
    compiled = [one for one in found if one.tensor > 1]
    assert compiled and not any(one.recompute == "selective" for one in compiled)
    recipe = load(PROD)
    refuse = engine.refusing(recipe)
    wide = found[0].model_copy(update={"tensor": 3, "gpus": 24})
    assert "cannot be shared by" in (refuse(wide) or "")
    old = found[0].model_copy(update={"gpu": "V100-16", "precision": "fp16"})
    assert "V100-16 has no bfloat16: set train.loop.precision to float16" in (refuse(old) or "")
    assert engine.refusing(load(PROD, ["train.loop.precision=float16"]))(old) is None


def test_what_fsdp_alone_takes_goes_back_where_weights_are_copied():
    recipe = load(PROD, ["train.loop.forward_prefetch=1"])
    assert recipe.train.loop
    copied = layouts()[0].model_copy(update={"shard": "none", "shard_degree": 0})
    fields = engine.fields(copied, recipe.train.loop)
    assert fields["strategy"] == "ddp" and fields["forward_prefetch"] == 0
    assert engine.refusing(recipe)(copied.model_copy(update={"micro_batch": 1})) is None
