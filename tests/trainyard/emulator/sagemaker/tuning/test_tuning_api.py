"""Tuning jobs through boto3, which train real jobs."""

from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.trainyard.emulator.harness import Cloud, until
from tests.trainyard.emulator.sagemaker.tuning.harness import (
    config,
    definition,
    list_tuning_trainings,
    request,
    tune,
    tuning_cloud,
    wait_for_tuning,
)

pytestmark = [pytest.mark.slow, pytest.mark.long]
ONE = {"MaxParallelTrainingJobs": 1}
CURVE = """
for epoch in 1 2 3 4 5 6; do echo "epoch $epoch loss=$(hp x);"; sleep 0.25; done
echo model > /opt/ml/model/m
"""


def make_category_ranges(*values: str) -> dict[str, Any]:
    """Return ParameterRanges of one category."""
    return {"CategoricalParameterRanges": [{"Name": "x", "Values": list(values)}]}


def grid(*values: str, **more: Any) -> dict[str, Any]:
    return config("Grid", None, ParameterRanges=make_category_ranges(*values), **more)


def test_a_tuning_trains_its_jobs_and_finds_the_best(tuning: Cloud) -> None:
    tags = [{"Key": "team", "Value": "a"}]
    found = tune(tuning, "plain", request(config("Bayesian", 3), Tags=tags))
    assert found["HyperParameterTuningJobStatus"] == "Completed"
    assert found["TrainingJobStatusCounters"]["Completed"] == 3
    static = found["TrainingJobDefinition"]["StaticHyperParameters"]
    assert static == {"_tuning_objective_metric": "loss"}  # the SDK's attach takes it out again
    assert found["ObjectiveStatusCounters"] == {"Succeeded": 3, "Pending": 0, "Failed": 0}
    jobs = list_tuning_trainings(tuning, "plain", SortBy="FinalObjectiveMetricValue")
    best = found["BestTrainingJob"]
    assert best == jobs[0]
    value = best["FinalHyperParameterTuningJobObjectiveMetric"]["Value"]
    assert value == float(best["TunedHyperParameters"]["x"])
    job = tuning.sm.describe_training_job(TrainingJobName=best["TrainingJobName"])
    assert job["TuningJobArn"] == found["HyperParameterTuningJobArn"]
    assert job["HyperParameters"]["_tuning_objective_metric"] == "loss"
    assert tuning.get(f"models/{best['TrainingJobName']}/output/model.tar.gz")
    listed = tuning.sm.list_tags(ResourceArn=found["HyperParameterTuningJobArn"])["Tags"]
    assert listed == tags
    asked = {"NameContains": "plai", "SortBy": "Name"}
    listed = tuning.sm.list_hyper_parameter_tuning_jobs(**asked)["HyperParameterTuningJobSummaries"]
    assert "plain" in [entry["HyperParameterTuningJobName"] for entry in listed]
    lines = tuning.all_lines("Training", best["TrainingJobName"])
    assert any("a Bayesian search (optuna's TPE), not AWS's" in line for line in lines)
    with pytest.raises(ClientError, match="must be unique"):
        tune(tuning, "plain", request())


def test_two_definitions_take_turns(tuning: Cloud) -> None:
    objective = config()["HyperParameterTuningJobObjective"]
    both: list[dict[str, Any]] = [
        definition(
            f'echo "loss=1$(hp x);{number}"',
            DefinitionName=f"d{number}",
            HyperParameterRanges=make_category_ranges("3", "1"),
            TuningObjective=objective,
        )
        for number in (1, 2)
    ]
    search = config("Grid", None)
    del search["ParameterRanges"], search["HyperParameterTuningJobObjective"]
    found = tune(tuning, "two", request(search, TrainingJobDefinitions=both))
    jobs = list_tuning_trainings(tuning, "two")
    assert [job["TrainingJobDefinitionName"] for job in jobs] == ["d1"] * 2 + ["d2"] * 2
    assert found["BestTrainingJob"]["TrainingJobDefinitionName"] == "d1"


def test_failing_jobs_end_the_tuning_with_their_reason(tuning: Cloud) -> None:
    broken = definition("echo boom > /opt/ml/output/failure; exit 3")
    found = tune(tuning, "broken", request(config(jobs=9), TrainingJobDefinition=broken))
    assert found["HyperParameterTuningJobStatus"] == "Failed"
    assert found["FailureReason"].startswith("No training job succeeded after")
    assert "boom" in found["FailureReason"]
    assert found["TrainingJobStatusCounters"]["NonRetryableError"] < 9
    assert "BestTrainingJob" not in found


def test_a_target_ends_the_tuning(tuning: Cloud) -> None:
    search = config(
        jobs=None,
        ResourceLimits=ONE,
        TuningJobCompletionCriteria={"TargetObjectiveMetricValue": 3.0},
    )
    found = tune(tuning, "target", request(search))
    values = [
        float(job["TunedHyperParameters"]["x"]) for job in list_tuning_trainings(tuning, "target")
    ]
    assert found["HyperParameterTuningJobStatus"] == "Completed"
    assert values[-1] <= 3 and all(value > 3 for value in values[:-1])


