"""A recipe of AWS's own XGBoost: its requests as AWS documents them, and a run on the emulator."""

import json
import time
from pathlib import Path

import boto3
import pytest

from pipelines.approve import approve
from pipelines.definition import from_recipe
from pipelines.registry.verification import verify
from pipelines.start import start
from pipelines.upsert import upsert
from tests.conftest import CHECKOUT
from trainyard.common.errors import ServiceError
from trainyard.language.statuses import ENDED
from trainyard.runs.execution import Execution
from trainyard.runs.run_summary import model_package
from trainyard.validate.all_checks import check

pytestmark = pytest.mark.long

RECIPE = CHECKOUT / "examples/xgboost_algorithm/recipe.yaml"
SPOT = ("train.spot=true", "train.max_wait_minutes=90")
LINEAR = ("train.algorithm=linear-learner", "train.arguments={predictor_type: binary_classifier}")


def tune(metric: str = "validation:logloss", goal: str = "minimize") -> str:
    ranges = "{eta: {min: 0, max: 1}, max_depth: {min: 2, max: 6}}"
    return (
        f"tune={{ranges: {ranges}, strategy: random, trainings: 2, judged: 1, "
        f"metric: '{metric}', goal: {goal}}}"
    )


def arguments(step: str, *overrides: str) -> dict:
    steps = json.loads(from_recipe(RECIPE, overrides).body)["Steps"]
    return next(one["Arguments"] for one in steps if one["Name"] == step)


def found(*overrides: str) -> set[str]:
    """The rules that the definition breaks."""
    return {finding.rule for finding in check(from_recipe(RECIPE, overrides).body)}


def test_the_image_is_started_without_a_program_of_ours():
    request = arguments("Train", "train.arguments.tree_method=hist", "train.arguments.seed=7")
    assert request["AlgorithmSpecification"].keys() == {"TrainingImage", "TrainingInputMode"}
    channels = {one["ChannelName"]: one["ContentType"] for one in request["InputDataConfig"]}
    assert channels == {"train": "text/csv", "validation": "text/csv"}
    given = request["HyperParameters"]
    assert (given["num_round"], given["eta"], given["seed"]) == ("50", "0.3", "7")
    assert not {"Environment", "CheckpointConfig"} & request.keys()
    assert found() == set()


def test_checkpoints_are_a_spot_jobs_alone_and_of_one_run():
    """The algorithm would go on from those of other data, whose address is the same."""
    uri = arguments("Train", *SPOT)["CheckpointConfig"]["S3Uri"]
    assert {"Get": "Execution.PipelineExecutionId"} in uri["Std:Join"]["Values"]
    assert found(*SPOT) == {"never-hits-the-cache"}
    old = arguments("Train", *SPOT, "train.algorithm=xgboost:1", "train.max_wait_minutes=60")
    assert "CheckpointConfig" not in old


def test_a_search_names_a_metric_of_the_algorithm_and_defines_none():
    request = arguments("Tune", tune())
    trial = request["TrainingJobDefinition"]
    assert trial["AlgorithmSpecification"].keys() == {"TrainingImage", "TrainingInputMode"}
    assert trial["StaticHyperParameters"].keys() == {"objective", "eval_metric", "num_round"}
    ranges = request["HyperParameterTuningJobConfig"]["ParameterRanges"]
    kinds = {kind: [one["Name"] for one in found] for kind, found in ranges.items()}
    assert kinds == {
        "ContinuousParameterRanges": ["eta"],  # 0 and 1 are whole, the recipe's 0.3 is not
        "IntegerParameterRanges": ["max_depth"],
    }
    assert found(tune()) == found(tune(), "train.instance_count=2") == set()
    assert found(tune("validation:auc", "maximize")) == set()
    assert found(tune("validation:auc")) == {"xgboost-objective"}
    assert found(tune("train:logloss")) == {"xgboost-objective"}


@pytest.fixture(scope="module")
def client(emulator):
    """Clients at the emulator, with the points in its S3."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in emulator.env.items():
            patch.setenv(name, value)
        s3 = boto3.client("s3")
        s3.create_bucket(Bucket="trainyard-laptop")
        for name, folder in (("train", "train"), ("validation", "train"), ("test", "test")):
            rows = Path(f"templates/script/data/{folder}/points.csv").read_text().split()[1:]
            cells = [row.split(",") for row in rows]
            body = "".join(f"{inside},{x},{y}\n" for _, x, y, inside in cells)
            s3.put_object(Bucket="trainyard-laptop", Key=f"points/{name}/a.csv", Body=body)
        yield boto3.client


@pytest.mark.slow
@pytest.mark.sweep
def test_it_is_searched_trained_judged_registered_verified_approved_and_served(client):
    compiled = from_recipe(RECIPE, [tune(), *SPOT])
    upsert(compiled)
    execution = Execution(start(compiled.name, {}))
    while execution.describe()["PipelineExecutionStatus"] not in ENDED:
        time.sleep(0.3)
    arn = model_package(execution.steps())
    assert arn, execution.steps()
    findings = {one.name: one.status for one in verify(arn, deep=True)}
    left = {name: status for name, status in findings.items() if status != "ok"}
    assert left == {"artifact's training": "unchecked", "train split": "unchecked"}
    assert approve(arn, reason="its --set are the test's").champion == arn
    sagemaker = client("sagemaker")
    [container] = sagemaker.describe_model_package(ModelPackageName=arn)["InferenceSpecification"][
        "Containers"
    ]
    assert container["Image"].endswith("/sagemaker-xgboost:3.2-0")
    assert "SAGEMAKER_PROGRAM" not in container["Environment"]
    sagemaker.create_model(
        ModelName="points",
        ExecutionRoleArn="arn:aws:iam::123456789012:role/trainyard",
        Containers=[{"ModelPackageName": arn}],
    )
    variant = {"VariantName": "one", "ModelName": "points", "InitialInstanceCount": 1}
    sagemaker.create_endpoint_config(
        EndpointConfigName="points", ProductionVariants=[variant | {"InstanceType": "ml.m5.large"}]
    )
    sagemaker.create_endpoint(EndpointName="points", EndpointConfigName="points")
    waiter = sagemaker.get_waiter("endpoint_in_service")
    waiter.wait(EndpointName="points", WaiterConfig={"Delay": 1})
    answer = client("sagemaker-runtime").invoke_endpoint(
        EndpointName="points", ContentType="text/csv", Body="0.1,0.1\n0.9,0.9"
    )
    inside, outside = map(float, answer["Body"].read().split())
    assert inside > 0.9 and outside < 0.1


@pytest.mark.slow
@pytest.mark.sweep
def test_another_algorithm_is_refused_here_before_anything_starts(client):
    with pytest.raises(ServiceError, match="AWS's algorithm linear-learner, whose program is not"):
        upsert(from_recipe(RECIPE, LINEAR))
