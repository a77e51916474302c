"""Requests of the training jobs."""

from tests.trainyard.emulator.sagemaker.tuning.harness import config, definition, request
from trainyard.emulator.sagemaker.tuning.tuning_results import (
    describe_definitions,
    has_unused_drivers,
    instances,
    training_request,
)


def test_a_job_gets_static_and_tuned_values_and_the_objective() -> None:
    trains = definition(StaticHyperParameters={"epochs": "3"}, EnableNetworkIsolation=True)
    asked = training_request(request(config()), trains, "t-001-a", {"x": "2"})
    assert asked["HyperParameters"] == {
        "epochs": "3",
        "x": "2",
        "_tuning_objective_metric": "loss",
    }
    assert asked["TrainingJobName"] == "t-001-a" and asked["EnableNetworkIsolation"]
    assert asked["ResourceConfig"] == trains["ResourceConfig"]


def test_each_job_has_checkpoints_of_its_own() -> None:
    trains = definition(CheckpointConfig={"S3Uri": "s3://bkt/c/", "LocalPath": "/opt/ml/c"})
    asked = training_request(request(), trains, "t-001-a", {})
    assert asked["CheckpointConfig"] == {"S3Uri": "s3://bkt/c/t-001-a", "LocalPath": "/opt/ml/c"}


def test_of_several_kinds_of_instance_the_first_is_taken() -> None:
    trains = definition()
    del trains["ResourceConfig"]
    kinds = [
        {"InstanceType": f"ml.m5.{size}large", "InstanceCount": 2, "VolumeSizeInGB": 1}
        for size in ("", "x")
    ]
    trains["HyperParameterTuningResourceConfig"] = {"InstanceConfigs": kinds}
    assert training_request(request(), trains, "n", {})["ResourceConfig"] == kinds[0]
    assert instances(trains) == 2
    shown = describe_definitions(request(TrainingJobDefinition=trains))["TrainingJobDefinition"]
    assert shown["ResourceConfig"] == kinds[0]  # SDK v2's attach reads it


def test_drivers_that_nothing_runs_are_noticed() -> None:
    drivers = [{"ChannelName": "sm_drivers"}]
    assert has_unused_drivers(definition(InputDataConfig=drivers))
    assert not has_unused_drivers(definition())
    torchrun = {"sagemaker_torch_distributed_enabled": "true"}
    assert not has_unused_drivers(
        definition(InputDataConfig=drivers, StaticHyperParameters=torchrun)
    )
