"""The Tuning step: properties, cache, stop, and the state after a kill."""

import functools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from tests.trainyard.emulator.harness import Cloud, process_step, until
from tests.trainyard.emulator.sagemaker.tuning.harness import (
    config,
    definition,
    request,
    step,
    trained,
    tuning_cloud,
)

pytestmark = [pytest.mark.slow, pytest.mark.long]
GRID = {"CategoricalParameterRanges": [{"Name": "x", "Values": ["3", "1", "2"]}]}
ONE = {"MaxParallelTrainingJobs": 1}


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    folder = tmp_path_factory.mktemp("tuning")
    with tuning_cloud(folder / "state", folder / "image") as cloud:
        yield cloud


def grid(script: str | None = None) -> dict:
    trains = {"TrainingJobDefinition": definition(script)} if script else {}
    return request(config("Grid", None, ParameterRanges=GRID, ResourceLimits=ONE), **trains)


def test_a_later_step_reads_the_best_jobs_names_and_models(cloud: Cloud) -> None:
    summary = "Steps.Tune.TrainingJobSummaries"
    values = [
        "s3:/",
        "bkt/models",
        {"Get": f"{summary}[1].TrainingJobName"},
        "output/model.tar.gz",
    ]
    told = {
        "BEST": {"Get": "Steps.Tune.BestTrainingJob.TrainingJobName"},
        "FIRST": {"Get": f"{summary}[0].TrainingJobName"},
        "SECOND": {"Std:Join": {"On": "/", "Values": values}},
        "STATUS": {"Get": "Steps.Tune.HyperParameterTuningJobStatus"},
    }
    script = "echo $BEST $FIRST $SECOND $STATUS > /opt/ml/processing/out/told"
    reads = process_step(
        "Read", script, arguments={"Environment": told}, outputs={"out": "s3://bkt/told"}
    )
    cloud.create("reads", [step("Tune", grid()), reads])
    execution, steps = cloud.run("reads")
    assert execution["PipelineExecutionStatus"] == "Succeeded", execution
    best, first, second, status = cloud.get("told/told").decode().split()
    arn = steps["Tune"]["Metadata"]["TuningJob"]["Arn"]
    ranked = trained(cloud, arn.rpartition("/")[2], SortBy="FinalObjectiveMetricValue")
    assert best == first == ranked[0]["TrainingJobName"]
    assert ranked[0]["TunedHyperParameters"] == {"x": "1"}
    assert second == f"s3://bkt/models/{ranked[1]['TrainingJobName']}/output/model.tar.gz"
    assert cloud.get(second.removeprefix("s3://bkt/")) and status == "Completed"


def test_a_second_execution_is_answered_from_the_cache(cloud: Cloud) -> None:
    cache = {"Enabled": True, "ExpireAfter": "P1D"}
    cloud.create("cached", [step("Tune", grid(), CacheConfig=cache)])
    _, first = cloud.run("cached")
    _, second = cloud.run("cached")
    assert second["Tune"]["CacheHitResult"]
    assert second["Tune"]["Metadata"] == first["Tune"]["Metadata"]
    changed = grid()
    changed["HyperParameterTuningJobConfig"]["RandomSeed"] = 8
    text = json.dumps(
        {"Version": "2020-12-01", "Steps": [step("Tune", changed, CacheConfig=cache)]}
    )
    cloud.sm.update_pipeline(PipelineName="cached", PipelineDefinition=text)
    _, third = cloud.run("cached")
    assert "CacheHitResult" not in third["Tune"]


def test_a_failed_tuning_fails_the_step_with_its_reason(cloud: Cloud) -> None:
    cloud.create("fails", [step("Tune", grid("exit 1"))])
    execution, steps = cloud.run("fails")
    assert execution["PipelineExecutionStatus"] == "Failed"
    assert "All training jobs failed" in steps["Tune"]["FailureReason"]


