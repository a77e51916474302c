"""Refusals before anything starts, each with its reason."""

import copy
from typing import Any

import pytest

from tests.trainyard.emulator.sagemaker.tuning.harness import config, definition, request
from trainyard.emulator.request_scope import ApiError
from trainyard.emulator.sagemaker.tuning.tuning_request import (
    check_search,
    find_metric_definition,
    resolve_resources,
)
from trainyard.emulator.sagemaker.tuning.tuning_results import (
    build_training_request,
    count_instances,
    describe_definitions,
    has_unused_drivers,
)

CATEGORIES = {"CategoricalParameterRanges": [{"Name": "c", "Values": ["a", "b"]}]}


def numbers(low: str, high: str, scaling: str = "Auto", kind: str = "Continuous") -> dict[str, Any]:
    item = {"Name": "x", "MinValue": low, "MaxValue": high, "ScalingType": scaling}
    return {"ParameterRanges": {f"{kind}ParameterRanges": [item]}}


def make_named_definition(**more: Any) -> dict[str, Any]:
    shared = config()["HyperParameterTuningJobObjective"]
    ranges = {"HyperParameterRanges": CATEGORIES, "TuningObjective": shared}
    return definition(DefinitionName="one", **ranges) | more


@pytest.mark.parametrize(
    "search, problem",
    [
        (config(**numbers("3", "1")), "Ranges[0].MinValue: x from 3 to 1: swap"),
        (config(**numbers("0", "0", "ReverseLogarithmic", "Integer")), "for continuous ranges"),
        (config(ParameterRanges={}), "0 hyperparameters are searched"),
        (config(ParameterRanges=CATEGORIES | numbers("0", "1")["ParameterRanges"] | {
            "IntegerParameterRanges": [{"Name": "x", "MinValue": "1", "MaxValue": "2"}]}),
         "x has more than one range"),
        (config(**numbers("0", "1"), HyperParameterTuningJobObjective={}), "it is required"),
        (config("Grid", 3, ParameterRanges=CATEGORIES), "each of the 2 combinations once"),
        (config(jobs=None), "needs MaxNumberOfTrainingJobs, MaxRuntimeInSeconds"),
        (config("Bayesian", 751), "the quota is 1..750"),
        (config("Hyperband"), "StaticHyperParameters: no MaxResource, and nothing to infer"),
        (config(StrategyConfig={"HyperbandStrategyConfig": {"MaxResource": 9}}), "not Random"),
    ],
)  # fmt: skip
def test_a_search_that_cannot_be_done_is_refused(search: dict[str, Any], problem: str) -> None:
    with pytest.raises(ApiError) as refused:
        check_search(request(search))
    assert problem in refused.value.message


def test_a_request_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(ApiError, match="one of TrainingJobDefinition and"):
        check_search(request() | {"TrainingJobDefinitions": [make_named_definition()]})
    with pytest.raises(ApiError, match="Autotune is not run"):
        check_search(request(Autotune={"Mode": "Enabled"}))


@pytest.mark.parametrize(
    ("missing", "problem"),
    [
        ("DefinitionName", "needs DefinitionName"),
        ("TuningObjective", "needs TuningObjective"),
        ("HyperParameterRanges", "needs HyperParameterRanges"),
        ("", "DefinitionName must be unique"),
    ],
)
def test_each_of_several_definitions_needs_its_own(missing: str, problem: str) -> None:
    other = make_named_definition(DefinitionName="two" if missing else "one")
    other.pop(missing, None)
    with pytest.raises(ApiError, match=problem):
        check_search(request(config(), TrainingJobDefinitions=[make_named_definition(), other]))


@pytest.mark.parametrize("search", [
    config(), config("Bayesian"), config("Grid", None, ParameterRanges=CATEGORIES),
    config("Random", None, TuningJobCompletionCriteria={"TargetObjectiveMetricValue": 1.0}),
    config("Hyperband", StrategyConfig={"HyperbandStrategyConfig": {"MaxResource": 9}}),
    config(**numbers("0", "0.999", "ReverseLogarithmic")),
])  # fmt: skip
def test_what_is_well_formed_is_not_refused(search: dict[str, Any]) -> None:
    asked = request(search)
    before = copy.deepcopy(asked)
    check_search(asked)
    assert asked == before


def test_an_objective_that_no_metric_defines_is_refused_in_the_words_of_aws() -> None:
    objective = {"Type": "Minimize", "MetricName": "accuracy"}
    asked = request(config(HyperParameterTuningJobObjective=objective))
    with pytest.raises(ApiError, match="Provide a metric in the metric definitions.*have loss"):
        find_metric_definition(asked, definition())


@pytest.mark.parametrize("name", ["epochs", "numepochs", "n-epochs", "n_epochs", "num_epochs"])
def test_max_resource_is_inferred_from_the_epochs(name: str) -> None:
    """SDK v2 writes hyperparameters as JSON, so a number may be quoted."""
    for value in ("27", '"27"'):
        trains = definition(StaticHyperParameters={name: value})
        assert resolve_resources(config("Hyperband"), trains) == (1, 27)


@pytest.mark.parametrize("least, most", [(9, 9), (1, 20_001)])
def test_resources_that_do_not_fit_are_refused(least: int, most: int) -> None:
    given = {"HyperbandStrategyConfig": {"MinResource": least, "MaxResource": most}}
    with pytest.raises(ApiError, match="expected MinResource < MaxResource <= 20000"):
        resolve_resources(config("Hyperband", StrategyConfig=given), definition())


# requests of the training jobs


def test_a_job_gets_static_and_tuned_values_the_objective_and_checkpoints_of_its_own() -> None:
    checkpoints = {"S3Uri": "s3://bkt/c/", "LocalPath": "/opt/ml/c"}
    static = {"epochs": "3"}
    trains = definition(
        StaticHyperParameters=static, CheckpointConfig=checkpoints, EnableNetworkIsolation=True
    )
    asked = build_training_request(request(), trains, "t-001-a", {"x": "2"})
    assert asked["HyperParameters"] == static | {"x": "2", "_tuning_objective_metric": "loss"}
    assert asked["TrainingJobName"] == "t-001-a" and asked["EnableNetworkIsolation"]
    assert asked["ResourceConfig"] == trains["ResourceConfig"]
    assert asked["CheckpointConfig"] == checkpoints | {"S3Uri": "s3://bkt/c/t-001-a"}


def test_of_several_kinds_of_instance_the_first_is_taken() -> None:
    trains = definition()
    del trains["ResourceConfig"]
    kinds = [
        {"InstanceType": f"ml.m5.{size}large", "InstanceCount": 2, "VolumeSizeInGB": 1}
        for size in ("", "x")
    ]
    trains["HyperParameterTuningResourceConfig"] = {"InstanceConfigs": kinds}
    assert build_training_request(request(), trains, "n", {})["ResourceConfig"] == kinds[0]
    assert count_instances(trains) == 2
    shown = describe_definitions(request(TrainingJobDefinition=trains))["TrainingJobDefinition"]
    assert shown["ResourceConfig"] == kinds[0]  # SDK v2's attach reads it


def test_drivers_that_nothing_runs_are_noticed() -> None:
    drivers = {"InputDataConfig": [{"ChannelName": "sm_drivers"}]}
    assert has_unused_drivers(definition(**drivers))
    assert not has_unused_drivers(definition())
    torchrun = {"sagemaker_torch_distributed_enabled": "true"}
    assert not has_unused_drivers(definition(**drivers, StaticHyperParameters=torchrun))
