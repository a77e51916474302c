"""Refusals before anything starts, each with its reason."""

import copy
from typing import Any

import pytest

from tests.trainyard.emulator.sagemaker.tuning.harness import config, definition, request
from trainyard.emulator.request_scope import ApiError
from trainyard.emulator.sagemaker.tuning.tuning_request import check_search, metric_of, resources

CATEGORIES = {"CategoricalParameterRanges": [{"Name": "c", "Values": ["a", "b"]}]}
LIMITS = {"MaxParallelTrainingJobs": 2, "MaxNumberOfTrainingJobs": 3}


def numbers(low: str, high: str, scaling: str = "Auto", kind: str = "Continuous") -> dict[str, Any]:
    item = {"Name": "x", "MinValue": low, "MaxValue": high, "ScalingType": scaling}
    return {"ParameterRanges": {f"{kind}ParameterRanges": [item]}}


def named(**more: Any) -> dict[str, Any]:
    shared = config()["HyperParameterTuningJobObjective"]
    ranges = {"HyperParameterRanges": CATEGORIES, "TuningObjective": shared}
    return definition(DefinitionName="one", **ranges) | more


@pytest.mark.parametrize(
    "search, problem",
    [
        (config(**numbers("3", "1")), "Ranges[0].MinValue: x from 3 to 1: exchange"),
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


@pytest.mark.parametrize(
    "more, problem",
    [
        ({"TrainingJobDefinitions": [named()]}, "one of TrainingJobDefinition and"),
        ({"Autotune": {"Mode": "Enabled"}}, "Autotune is not run"),
    ],
)
def test_a_request_that_contradicts_itself_is_refused(more: dict[str, Any], problem: str) -> None:
    with pytest.raises(ApiError) as refused:
        check_search(request(**more) | {"TrainingJobDefinition": definition(), **more})
    assert problem in refused.value.message


@pytest.mark.parametrize("member", ["DefinitionName", "TuningObjective", "HyperParameterRanges"])
def test_each_of_several_definitions_needs_its_own(member: str) -> None:
    other = named(DefinitionName="two")
    del other[member]
    asked = request(config(), TrainingJobDefinitions=[named(), other])
    with pytest.raises(ApiError, match=f"needs {member}"):
        check_search(asked)


def test_two_definitions_of_one_name_are_refused() -> None:
    with pytest.raises(ApiError, match="DefinitionName must be unique"):
        check_search(request(config(), TrainingJobDefinitions=[named(), named()]))


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
        metric_of(asked, definition())


@pytest.mark.parametrize("name", ["epochs", "numepochs", "n-epochs", "n_epochs", "num_epochs"])
@pytest.mark.parametrize("value", ["27", '"27"'])
def test_max_resource_is_inferred_from_the_epochs(name: str, value: str) -> None:
    """SDK v2 writes hyperparameters as JSON, so a number may be quoted."""
    found = resources(config("Hyperband"), definition(StaticHyperParameters={name: value}))
    assert found == (1, 27)


@pytest.mark.parametrize("least, most", [(9, 9), (1, 20_001)])
def test_resources_that_do_not_fit_are_refused(least: int, most: int) -> None:
    given = {"HyperbandStrategyConfig": {"MinResource": least, "MaxResource": most}}
    with pytest.raises(ApiError, match="expected MinResource < MaxResource <= 20000"):
        resources(config("Hyperband", StrategyConfig=given), definition())
