"""A search on the emulator, of the loop and of somebody's script: run, registered, verified."""

import json
from typing import Any

import boto3
import pytest

from pipelines.definition import from_recipe
from pipelines.registry.verification import verify
from pipelines.run_report.run_panels import PANELS
from pipelines.upsert import upsert
from tests.conftest import CHECKOUT
from tests.registered import run_to_end
from tests.somebodys import data
from trainyard.console import frozen_page
from trainyard.runs.execution import Execution
from trainyard.runs.run_display import find_model_package

pytestmark = [pytest.mark.slow, pytest.mark.sweep]
LOOP = (
    "gate={max_bits_per_byte: 8.5, min_groups: 2}",
    "workload.config={context_length: 64, layers: 1, heads: 2, dim: 32}",
    "shard={instance_count: 1, key: key, validation_share: 0.3, test_share: 0.2}",
    "train.loop.max_steps=8",
    "train.loop.warmup_steps=1",
    "train.loop.validation_interval=2",
    "train.loop.validation_samples=8",
    "tune={ranges: {learning_rate: {min: 0.0001, max: 0.05, scale: log}, beta1: [0.8, 0.9], "
    "workload_config_layers: {min: 1, max: 2}, workload_config_dim: [32, 48]}, "
    "strategy: random, trainings: 3, parallel: 2}",
)
SCRIPT = (
    r"train.metrics={loss: 'loss=(\S+)'}",
    "tune={ranges: {slope: {min: 1.0, max: 2.0}}, strategy: random, trainings: 2, metric: loss}",
)


@pytest.fixture(scope="module")
def client(small_corpus):
    """Clients at the emulator, with data of both recipes in its S3."""
    data.put(boto3.client("s3"))
    return boto3.client


def run(recipe: str, *settings: str) -> tuple[Execution, str]:
    """Return a run that registered a model, and its package, of which every check holds."""
    compiled = from_recipe(CHECKOUT / recipe, settings)
    upsert(compiled)
    execution = run_to_end(compiled.name)
    package = find_model_package(execution.list_steps())
    assert package, (execution.describe(), execution.list_steps())
    assert not [one for one in verify(package, deep=True) if one.status == "mismatch"]
    return execution, package


def describe_training_jobs(
    client, execution: Execution
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the train step's job, and the search's, as the service describes them."""
    steps = {step.name: step for step in execution.list_steps()}
    tuning = steps["Tune"].metadata["TuningJob"]["Arn"].rpartition("/")[2]
    found = client("sagemaker").list_training_jobs_for_hyper_parameter_tuning_job(
        HyperParameterTuningJobName=tuning
    )["TrainingJobSummaries"]
    name = steps["Train"].job[1]
    return client("sagemaker").describe_training_job(TrainingJobName=name), found


def log(execution: Execution, step: str) -> str:
    steps = {one.name: one for one in execution.list_steps()}
    return "\n".join(execution.iter_lines(steps[step]))


def test_the_loops_best_values_are_trained_with_from_their_last_checkpoint(client, tmp_path):
    execution, package = run("recipes/laptop.yaml", *LOOP)
    job, tried = describe_training_jobs(client, execution)
    objective = "FinalHyperParameterTuningJobObjectiveMetric"
    best = min(tried, key=lambda training: training[objective]["Value"])
    values = best["TunedHyperParameters"]
    assert len(tried) == 3 and {name: job["HyperParameters"][name] for name in values} == values
    assert "resumed from the checkpoint of step 8" in log(execution, "Train")
    found = client("sagemaker").describe_model_package(ModelPackageName=package)
    about = found["CustomerMetadataProperties"]
    assert about["best_training_job"] == best["TrainingJobName"]
    assert about["trainings_compared"] == "3"
    page = tmp_path / "report.html"
    frozen_page.write_frozen_page(execution.arn, page, PANELS)
    assert "Search: 3 trainings" in page.read_text()
    # torchrun on both nodes: the launcher that an SDK 3.27 tuner leaves out
    first = client("sagemaker").describe_training_job(TrainingJobName=tried[0]["TrainingJobName"])
    assert first["ResourceConfig"]["InstanceCount"] == 2
    events = client("logs").filter_log_events(
        logGroupName="/aws/sagemaker/TrainingJobs", logStreamNamePrefix=first["TrainingJobName"]
    )["events"]
    started = {e["logStreamName"] for e in events if "torchrun --nnodes=2" in e["message"]}
    assert len(started) == 2


def test_a_scripts_best_value_is_in_its_models_identity(client):
    execution, _ = run("tests/somebodys/recipe.yaml", *SCRIPT)
    job, tried = describe_training_jobs(client, execution)
    best = next(one for one in tried if one["TrainingJobName"] in job["CheckpointConfig"]["S3Uri"])
    value = best["TunedHyperParameters"]["slope"]
    assert job["HyperParameters"]["slope"] == value
    assert json.loads(value) != 1.5 and 1 <= float(value) <= 2
