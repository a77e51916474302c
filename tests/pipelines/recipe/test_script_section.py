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


ALGORITHM = CHECKOUT / "examples/xgboost_algorithm/recipe.yaml"


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        (["train.script=evaluate.py"], "script and algorithm are set; set one"),
        (["train.algorithm=null"], "loop, script, algorithm: none is set"),
        (["train.channels={}"], "channels: is missing"),
        (["train.content_types={trian: text/csv}"], "content_types.trian: is not one of channels"),
        (["train.metrics={loss: 'a(.)'}"], "metrics: not for an algorithm"),
        (["train.launcher=none", "train.max_restarts=1"], "launcher, max_restarts: not for"),
        (["data={input: s3://abc/d}"], "data: is packed into shards, which xgboost cannot read"),
        (["inference.script=evaluate.py"], "inference.script: has no place in the archive"),
        (["images.training=example.com/a:1"], "images.training: train.algorithm xgboost has an"),
        (["evaluate.script=null"], "evaluate.script: is missing"),
        (["gate.int8={log_loss: 0.1}"], "gate.int8: is for Trainyard's workloads"),
        (["tune={ranges: {eta: [0.1, 0.3]}}"], "tune.metric: is missing; name one that"),
        (["tune={ranges: {etta: [0.1]}}"], "is not in train.arguments; nearest"),
        (
            ["train.algorithm=lda", "train.spot=true", "train.max_wait_minutes=90"],
            "lda keeps no checkpoints",
        ),
    ],
)
def test_what_an_algorithm_of_awss_has_no_use_for_is_refused_by_its_field(overrides, why):
    with pytest.raises(RecipeError) as error:
        load(ALGORITHM, overrides)
    assert why in str(error.value)


def test_an_algorithm_is_known_by_its_name_and_has_no_steps_to_change():
    recipe = load(ALGORITHM, ["train.algorithm=xgboost:1.7-1"])
    assert recipe.kind == "xgboost" and "MaxSteps" not in recipe.parameters


def test_content_types_are_not_for_a_script():
    with pytest.raises(RecipeError, match="content_types: for an algorithm"):
        load(RECIPE, ["train.content_types={training: text/csv}"])
