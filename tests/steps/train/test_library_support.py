"""Strategies that depend on libraries: what AWS has no machine, image or launcher for is refused
when the recipe is read; what is accepted reaches the definition.
"""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.compile.compilation import Asset, CompiledPipeline
from pipelines.compile.compile_session import choose_training_image
from pipelines.compile.package_lock import parse_lock
from pipelines.definition import build
from pipelines.recipe.environments import resolve_account
from pipelines.recipe.read_recipe import load_recipe
from steps.train.config import INSTANCE_TYPES, LAUNCHERS, SMP_IMAGES, explain_unfit_machines
from steps.train.job import parse_arguments, read_config
from trainyard.common.errors import RecipeError

pytestmark = pytest.mark.long

PROD = Path("recipes/prod.yaml")  # 4 × ml.p4d.24xlarge
PLAIN = "train.loop.shard_degree=0"
OWN = "images.training=111122223333.dkr.ecr.us-east-1.amazonaws.com/own:1"
SMP = ["train.loop.strategy=smp", "images.pytorch_version=2.5.1"]
STRATEGIES = ["single", "ddp", "fsdp", "deepspeed", "smddp", "smp"]


def compile_recipe(*overrides: str) -> CompiledPipeline:
    recipe = load_recipe(PROD, [PLAIN, *overrides])
    return build(recipe, resolve_account(recipe.aws), commit="0" * 40, source=None)


def train(definition: CompiledPipeline) -> dict:
    body = json.loads(definition.body)
    return next(step["Arguments"] for step in body["Steps"] if step["Name"] == "Train")


def read_distributed_settings(definition: CompiledPipeline) -> dict:
    """Return the settings by which AWS's driver starts the ranks."""
    [file] = [
        content
        for asset in definition.assets
        for name, content in asset.files.items()
        if name.endswith("distributed.json")
    ]
    return json.loads(file)


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["train.loop.strategy=smp", "train.launcher=mpi"], "mpi cannot start .* to torchrun"),
        (["train.loop.strategy=smddp", "train.instance_type=ml.g5.48xlarge"],
         "instance_type ml.g5.48xlarge is not for strategy smddp, .* ml.p4d.24xlarge, ml.p4de"),
        (["train.loop.strategy=smp", "train.instance_type=ml.g5.48xlarge"],
         "instance_type ml.g5.48xlarge is not for strategy smp, .* ml.p5.48xlarge"),
        (["train.loop.strategy=deepspeed", "train.instance_type=ml.m5.large"],
         "instance_type ml.m5.large is not for strategy deepspeed, which needs GPUs"),
        (["train.loop.strategy=smddp"],
         "images.training: strategy smddp needs an image that you name, .* 2.4.1 or 2.5.1"),
        (["train.loop.strategy=smp"], "images.pytorch_version: is '2.10.0'; .* for 2.4.1, 2.5.1:"),
        (["train.launcher=mpi"], "launcher mpi on 4 instances needs processes_per_node"),
        (["train.launcher=slurm"], "train.launcher: is 'slurm'; expected one of torchrun, mpi,"),
        (["train.loop.tensor_parallel=32", "workload.config.heads=16"],
         "train.loop.tensor_parallel: is 32; workload language_model: heads 16 cannot be shared"),
        (["train.loop.pipeline_parallel=4", "workload.config.layers=3", "train.loop.micro_batch=4"],
         "train.loop.pipeline_parallel: is 4; workload language_model: layers 3 are too few"),
    ],
)  # fmt: skip
def test_what_cannot_run_is_refused_when_the_recipe_is_read(overrides, expected):
    with pytest.raises(RecipeError, match=expected):
        load_recipe(PROD, [PLAIN, *overrides])
    assert (
        load_recipe(PROD, [PLAIN, "train.loop.tensor_parallel=8"]).train.loop.tensor_parallel == 8
    )


@given(
    st.sampled_from(STRATEGIES),
    st.sampled_from(["torchrun", "mpi"]),
    st.sampled_from(["ml.m5.large", "ml.g5.xlarge", "ml.p4d.24xlarge", "ml.p5.48xlarge"]),
)
def test_a_refusal_names_the_field_and_its_advice_is_accepted(strategy, launcher, instance_type):
    refused = explain_unfit_machines(strategy, launcher, instance_type)
    needed = LAUNCHERS.get(strategy, launcher)
    types = INSTANCE_TYPES.get(strategy, ("ml.",))
    assert (refused is None) == (launcher == needed and instance_type.startswith(types))
    if refused and launcher != needed:
        assert f"set launcher to {needed}" in refused
    elif refused:
        assert instance_type in refused and types[0] in refused
    assert explain_unfit_machines(strategy, needed, types[0]) is None


@pytest.mark.parametrize("version", SMP_IMAGES)
def test_smp_has_its_own_image_which_smddp_takes(version):
    image = choose_training_image(
        load_recipe(PROD, [*SMP, f"images.pytorch_version={version}"]), "us-east-1"
    )
    assert image.endswith(f"/smdistributed-modelparallel:{version}-gpu-py311-{SMP_IMAGES[version]}")
    load_recipe(PROD, [PLAIN, "train.loop.strategy=smddp", f"images.training={image}"])


def test_smp_is_torchrun_with_parameters_which_the_job_takes():
    definition = compile_recipe(*SMP, "train.loop.shard_degree=8")
    given = train(definition)["HyperParameters"]
    assert json.loads(given["mp_parameters"]) == {"hybrid_shard_degree": 8}
    assert read_distributed_settings(definition)["smp"]["hybrid_shard_degree"] == 8
    given |= {"max_steps": "10"}
    options = parse_arguments(
        [part for name, value in given.items() for part in (f"--{name}", value)]
    )
    assert read_config(options).strategy == "smp"


def test_mpi_on_several_nodes_starts_all_ranks_and_as_many_on_each():
    """AWS's driver gives mpirun process_count_per_node as the number of all."""
    mpi = ["train.launcher=mpi", "train.processes_per_node=8", OWN]
    several = read_distributed_settings(compile_recipe(*mpi))
    assert several["process_count_per_node"] == 32
    assert several["mpi_additional_options"] == ["--map-by", "ppr:8:node"]
    one = read_distributed_settings(compile_recipe(*mpi, "train.instance_count=1"))
    assert (one["process_count_per_node"], one["mpi_additional_options"]) == (8, None)


OF_STRATEGIES = {"deepspeed", "mpi4py", "paramiko"}


def list_locked_packages(asset: Asset) -> list[str]:
    return [entry.name for entry in parse_lock(asset.files["requirements.txt"].decode(), "")]


THRESHOLDS = "gate={max_bits_per_byte: 0.95}"  # reads no scores, so it installs nothing


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([], set()),
        (["train.loop.strategy=deepspeed"], {"deepspeed"}),
        (["train.launcher=mpi", "train.processes_per_node=8"], {"mpi4py", "paramiko"}),
    ],
)
def test_only_the_train_step_installs_what_only_its_strategy_needs(overrides, expected):
    further = {
        name: set(list_locked_packages(asset)) & OF_STRATEGIES
        for asset in compile_recipe("train.loop.tensorboard=false", THRESHOLDS, *overrides).assets
        for name in asset.files
        if name.endswith("/job.py") and "requirements.txt" in asset.files
    }
    assert further == {
        "steps/train/job.py": expected,
        "steps/shard/job.py": set(),
        "steps/evaluate/job.py": set(),
    }
