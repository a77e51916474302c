"""Foresight's settings of our trainings, from recipes and jobs, and the recipe that makes one."""

from pathlib import Path

import pytest

from pipelines.advice import recipe_advice as engine
from pipelines.advice.training_setting import (
    LoopTraining,
    derive_job_training,
    derive_recipe_training,
    describe_memory_need,
)
from pipelines.recipe.read_recipe import load_recipe
from trainyard.common.errors import ForesightError
from trainyard.foresight.cloud_machines import GPUS
from trainyard.foresight.layouts import Count, Machine, iter_fitting_layouts
from trainyard.foresight.memory import predict_memory
from trainyard.foresight.setting import Setting
from trainyard.instance_types import MACHINES

PROD = Path("recipes/prod.yaml")
P5 = "train.instance_type=ml.p5.48xlarge"


def job(*overrides: str, **changed: str) -> dict[str, str]:
    """Return the hyperparameters that the recipe's job gets."""
    recipe = load_recipe(PROD, overrides)
    assert recipe.train.loop
    loop = {name: str(v) for name, v in recipe.train.loop.model_dump(mode="json").items()}
    workload = {"workload": "language_model"}
    workload["workload_config"] = recipe.workload_config.model_dump_json()
    return loop | workload | changed


def derive_training(*overrides: str) -> LoopTraining:
    return derive_recipe_training(load_recipe(PROD, overrides))


def test_the_recipe_of_a_real_shape_is_the_setting_that_it_describes():
    found = derive_training()
    setting = found.setting
    assert (setting.gpu, setting.gpus, setting.node_size, setting.node_gbps) == (
        "A100-40", 32, 8, 400)  # fmt: skip
    assert (setting.layers, setting.hidden, setting.heads, setting.gated) == (24, 2048, 16, True)
    assert setting.ffn == 5472 and setting.tied
    assert (setting.shard, setting.sharded_over, setting.recompute) == ("full", 8, "none")
    assert (setting.micro_batch, setting.accumulation, setting.sequence) == (8, 4, 2048)
    assert setting.tokens == 1024 * 2048
    assert found.steps == 50_000
    assert found.assumptions == ("a vocabulary of 50,304: the true size is in tokenizer.json",)


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("workload.config.vocabulary=32000", "train.loop.precision=float32",
         "train.loop.reshard_after_forward=never"),
        ("train.loop.tensor_parallel=2", "train.loop.pipeline_parallel=2"),
        ("train.loop.precision=float16",),
        (P5, "train.loop.float8=rowwise"),
        (P5, "train.loop.float8=tensorwise", "train.loop.float8_all_gather=true"),
    ],
)  # fmt: skip
def test_the_job_says_as_much_as_its_recipe(overrides: tuple[str, ...]):
    recipe = derive_training(*overrides)
    machine = "ml.p5.48xlarge" if P5 in overrides else "ml.p4d.24xlarge"
    assert derive_job_training(job(*overrides), machine, 4) == recipe
    assert recipe.setting.float8_gather == ("train.loop.float8_all_gather=true" in overrides)


@pytest.mark.parametrize(
    ("overrides", "shard"),
    [
        (("train.loop.strategy=fsdp",), "full"),
        (("train.loop.reshard_after_forward=never",), "gradients"),
        (("train.loop.strategy=ddp", "train.loop.shard_degree=0"), "none"),
        (("train.loop.strategy=deepspeed", "train.loop.shard_degree=0", "train.loop.zero_stage=2"),
         "gradients"),
    ],
)  # fmt: skip
def test_what_a_strategy_shards(overrides: tuple[str, ...], shard: str):
    setting = derive_training(*overrides).setting
    assert setting.shard == shard
    assert setting.deepspeed == ("train.loop.strategy=deepspeed" in overrides)


@pytest.mark.parametrize(
    ("where", "changed", "why"),
    [
        (("ml.m5.large", 4), {}, "ml.m5.large has no GPU"),
        (("ml.trn1.32xlarge", 4), {}, "trainium, for which .* no training figures"),
        (("ml.p9.48xlarge", 4), {}, "ml.p9.48xlarge is not in"),
        (("ml.p4d.24xlarge", 4, 16), {}, "16 ranks share the 8 accelerators"),
        (("ml.p4d.24xlarge", 3), {}, "impossible.*1024"),
        (("ml.p4d.24xlarge", 4), {"workload": "image", "workload_config": "{}"}, "workload image"),
        (("ml.p4d.24xlarge", 4), {"precision": "float64"}, "float64"),
        (("ml.p4d.24xlarge", 4), {"float8": "rowwise"}, "fp8: A100-40 does not support it"),
        (("ml.p4d.24xlarge", 4), {"tuning": '{"freeze": ["blocks.0.*"]}'}, "freeze"),
        (("ml.p4d.24xlarge", 4), {"max_steps": "many"}, "max_steps"),
    ],
)
def test_what_is_not_foreseen_says_why(where: tuple, changed: dict[str, str], why: str):
    with pytest.raises(ForesightError, match=f"(?s){why}"):
        derive_job_training(job(**changed), *where)
    with pytest.raises(ForesightError, match="its computation is not known"):
        derive_job_training({"epochs": "3"}, "ml.p4d.24xlarge", 1)