def test_a_request_that_is_wrong_when_it_is_resolved_says_what(cloud: Cloud) -> None:
    asked = request(config("Hyperband"))
    cloud.create("wrong", [step("Tune", asked)])
    _, steps = cloud.run("wrong")
    reason = steps["Tune"]["FailureReason"]
    assert reason.startswith(
        "ClientError: Failed to invoke sagemaker:CreateHyperParameterTuningJob"
    )
    assert "MaxResource" in reason


def test_bayesian_without_optuna_is_refused_when_the_pipeline_is_made(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "trainyard.emulator.sagemaker.tuning.search_strategies.find_spec", lambda name: None
    )
    with pytest.raises(ClientError, match=r"'Bayesian' needs optuna.*pip install optuna"):
        cloud.create("bayes", [step("Tune", request(config("Bayesian")))])


def test_a_stopped_execution_stops_it_and_a_retry_searches_again(cloud: Cloud) -> None:
    script = '[ "$(hp x)" = 3 ] || [ -e "$GO" ] || sleep 60; echo "loss=$(hp x);"'
    go = cloud.state.with_name("go")
    asked = grid(script)
    asked["TrainingJobDefinition"]["Environment"]["GO"] = str(go)
    cloud.create("again", [step("Tune", asked)])
    arn = cloud.start("again")
    name = until(lambda: _tuning(cloud, arn))
    until(lambda: [job["TrainingJobStatus"] for job in trained(cloud, name)][1:] == ["InProgress"])
    cloud.sm.stop_pipeline_execution(PipelineExecutionArn=arn, ClientRequestToken="t" * 32)
    assert cloud.ended(arn)["PipelineExecutionStatus"] == "Stopped"
    go.touch()
    cloud.sm.retry_pipeline_execution(PipelineExecutionArn=arn, ClientRequestToken="r" * 32)
    assert cloud.ended(arn)["PipelineExecutionStatus"] == "Succeeded"
    assert (again := _tuning(cloud, arn)) != name
    assert len(trained(cloud, name)) == 2 and len(trained(cloud, again)) == 3


SERVE = """
import sys, time
from pathlib import Path
from tests.trainyard.emulator.sagemaker.pipelines.steps.test_tuning_step import begin
begin(Path(sys.argv[1]))
"""
SLOW_FROM_THE_SECOND = '[ "$(hp x)" = 3 ] || [ -e "$GO" ] || sleep 60; echo "loss=$(hp x);"'


def begin(state: Path) -> None:
    """Start an emulator that is killed while its tuning job trains its second job."""
    with tuning_cloud(state, state.with_name("image")) as cloud:
        asked = grid(SLOW_FROM_THE_SECOND)
        asked["TrainingJobDefinition"]["Environment"]["GO"] = str(state.with_name("go"))
        cloud.create("killed", [step("Tune", asked)])
        arn = cloud.start("killed")
        name = until(lambda: _tuning(cloud, arn))
        until(lambda: len(cloud.processes(trained(cloud, name)[1]["TrainingJobName"])) == 1
              if len(trained(cloud, name)) == 2 else False)  # fmt: skip
        print(name, flush=True)
        sys.stdin.read()


def test_a_kill_loses_no_finished_training(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SERVE, str(tmp_path / "state")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
    assert process.stdout
    name = process.stdout.readline().strip()
    process.kill()
    process.wait()
    with tuning_cloud(tmp_path / "state", tmp_path / "image") as cloud:
        describe = functools.partial(
            cloud.sm.describe_hyper_parameter_tuning_job, HyperParameterTuningJobName=name
        )
        lost = describe()
        assert lost["HyperParameterTuningJobStatus"] == "Failed"
        assert "finished training jobs are kept" in lost["FailureReason"]
        assert lost["TrainingJobStatusCounters"]["Completed"] == 1
        assert lost["TrainingJobStatusCounters"]["RetryableError"] == 1
        assert lost["BestTrainingJob"]["TunedHyperParameters"] == {"x": "3"}


def _tuning(cloud: Cloud, arn: str) -> str:
    """Return the name of the execution's tuning job; empty before it exists."""
    made = cloud.steps(arn).get("Tune", {}).get("Metadata", {})
    return made["TuningJob"]["Arn"].rpartition("/")[2] if made else ""
