"""The Tuning step: properties, cache, stop, and the state after a kill."""

import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from tests.trainyard.emulator.harness import Cloud, pipeline, process_step, until
from tests.trainyard.emulator.sagemaker.builders import join_values, run, wait_for_steps
from tests.trainyard.emulator.sagemaker.tuning.harness import (
    config,
    definition,
    list_tuning_trainings,
    request,
    step,
    tuning_cloud,
)
from trainyard.emulator.sagemaker.tuning import search_strategies

pytestmark = [pytest.mark.slow, pytest.mark.long]
GRID = {"CategoricalParameterRanges": [{"Name": "x", "Values": ["3", "1", "2"]}]}
ONE = {"MaxParallelTrainingJobs": 1}
SLOW_FROM_THE_SECOND = '[ "$(hp x)" = 3 ] || [ -e "$GO" ] || sleep 60; echo "loss=$(hp x);"'


def grid(script: str | None = None) -> dict:
    trains = {"TrainingJobDefinition": definition(script)} if script else {}
    return request(config("Grid", None, ParameterRanges=GRID, ResourceLimits=ONE), **trains)


def test_a_later_step_reads_the_best_jobs_names_and_models(tuning: Cloud) -> None:
    summary = "Steps.Tune.TrainingJobSummaries"
    values = ["s3:/", "bkt/models", {"Get": f"{summary}[1].TrainingJobName"}, "output/model.tar.gz"]
    told = {
        "BEST": {"Get": "Steps.Tune.BestTrainingJob.TrainingJobName"},
        "FIRST": {"Get": f"{summary}[0].TrainingJobName"},
        "SECOND": join_values("/", *values),
        "STATUS": {"Get": "Steps.Tune.HyperParameterTuningJobStatus"},
    }
    script = "echo $BEST $FIRST $SECOND $STATUS > /opt/ml/processing/out/told"
    more = {"arguments": {"Environment": told}, "outputs": {"out": "s3://bkt/told"}}
    steps = [step("Tune", grid()), process_step("Read", script, **more)]
    execution, steps = run(tuning, "reads", steps)
    assert execution["PipelineExecutionStatus"] == "Succeeded", execution
    best, first, second, status = tuning.get("told/told").decode().split()
    arn = steps["Tune"]["Metadata"]["TuningJob"]["Arn"]
    ranked = list_tuning_trainings(
        tuning, arn.rpartition("/")[2], SortBy="FinalObjectiveMetricValue"
    )
    assert best == first == ranked[0]["TrainingJobName"]
    assert ranked[0]["TunedHyperParameters"] == {"x": "1"}
    assert second == f"s3://bkt/models/{ranked[1]['TrainingJobName']}/output/model.tar.gz"
    assert tuning.get(second.removeprefix("s3://bkt/")) and status == "Completed"


def test_a_second_execution_is_answered_from_the_cache(tuning: Cloud) -> None:
    cache = {"Enabled": True, "ExpireAfter": "P1D"}
    _, first = run(tuning, "cached", [step("Tune", grid(), CacheConfig=cache)])
    _, second = tuning.run("cached")
    assert second["Tune"]["CacheHitResult"]
    assert second["Tune"]["Metadata"] == first["Tune"]["Metadata"]
    changed = grid()
    changed["HyperParameterTuningJobConfig"]["RandomSeed"] = 8
    text = json.dumps(pipeline([step("Tune", changed, CacheConfig=cache)]))
    tuning.sm.update_pipeline(PipelineName="cached", PipelineDefinition=text)
    _, third = tuning.run("cached")
    assert "CacheHitResult" not in third["Tune"]


def test_a_failed_tuning_fails_the_step_with_its_reason(tuning: Cloud) -> None:
    execution, steps = run(tuning, "fails", [step("Tune", grid("exit 1"))])
    assert execution["PipelineExecutionStatus"] == "Failed"
    assert "All training jobs failed" in steps["Tune"]["FailureReason"]


def test_a_request_that_is_wrong_when_it_is_resolved_says_what(tuning: Cloud) -> None:
    _, steps = run(tuning, "wrong", [step("Tune", request(config("Hyperband")))])
    reason = steps["Tune"]["FailureReason"]
    operation = "sagemaker:CreateHyperParameterTuningJob"
    assert reason.startswith(f"ClientError: Failed to invoke {operation}")
    assert "MaxResource" in reason


def test_bayesian_without_optuna_is_refused_when_the_pipeline_is_made(tuning: Cloud, monkeypatch):
    monkeypatch.setattr(search_strategies, "find_spec", lambda name: None)
    with pytest.raises(ClientError, match=r"'Bayesian' needs optuna.*pip install optuna"):
        tuning.create("bayes", [step("Tune", request(config("Bayesian")))])


def test_a_stopped_execution_stops_it_and_a_retry_searches_again(tuning: Cloud) -> None:
    go = tuning.state.with_name("go")
    asked = grid(SLOW_FROM_THE_SECOND)
    asked["TrainingJobDefinition"]["Environment"]["GO"] = str(go)
    tuning.create("again", [step("Tune", asked)])
    arn = tuning.start("again")
    name = until(lambda: _tuning(tuning, arn))
    until(
        lambda: (
            [job["TrainingJobStatus"] for job in list_tuning_trainings(tuning, name)][1:]
            == ["InProgress"]
        )
    )
    tuning.sm.stop_pipeline_execution(PipelineExecutionArn=arn, ClientRequestToken="t" * 32)
    wait_for_steps(tuning, arn, "Stopped")
    go.touch()
    tuning.sm.retry_pipeline_execution(PipelineExecutionArn=arn, ClientRequestToken="r" * 32)
    wait_for_steps(tuning, arn)
    assert (again := _tuning(tuning, arn)) != name
    assert (
        len(list_tuning_trainings(tuning, name)) == 2
        and len(list_tuning_trainings(tuning, again)) == 3
    )


SERVE = """
import sys, time
from pathlib import Path
from tests.trainyard.emulator.sagemaker.pipelines.steps.test_tuning_step import begin
begin(Path(sys.argv[1]))
"""


def begin(state: Path) -> None:
    """Start an emulator that is killed while its tuning job trains its second job."""
    with tuning_cloud(state, state.with_name("image")) as cloud:
        asked = grid(SLOW_FROM_THE_SECOND)
        asked["TrainingJobDefinition"]["Environment"]["GO"] = str(state.with_name("go"))
        cloud.create("killed", [step("Tune", asked)])
        arn = cloud.start("killed")
        name = until(lambda: _tuning(cloud, arn))
        until(
            lambda: (
                len(cloud.processes(list_tuning_trainings(cloud, name)[1]["TrainingJobName"])) == 1
                if len(list_tuning_trainings(cloud, name)) == 2
                else False
            )
        )
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


def _tuning(tuning: Cloud, arn: str) -> str:
    """Return the name of the execution's tuning job; empty before it exists."""
    made = tuning.steps(arn).get("Tune", {}).get("Metadata", {})
    return made["TuningJob"]["Arn"].rpartition("/")[2] if made else ""