def test_early_stopping_stops_what_is_worse_than_the_median(tmp_path: Path) -> None:
    """At once: the shell that runs it does not handle SIGTERM, and the next job waits."""
    search = grid("1", "9", ResourceLimits=ONE, TrainingJobEarlyStoppingType="Auto")
    stuck = definition(CURVE.replace("echo model", "[ $(hp x) = 1 ] || sleep 600; echo model"))
    with tuning_cloud(tmp_path / "aws", tmp_path / "image", stop_grace=600) as patient:
        found = tune(patient, "early", request(search, TrainingJobDefinition=stuck))
        jobs = list_tuning_trainings(patient, "early")
        lines = patient.all_lines("Training", jobs[1]["TrainingJobName"])
    assert any("All processes are killed at once, on AWS 120 s later" in line for line in lines)
    assert [job["TrainingJobStatus"] for job in jobs] == ["Completed", "Stopped"]
    assert [job["ObjectiveStatus"] for job in jobs] == ["Succeeded", "Succeeded"]
    assert found["TrainingJobStatusCounters"]["Stopped"] == 1


def test_a_stop_ends_the_jobs_that_run(tuning: Cloud) -> None:
    slow = request(TrainingJobDefinition=definition("sleep 60"))
    name = {"HyperParameterTuningJobName": "slow"}
    tuning.sm.create_hyper_parameter_tuning_job(**name, **slow)
    until(lambda: len(list_tuning_trainings(tuning, "slow")) == 2)
    with pytest.raises(ClientError, match="stop it first"):
        tuning.sm.delete_hyper_parameter_tuning_job(**name)
    tuning.sm.stop_hyper_parameter_tuning_job(**name)
    assert wait_for_tuning(tuning, "slow")["HyperParameterTuningJobStatus"] == "Stopped"
    assert [job["TrainingJobStatus"] for job in list_tuning_trainings(tuning, "slow")] == [
        "Stopped"
    ] * 2
    with pytest.raises(ClientError, match="is in status Stopped"):
        tuning.sm.stop_hyper_parameter_tuning_job(**name)
    tuning.sm.delete_hyper_parameter_tuning_job(**name)
    with pytest.raises(ClientError, match="Tuning job 'slow' does not exist"):
        wait_for_tuning(tuning, "slow")


def test_a_grid_trains_each_combination_once_and_a_warm_start_knows_the_best_of_all(tuning: Cloud):
    found = tune(tuning, "parent", request(grid("3", "1", "2")))
    assert [
        job["TunedHyperParameters"]["x"] for job in list_tuning_trainings(tuning, "parent")
    ] == [*"312"]
    assert found["BestTrainingJob"]["TunedHyperParameters"] == {"x": "1"}
    start = {
        "WarmStartType": "IdenticalDataAndAlgorithm",
        "ParentHyperParameterTuningJobs": [{"HyperParameterTuningJobName": "parent"}],
    }
    found = tune(tuning, "child", request(grid("5", "4"), WarmStartConfig=start))
    assert found["BestTrainingJob"]["TunedHyperParameters"] == {"x": "4"}
    best = found["OverallBestTrainingJob"]
    assert (best["TuningJobName"], best["TunedHyperParameters"]) == ("parent", {"x": "1"})


def test_what_cannot_run_is_refused_and_leaves_nothing(tuning: Cloud) -> None:
    before = len(tuning.sm.list_training_jobs(MaxResults=100)["TrainingJobSummaries"])
    odd = definition(StaticHyperParameters={"a": "1"})
    odd["AlgorithmSpecification"] = odd["AlgorithmSpecification"] | {"TrainingImage": "1.dkr/mine"}
    for name, asked, problem in (
        ("a" * 33, request(), "at most 32|length"),
        ("image", request(TrainingJobDefinition=odd), "image '1.dkr/mine' is not known"),
        ("search", request(config("Hyperband")), "MaxResource"),
    ):
        with pytest.raises(ClientError, match=problem):
            tune(tuning, name, asked)
    assert len(tuning.sm.list_training_jobs(MaxResults=100)["TrainingJobSummaries"]) == before


def test_what_is_damaged_costs_only_itself(tmp_path: Path) -> None:
    with tuning_cloud(tmp_path / "aws", tmp_path / "image") as cloud:
        for name in ("whole", "torn"):
            tune(cloud, name, request(grid("1")))
    (tmp_path / "aws/tuning/torn/tuning.json").write_text('{"request": {}}')
    with tuning_cloud(tmp_path / "aws", tmp_path / "image") as cloud:
        listed = cloud.sm.list_hyper_parameter_tuning_jobs()["HyperParameterTuningJobSummaries"]
        assert [entry["HyperParameterTuningJobName"] for entry in listed] == ["whole"]
        assert len(list_tuning_trainings(cloud, "whole")) == 1
        assert len(cloud.sm.list_training_jobs()["TrainingJobSummaries"]) == 2
