"""Tests of the recipe of your own script: all its fields are given, or none."""

import pytest

from pipelines.recipe.read_recipe import load
from tests.conftest import CHECKOUT
from trainyard.common.errors import RecipeError

RECIPE = CHECKOUT / "tests/somebodys/recipe.yaml"


def test_the_first_metric_is_the_primary_one():
    found = load(RECIPE).workload_spec
    assert (found.primary_metric, dict(found.metrics)) == (
        "accuracy",
        {"accuracy": "higher", "log_loss": "lower"},
    )


@pytest.mark.parametrize(
    ("override", "field"),
    [
        ("evaluate.script=null", "evaluate.script: is missing"),
        ("evaluate.script=evaluate.sh", "evaluate.script: 'evaluate.sh' must end in .py"),
        ("evaluate.metrics={}", "evaluate.metrics: is missing"),
        ("evaluate.metrics={label: higher}", "evaluate.metrics: 'label' is not a metric's name"),
        ("evaluate.metrics={a.b: higher}", "evaluate.metrics: 'a.b' is not a metric's name"),
        ("evaluate.metrics={leaked_groups: lower}", "evaluate.metrics.leaked_groups: gate.max_"),
        ("evaluate.channels={}", "evaluate.channels: is missing"),
        ("evaluate.channels={train: s3://somebodys/a}", "evaluate.channels: is missing"),
        ("evaluate.channels={model: s3://somebodys/a}", "evaluate.channels: 'model' is the job's"),
        ("evaluate.request=null", "gate.max_latency_p95_ms: needs evaluate.request"),
        ("inference.script=null", "gate.max_latency_p95_ms: needs inference.script"),
        ("gate.below_baseline=chance", "gate.below_baseline: 'chance' is not a baseline"),
        ("gate.min_acuracy=0.5", "gate.min_acuracy: unknown field; nearest valid name: min_accur"),
        ("transform={input: s3://somebodys/new}", "transform: scores by a workload's answers"),
        ("gate.superiority={auc: 0}", "gate.superiority.auc: is not a metric"),
    ],
)
def test_what_is_missing_or_untold_is_refused_by_its_field(override, field):
    with pytest.raises(RecipeError) as error:
        load(RECIPE, [override])
    assert field in str(error.value)


VPC = "aws.vpc={subnets: [subnet-0123456789], security_groups: [sg-0123456789]}"
FSX = "train.fsx={file_system_id: fs-0123456789, directory_path: /fsx/mirror}"


def on(name: str = "corpus", kind: str = "EFS", path: str = "/", system: str = "fs-0123456789"):
    source = f"{{file_system_id: {system}, type: {kind}, directory_path: {path}}}"
    return f"train.file_systems={{{name}: {source}}}"


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ([on()], "train.file_systems.corpus: a file system is mounted through a VPC; set aws.vpc"),
        ([VPC, on(kind="FSxLustre")], "directory_path: is '/'; a path on FSx for Lustre begins"),
        ([VPC, on(kind="NFS")], "train.file_systems.corpus.type: is 'NFS'"),
        ([VPC, on(path="corpora")], "train.file_systems.corpus.directory_path: is 'corpora'"),
        ([VPC, on(system="corpora")], "train.file_systems.corpus.file_system_id: is 'corpora'"),
        ([VPC, on("training")], "file_systems.training: is a channel of channels, too"),
        ([VPC, on("code")], "'code' is not a name of a channel"),
        ([VPC, on().replace("type", "kind")], "kind: unknown field"),
        ([VPC, FSX, "train.input_mode=FSxLustre"], "train.fsx: mounts the shards, and without a"),
    ],
)
def test_a_file_system_that_cannot_be_mounted_is_refused_by_its_field(overrides, said):
    with pytest.raises(RecipeError) as error:
        load(RECIPE, overrides)
    assert said in str(error.value)


@pytest.mark.parametrize("field", ["script: a.py", "baselines: [b]", "metrics: {m: lower}"])
def test_a_workload_has_no_evaluation_script(field):
    name, _, value = field.partition(": ")
    with pytest.raises(RecipeError, match=f"evaluate.{name}: is for a training script"):
        load(CHECKOUT / "recipes/laptop.yaml", [f"evaluate.{name}={value}"])


def test_a_baseline_that_the_script_scores_can_be_demanded():
    given = ["evaluate.baselines=[chance]", "gate.below_baseline=chance"]
    assert load(RECIPE, given).workload_spec.baselines == ("chance",)
