"""Tests of foresight's settings of our trainings, from recipes and from jobs."""

from pathlib import Path

import pytest

from pipelines.advice.training_setting import LoopTraining, of_job, of_recipe
from pipelines.recipe.read_recipe import load
from trainyard.common.errors import ForesightError
from trainyard.foresight.cloud_machines import GPUS
from trainyard.instance_types import MACHINES

PROD = Path("recipes/prod.yaml")
P5 = "train.instance_type=ml.p5.48xlarge"


def job(*overrides: str, **changed: str) -> dict[str, str]:
    """Return the hyperparameters that the recipe's job gets."""
    recipe = load(PROD, overrides)
    assert recipe.train.loop
    loop = {name: str(v) for name, v in recipe.train.loop.model_dump(mode="json").items()}
    workload = {"workload": "language_model"}
    workload["workload_config"] = recipe.workload_config.model_dump_json()
    return loop | workload | changed


def ours(*overrides: str) -> LoopTraining:
    return of_recipe(load(PROD, overrides))


def test_the_recipe_of_a_real_shape_is_the_setting_that_it_describes():
    found = ours()
    setting = found.setting
    assert (setting.gpu, setting.gpus, setting.node_size, setting.node_gbps) == (
        "A100-40",
        32,
        8,
        400,
    )
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
        (
            "workload.config.vocabulary=32000",
            "train.loop.strategy=ddp",
            "train.loop.shard_degree=0",
        ),
        ("train.loop.tensor_parallel=2", "train.loop.pipeline_parallel=2"),
        ("train.loop.precision=float32", "train.loop.reshard_after_forward=never"),
        ("train.loop.precision=float16",),
        (P5, "train.loop.float8=rowwise"),
        (P5, "train.loop.float8=tensorwise", "train.loop.float8_all_gather=true"),
    ],
)
def test_the_job_says_as_much_as_its_recipe(overrides: tuple[str, ...]):
    recipe = ours(*overrides)
    machine = "ml.p5.48xlarge" if P5 in overrides else "ml.p4d.24xlarge"
    assert of_job(job(*overrides), machine, 4) == recipe
    assert recipe.setting.float8_gather == ("train.loop.float8_all_gather=true" in overrides)


@pytest.mark.parametrize(
    ("overrides", "shard"),
    [
        (("train.loop.strategy=fsdp",), "full"),
        (("train.loop.reshard_after_forward=never",), "gradients"),
        (("train.loop.strategy=ddp", "train.loop.shard_degree=0"), "none"),
        (
            (
                "train.loop.strategy=deepspeed",
                "train.loop.shard_degree=0",
                "train.loop.zero_stage=2",
            ),
            "gradients",
        ),
    ],
)
def test_what_a_strategy_shards(overrides: tuple[str, ...], shard: str):
    setting = ours(*overrides).setting
    assert setting.shard == shard
    assert setting.deepspeed == ("train.loop.strategy=deepspeed" in overrides)


@pytest.mark.parametrize(
    ("where", "changed", "why"),
    [
        (("ml.m5.large", 4), {}, "ml.m5.large has no GPU"),
        (("ml.trn1.32xlarge", 4), {}, "trainium, for which .* no figures"),
        (("ml.p9.48xlarge", 4), {}, "ml.p9.48xlarge is not in"),
        (("ml.p4d.24xlarge", 4, 16), {}, "16 ranks share the 8 accelerators"),
        (("ml.p4d.24xlarge", 3), {}, "impossible.*1024"),
        (("ml.p4d.24xlarge", 4), {"workload": "image", "workload_config": "{}"}, "workload image"),
        (("ml.p4d.24xlarge", 4), {"precision": "float64"}, "float64"),
        (("ml.p4d.24xlarge", 4), {"float8": "rowwise"}, "fp8: A100-40 does not multiply in it"),
        (("ml.p4d.24xlarge", 4), {"tuning": '{"freeze": ["blocks.0.*"]}'}, "freeze"),
        (("ml.p4d.24xlarge", 4), {"max_steps": "many"}, "max_steps"),
    ],
)
def test_what_is_not_foreseen_says_why(where: tuple, changed: dict[str, str], why: str):
    with pytest.raises(ForesightError, match=f"(?s){why}"):
        of_job(job(**changed), *where)


def test_a_script_is_not_foreseen():
    with pytest.raises(ForesightError, match="nobody knows what it computes"):
        of_job({"epochs": "3"}, "ml.p4d.24xlarge", 1)


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
    setting = of_job(job(shard_degree="0", precision="auto"), machine, 1).setting
    assert setting.gpu == gpu
    assert GPUS[gpu].memory_gib <= MACHINES[machine].accelerator_memory_gib