def test_what_is_needed_is_told_with_its_interval_and_the_device():
    shape = {"dim": 4096, "layers": 32, "heads": 32}
    training = derive_training(
        *(f"workload.config.{name}={value}" for name, value in shape.items())
    )
    memory = predict_memory(training.setting)
    said = describe_memory_need(training, memory)
    assert f"needs {memory.peak.p50:.1f} GiB" in said and f"– {memory.peak.p90:.1f})" in said
    assert f"of the {memory.usable_gib:.1f} of its A100-40" in said


@pytest.mark.parametrize(
    ("machine", "gpu"),
    [
        ("ml.p4de.24xlarge", "A100-80"),
        ("ml.p5.48xlarge", "H100-80"),
        ("ml.p3dn.24xlarge", "V100-32"),
        ("ml.g6.xlarge", "L4"),
        ("ml.g6e.xlarge", "L40S"),
    ],
)
def test_a_machine_has_the_gpu_of_its_name_and_memory(machine: str, gpu: str):
    setting = derive_job_training(job(shard_degree="0", precision="auto"), machine, 1).setting
    assert setting.gpu == gpu
    assert GPUS[gpu].memory_gib <= MACHINES[machine].accelerator_memory_gib


P4D = Machine(gpu="A100-40", gpus=8, node_gbps=400)


def layouts(*overrides: str, nodes: int = 4) -> list[Setting]:
    """Return the recipe's layouts on that many machines that fit and that our loop supports."""
    recipe = load_recipe(PROD, overrides)
    it = derive_recipe_training(recipe).setting
    space = engine.build_search_space(recipe, it.precision)
    found = iter_fitting_layouts(it, P4D, nodes, 1024, space, predict_memory, Count())
    return [setting for setting, _ in found]


def derive_written_setting(setting: Setting, *overrides: str) -> Setting:
    """Return foresight's setting of the recipe that has the setting's fields."""
    recipe = load_recipe(PROD, overrides)
    assert recipe.train.loop
    fields = engine.build_loop_fields(setting, recipe.train.loop)
    nodes = setting.gpus // setting.gpus_per_node
    changed = [f"train.instance_count={nodes}"]
    changed += [f"train.loop.{name}={value}" for name, value in fields.items()]
    return derive_recipe_training(load_recipe(PROD, [*overrides, *changed])).setting


@pytest.mark.parametrize(
    "overrides", [(), ("train.loop.strategy=deepspeed", "train.loop.shard_degree=0")], ids=str
)
def test_the_recipe_makes_the_setting_that_was_advised(overrides: tuple[str, ...]):
    found = {_strategy(one): one for one in layouts(*overrides)}
    assert len(found) > (2 if overrides else 10)
    for setting in found.values():
        assert derive_written_setting(setting, *overrides) == setting


def _strategy(one: Setting) -> tuple:
    degrees = (one.tensor > 1, one.context > 1, one.pipeline > 1, one.interleave > 1)
    return one.shard, one.shard_degree > 0, *degrees


def test_nothing_is_advised_that_the_loop_refuses():
    found = layouts()
    compiled = [one for one in found if one.tensor > 1]
    assert compiled and not any(one.recompute == "selective" for one in compiled)
    recipe = load_recipe(PROD)
    refuse = engine.make_layout_check(recipe)
    wide = found[0].model_copy(update={"tensor": 3, "gpus": 24})
    assert "cannot be shared by" in (refuse(wide) or "")
    old = found[0].model_copy(update={"gpu": "V100-16", "precision": "fp16"})
    assert "V100-16 does not support bfloat16: set train.loop.precision to float16" in (
        refuse(old) or ""
    )
    assert (
        engine.make_layout_check(load_recipe(PROD, ["train.loop.precision=float16"]))(old) is None
    )


def test_what_fsdp_alone_takes_goes_back_where_weights_are_copied():
    recipe = load_recipe(PROD, ["train.loop.forward_prefetch=1"])
    assert recipe.train.loop
    copied = layouts()[0].model_copy(update={"shard": "none", "shard_degree": 0})
    fields = engine.build_loop_fields(copied, recipe.train.loop)
    assert fields["strategy"] == "ddp" and fields["forward_prefetch"] == 0
    assert engine.make_layout_check(recipe)(copied.model_copy(update={"micro_batch": 1})) is None
