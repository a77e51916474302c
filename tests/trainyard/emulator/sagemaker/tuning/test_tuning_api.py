"""Tuning jobs through boto3, which train real jobs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.trainyard.emulator.harness import Cloud, until
from tests.trainyard.emulator.sagemaker.tuning.harness import (
    config,
    definition,
    request,
    trained,
    tune,
    tuned,
    tuning_cloud,
)

pytestmark = [pytest.mark.slow, pytest.mark.long]
LIMITS = {"MaxParallelTrainingJobs": 1, "MaxNumberOfTrainingJobs": 6}
CATEGORIES = {"CategoricalParameterRanges": [{"Name": "x", "Values": ["3", "1", "2"]}]}
ONE_VALUE = {"CategoricalParameterRanges": [{"Name": "x", "Values": ["1"]}]}
CURVE = """
for epoch in 1 2 3 4 5 6; do echo "epoch $epoch loss=$(hp x);"; sleep 0.25; done
echo model > /opt/ml/model/m
"""


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    state = tmp_path_factory.mktemp("state")
    with tuning_cloud(state / "aws", state / "image") as cloud:
        yield cloud


def test_a_tuning_trains_its_jobs_and_finds_the_best(cloud: Cloud) -> None:
    tags = [{"Key": "team", "Value": "a"}]
    asked = request(config("Bayesian", 3), Tags=tags)
    found = tune(cloud, "plain", asked)
    assert found["HyperParameterTuningJobStatus"] == "Completed"
    assert found["TrainingJobStatusCounters"]["Completed"] == 3
    static = found["TrainingJobDefinition"]["StaticHyperParameters"]
    assert static == {"_tuning_objective_metric": "loss"}  # the SDK's attach takes it out again
    assert found["ObjectiveStatusCounters"] == {"Succeeded": 3, "Pending": 0, "Failed": 0}
    jobs = trained(cloud, "plain", SortBy="FinalObjectiveMetricValue")
    best = found["BestTrainingJob"]
    assert best == jobs[0]
    value = best["FinalHyperParameterTuningJobObjectiveMetric"]["Value"]
    assert value == float(best["TunedHyperParameters"]["x"])
    job = cloud.sm.describe_training_job(TrainingJobName=best["TrainingJobName"])
    assert job["TuningJobArn"] == found["HyperParameterTuningJobArn"]
    assert job["HyperParameters"]["_tuning_objective_metric"] == "loss"
    assert cloud.get(f"models/{best['TrainingJobName']}/output/model.tar.gz")
    listed = cloud.sm.list_tags(ResourceArn=found["HyperParameterTuningJobArn"])["Tags"]
    assert listed == tags
    assert "plain" in [
        entry["HyperParameterTuningJobName"]
        for entry in cloud.sm.list_hyper_parameter_tuning_jobs(NameContains="plai", SortBy="Name")[
            "HyperParameterTuningJobSummaries"
        ]
    ]


def test_its_jobs_log_says_that_the_search_is_not_awss(cloud: Cloud) -> None:
    tune(cloud, "labelled", request(config("Bayesian", 2)))
    stream = cloud.logs.describe_log_streams(
        logGroupName="/aws/sagemaker/TrainingJobs", logStreamNamePrefix="labelled-001"
    )["logStreams"][0]["logStreamName"]
    events = cloud.logs.get_log_events(
        logGroupName="/aws/sagemaker/TrainingJobs", logStreamName=stream
    )["events"]
    assert any("a Bayesian search (optuna's TPE), not AWS's" in e["message"] for e in events)


def test_a_grid_trains_each_combination_once(cloud: Cloud) -> None:
    found = tune(cloud, "grid", request(config("Grid", None, ParameterRanges=CATEGORIES)))
    assert [job["TunedHyperParameters"]["x"] for job in trained(cloud, "grid")] == ["3", "1", "2"]
    assert found["BestTrainingJob"]["TunedHyperParameters"] == {"x": "1"}


def test_two_definitions_take_turns(cloud: Cloud) -> None:
    objective = config()["HyperParameterTuningJobObjective"]
    both: list[dict[str, Any]] = [
        definition(
            f'echo "loss=1$(hp x);{number}"',
            DefinitionName=f"d{number}",
            HyperParameterRanges=CATEGORIES,
            TuningObjective=objective,
        )
        for number in (1, 2)
    ]
    search = config("Grid", None)
    del search["ParameterRanges"], search["HyperParameterTuningJobObjective"]
    found = tune(cloud, "two", request(search, TrainingJobDefinitions=both))
    jobs = trained(cloud, "two")
    assert [job["TrainingJobDefinitionName"] for job in jobs] == ["d1"] * 3 + ["d2"] * 3
    assert found["BestTrainingJob"]["TrainingJobDefinitionName"] == "d1"


def test_failing_jobs_end_the_tuning_with_their_reason(cloud: Cloud) -> None:
    broken = definition("echo boom > /opt/ml/output/failure; exit 3")
    found = tune(cloud, "broken", request(config(jobs=9), TrainingJobDefinition=broken))
    assert found["HyperParameterTuningJobStatus"] == "Failed"
    assert found["FailureReason"].startswith("No training job succeeded after")
    assert "boom" in found["FailureReason"]
    assert found["TrainingJobStatusCounters"]["NonRetryableError"] < 9
    assert "BestTrainingJob" not in found


def test_jobs_that_print_nothing_end_the_tuning(cloud: Cloud) -> None:
    silent = request(config(jobs=2), TrainingJobDefinition=definition("true"))
    found = tune(cloud, "silent", silent)
    assert found["FailureReason"].startswith("No objective metrics found after running 2")


def test_a_target_ends_the_tuning(cloud: Cloud) -> None:
    search = config(
        jobs=None,
        ResourceLimits={"MaxParallelTrainingJobs": 1},
        TuningJobCompletionCriteria={"TargetObjectiveMetricValue": 3.0},
    )
    found = tune(cloud, "target", request(search))
    values = [float(job["TunedHyperParameters"]["x"]) for job in trained(cloud, "target")]
    assert found["HyperParameterTuningJobStatus"] == "Completed"
    assert values[-1] <= 3 and all(value > 3 for value in values[:-1])


def test_early_stopping_stops_what_is_worse_than_the_median(tmp_path: Path) -> None:
    """At once: the shell that runs it does not handle SIGTERM, and the next job waits."""
    search = config(
        "Grid",
        None,
        ParameterRanges={"CategoricalParameterRanges": [{"Name": "x", "Values": ["1", "9"]}]},
        ResourceLimits={"MaxParallelTrainingJobs": 1},
        TrainingJobEarlyStoppingType="Auto",
    )
    stuck = definition(CURVE.replace("echo model", "[ $(hp x) = 1 ] || sleep 600; echo model"))
    with tuning_cloud(tmp_path / "aws", tmp_path / "image", stop_grace=600) as cloud:
        found = tune(cloud, "early", request(search, TrainingJobDefinition=stuck))
        jobs = trained(cloud, "early")
        lines = cloud.all_lines("Training", jobs[1]["TrainingJobName"])
    assert any("All are killed at once, on AWS 120 s later" in line for line in lines)
    assert [job["TrainingJobStatus"] for job in jobs] == ["Completed", "Stopped"]
    assert [job["ObjectiveStatus"] for job in jobs] == ["Succeeded", "Succeeded"]
    assert found["TrainingJobStatusCounters"]["Stopped"] == 1


def test_a_stop_ends_the_jobs_that_run(cloud: Cloud) -> None:
    slow = request(TrainingJobDefinition=definition("sleep 60"))
    cloud.sm.create_hyper_parameter_tuning_job(HyperParameterTuningJobName="slow", **slow)
    until(lambda: len(trained(cloud, "slow")) == 2)
    with pytest.raises(ClientError, match="stop it first"):
        cloud.sm.delete_hyper_parameter_tuning_job(HyperParameterTuningJobName="slow")
    cloud.sm.stop_hyper_parameter_tuning_job(HyperParameterTuningJobName="slow")
    found = tuned(cloud, "slow")
    assert found["HyperParameterTuningJobStatus"] == "Stopped"
    assert [job["TrainingJobStatus"] for job in trained(cloud, "slow")] == ["Stopped"] * 2
    with pytest.raises(ClientError, match="is in status Stopped"):
        cloud.sm.stop_hyper_parameter_tuning_job(HyperParameterTuningJobName="slow")
    cloud.sm.delete_hyper_parameter_tuning_job(HyperParameterTuningJobName="slow")
    with pytest.raises(ClientError, match="Tuning job 'slow' does not exist"):
        tuned(cloud, "slow")


def test_a_warm_start_knows_the_best_of_all(cloud: Cloud) -> None:
    tune(cloud, "parent", request(config("Grid", None, ParameterRanges=CATEGORIES)))
    start = {
        "WarmStartType": "IdenticalDataAndAlgorithm",
        "ParentHyperParameterTuningJobs": [{"HyperParameterTuningJobName": "parent"}],
    }
    worse = config("Grid", None, ParameterRanges={
        "CategoricalParameterRanges": [{"Name": "x", "Values": ["5", "4"]}]})  # fmt: skip
    found = tune(cloud, "child", request(worse, WarmStartConfig=start))
    assert found["BestTrainingJob"]["TunedHyperParameters"] == {"x": "4"}
    assert found["OverallBestTrainingJob"]["TunedHyperParameters"] == {"x": "1"}
    assert found["OverallBestTrainingJob"]["TuningJobName"] == "parent"


def test_what_cannot_run_is_refused_and_leaves_nothing(cloud: Cloud) -> None:
    before = len(cloud.sm.list_training_jobs(MaxResults=100)["TrainingJobSummaries"])
    odd = definition(StaticHyperParameters={"a": "1"})
    odd["AlgorithmSpecification"] = odd["AlgorithmSpecification"] | {"TrainingImage": "1.dkr/mine"}
    for name, asked, problem in (
        ("a" * 33, request(), "at most 32|length"),
        ("image", request(TrainingJobDefinition=odd), "image '1.dkr/mine' is not known"),
        ("search", request(config("Hyperband")), "MaxResource"),
    ):
        with pytest.raises(ClientError, match=problem):
            tune(cloud, name, asked)
    assert len(cloud.sm.list_training_jobs(MaxResults=100)["TrainingJobSummaries"]) == before


def test_what_is_damaged_costs_only_itself(tmp_path: Path) -> None:
    with tuning_cloud(tmp_path / "aws", tmp_path / "image") as cloud:
        for name in ("whole", "torn"):
            tune(cloud, name, request(config("Grid", None, ParameterRanges=ONE_VALUE)))
    (tmp_path / "aws/tuning/torn/tuning.json").write_text('{"request": {}}')
    with tuning_cloud(tmp_path / "aws", tmp_path / "image") as cloud:
        listed = cloud.sm.list_hyper_parameter_tuning_jobs()["HyperParameterTuningJobSummaries"]
        assert [entry["HyperParameterTuningJobName"] for entry in listed] == ["whole"]
        assert len(trained(cloud, "whole")) == 1
        assert len(cloud.sm.list_training_jobs()["TrainingJobSummaries"]) == 2


def test_a_name_is_taken_once(cloud: Cloud) -> None:
    tune(cloud, "once", request(config(jobs=2)))
    with pytest.raises(ClientError, match="must be unique"):
        tune(cloud, "once", request())
