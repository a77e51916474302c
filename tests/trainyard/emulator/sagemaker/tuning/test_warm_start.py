"""Accepted parents, and the results used from them."""

from typing import Any

import pytest

from tests.trainyard.emulator.sagemaker.tuning.harness import config, definition, request
from tests.trainyard.emulator.sagemaker.tuning.results import result
from trainyard.emulator.request_scope import ApiError
from trainyard.emulator.sagemaker.tuning.search_strategies import space_of
from trainyard.emulator.sagemaker.tuning.tuning_job import check_warm_start, reuse_results

ENDED = {"HyperParameterTuningJobStatus": "Completed"}


def child(kind: str = "IdenticalDataAndAlgorithm", **more: Any) -> dict[str, Any]:
    names = [{"HyperParameterTuningJobName": "p"}]
    start = {"WarmStartType": kind, "ParentHyperParameterTuningJobs": names}
    return request(**{"WarmStartConfig": start, **more})


def refusal(asked: dict[str, Any], parent: dict[str, Any]) -> str:
    with pytest.raises(ApiError) as refused:
        check_warm_start(asked, {"p": ENDED | parent})
    return refused.value.message


def test_an_equal_parent_is_accepted() -> None:
    check_warm_start(child(), {"p": request() | ENDED})
    check_warm_start(request(), {})


@pytest.mark.parametrize(
    "asked, parent, problem",
    [
        (child(), request() | {"HyperParameterTuningJobStatus": "InProgress"}, "it is InProgress"),
        (
            child(),
            request(config(HyperParameterTuningJobObjective={
                "Type": "Maximize", "MetricName": "loss"})),
            "its objective is",
        ),
        (
            child(),
            request(TrainingJobDefinition=definition(StaticHyperParameters={"a": "1"})),
            "it has 2 static and tuned hyperparameters, expected 1",
        ),
        (
            child(),
            request(config(ParameterRanges={"ContinuousParameterRanges": [
                {"Name": "x", "MinValue": "1", "MaxValue": "2"}]})),
            "x is Continuous there and Integer here",
        ),
        (
            child(TrainingJobDefinition=definition(
                StaticHyperParameters={f"s{n}": "1" for n in range(6)})),
            request(TrainingJobDefinition=definition(
                StaticHyperParameters={f"s{n}": "2" for n in range(6)})),
            "12 changes",
        ),
        (
            child(TrainingJobDefinition=definition(InputDataConfig=[{"ChannelName": "train"}])),
            request(),
            "InputDataConfig differs",
        ),
    ],
)  # fmt: skip
def test_a_parent_that_does_not_fit_is_refused(
    asked: dict[str, Any], parent: dict[str, Any], problem: str
) -> None:
    assert problem in refusal(asked, parent)


def test_other_data_is_transfer_learning() -> None:
    other = definition(InputDataConfig=[{"ChannelName": "train"}])
    asked = child("TransferLearning", TrainingJobDefinition=other)
    check_warm_start(asked, {"p": request() | ENDED})


SPACE = space_of(config()["ParameterRanges"])
PARENTS = [result(n, float(n), tuning="p") for n in (3, 1, 2, 4)] + [result(20, 0.0, tuning="p")]


def test_identical_data_is_learned_from_and_what_is_out_of_range_is_not() -> None:
    asked = child(HyperParameterTuningJobConfig=config("Bayesian"))
    known, first = reuse_results(asked, SPACE, PARENTS)
    assert [trial.values["x"] for trial in known] == ["1", "2", "3", "4"] and not first


def test_with_transfer_the_best_are_tried_first() -> None:
    asked = child("TransferLearning", HyperParameterTuningJobConfig=config("Bayesian"))
    known, first = reuse_results(asked, SPACE, PARENTS)
    assert [values["x"] for values in first] == ["1", "2", "3"] and not known


def test_random_learns_nothing() -> None:
    assert reuse_results(child(), SPACE, PARENTS) == ([], [])
