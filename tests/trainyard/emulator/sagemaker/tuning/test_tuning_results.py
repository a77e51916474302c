"""Results of training jobs: curves, counters, ranks, ends of a search, and later searches."""

from pathlib import Path
from typing import Any

import pytest

from tests.trainyard.emulator.sagemaker.tuning.harness import config, definition, request
from trainyard.emulator.logs.log_store import LogStore
from trainyard.emulator.request_scope import ApiError
from trainyard.emulator.sagemaker.tuning.objective_curves import (
    GROUP,
    Hyperband,
    Median,
    ObjectiveCurve,
)
from trainyard.emulator.sagemaker.tuning.search_strategies import build_space
from trainyard.emulator.sagemaker.tuning.tuning_job import (
    check_warm_start,
    select_warm_start_results,
)
from trainyard.emulator.sagemaker.tuning.tuning_results import (
    Result,
    count_jobs_without_improvement,
    count_statuses,
    explain_failure,
    find_convergence_time,
    is_criterion_met,
    rank_results,
)


def result(
    number: int,
    objective: float | None = None,
    status: str = "Completed",
    minimize: bool = True,
    tuning: str = "t",
    **more: Any,
) -> Result:
    """Return the training job that ended as number ``number``."""
    metrics = [] if objective is None else [{"MetricName": "loss", "Value": objective}]
    record = {
        "TrainingJobName": f"{tuning}-{number:03}",
        "TrainingJobArn": f"arn:aws:sagemaker:us-east-1:1:training-job/{tuning}-{number:03}",
        "TrainingJobStatus": status,
        "CreationTime": float(number),
        "TrainingEndTime": float(number),
        "FinalMetricDataList": metrics,
        "HyperParameters": {"x": str(number), "fixed": "1", "_tuning_objective_metric": "loss"},
        **more,
    }
    return Result(tuning, "", record, frozenset({"x"}), minimize)


def make_failed_results(count: int) -> list[Result]:
    return [result(n, status="Failed", FailureReason="AlgorithmError: no") for n in range(count)]


# curves of objectives, and the rules that stop jobs by them


def curve(tmp_path: Path, *nodes: list[str]) -> ObjectiveCurve:
    logs = LogStore(tmp_path)
    for number, lines in enumerate(nodes, start=1):
        logs.append(GROUP, f"job/algo-{number}-1", lines)
    metric = {"Name": "loss", "Regex": r"loss[=:]\s*([0-9.]+)"}
    found = ObjectiveCurve(logs, "job", len(nodes), metric)
    found.read_new_values()
    return found


def test_each_line_with_the_objective_is_a_unit_and_it_is_read_on_where_it_was_left(tmp_path: Path):
    lines = ["start", "epoch 1 loss=0.5", "[emulator] loss=9", "epoch 2 loss=0.4", "loss=nan"]
    found = curve(tmp_path, lines)
    assert found.values == [0.5, 0.4]
    LogStore(tmp_path).append(GROUP, "job/algo-1-1", ["loss=2"])
    found.read_new_values()
    assert found.values == [0.5, 0.4, 2.0]


def test_the_lines_of_all_nodes_count_as_on_aws(tmp_path: Path) -> None:
    assert curve(tmp_path, ["nothing"], ["loss=3", "loss=2"], ["loss=3"]).values == [3.0, 2.0, 3.0]


AVERAGED = [[10.0, 8.0, 1.0], [7.0, 5.0], [4.0, 2.0]]
"""Averages up to 2: 9, 6, 3; their median is 6."""


@pytest.mark.parametrize(
    ("rule", "values", "others", "verdict"),
    [
        (Median(True), [9.0, 6.0], AVERAGED, None),  # as good as the median
        (Median(True), [1.0, 6.1], AVERAGED, "is worse than 6"),
        (Median(True), [5.0] * 3, [[1.0, 1.0], [1.0]], None),  # no other got that far
        (Median(True), [5.0] * 2, [[1.0, 1.0], [1.0]], "is worse than 1"),
        (Median(False), [0.6], [[0.5]], None),
        (Median(False), [0.4], [[0.5]], "is worse than 0.5"),
        (Hyperband(True, 1, 9), [1.5], [[n] for n in range(1, 6)], None),  # number 2 of 6
        (Hyperband(True, 1, 9), [2.5], [[n] for n in range(1, 6)], "number 3 of 6"),
        (Hyperband(False, 1, 9), [-1.5], [[-n] for n in range(1, 6)], None),
        (Hyperband(False, 1, 9), [-2.5], [[-n] for n in range(1, 6)], "number 3 of 6"),
        (Hyperband(True, 1, 9), [100.0], [[]], None),  # the first at a rung
        (Hyperband(True, 1, 9), [1.0, 100.0], [[0.0, 0.0]] * 5, None),  # between rungs
        (Hyperband(True, 3, 9), [100.0], [[0.0]] * 9, None),  # before MinResource
        (Hyperband(True, 1, 4), [1.0] * 4, [], None),  # it may save its model
        (Hyperband(True, 1, 4), [1.0] * 5, [], "MaxResource"),
    ],
)
def test_a_rule_stops_by_the_last_value(rule: Any, values, others, verdict: str | None) -> None:
    found = rule.find_stop_reason(values, len(values), others)
    assert found is None if verdict is None else verdict in (found or "")


def test_rungs_go_from_min_resource_by_threes_up_to_max_resource() -> None:
    assert Hyperband(True, 1, 27).list_rungs() == [1, 3, 9]
    assert Hyperband(True, 2, 7).list_rungs() == [2, 6]


# counters, ranks and ends


def test_counters_tell_the_two_kinds_of_failure_apart() -> None:
    found = count_statuses(
        [
            result(1, 1.0),
            result(2),
            result(3, status="InProgress"),
            result(4, status="Stopping"),
            result(5, 2.0, status="Stopped"),
            result(6, status="Failed", FailureReason="InternalServerError: we"),
            result(7, 1.0, status="Failed", FailureReason="AlgorithmError: you"),
        ]
    )
    assert found == {
        "TrainingJobStatusCounters": {
            "Completed": 2,
            "InProgress": 2,
            "Stopped": 1,
            "RetryableError": 1,
            "NonRetryableError": 1,
        },
        "ObjectiveStatusCounters": {"Succeeded": 2, "Pending": 2, "Failed": 3},
    }


def test_the_best_is_the_least_or_the_most_and_of_equals_the_first() -> None:
    values = [result(1, 2.0), result(2), result(3, 1.0), result(4, 1.0)]
    assert [r.name for r in rank_results(values)] == ["t-003", "t-004", "t-001"]
    most = [result(1, 2.0, minimize=False), result(2, 3.0, minimize=False)]
    assert rank_results(most)[0].name == "t-002"


def test_a_summary_says_what_was_tuned_only() -> None:
    summary = result(3, 1.5).summarize()
    assert summary["TunedHyperParameters"] == {"x": "3"}
    assert summary["FinalHyperParameterTuningJobObjectiveMetric"]["Value"] == 1.5
    assert "FinalHyperParameterTuningJobObjectiveMetric" not in result(3).summarize()


def test_an_improvement_is_one_of_a_hundredth() -> None:
    values = [result(n, value) for n, value in enumerate((100.0, 99.5, 99.2, 98.0, 97.5))]
    assert (count_jobs_without_improvement(values), count_jobs_without_improvement(values[:3])) == (
        1,
        2,
    )


FLAT = [result(n, 1.0) for n in range(11)]
PATIENCE = {"BestObjectiveNotImproving": {"MaxNumberOfTrainingJobsNotImproving": 3}}


@pytest.mark.parametrize(
    ("criteria", "results", "is_met"),
    [
        ({"TargetObjectiveMetricValue": 1.0}, [result(1, 1.0)], True),
        ({"TargetObjectiveMetricValue": 0.9}, [result(1, 1.0)], False),
        ({"TargetObjectiveMetricValue": 1.0}, [result(1, 1.0, minimize=False)], True),
        ({"TargetObjectiveMetricValue": 1.1}, [result(1, 1.0, minimize=False)], False),
        (PATIENCE, FLAT[:3], False),
        (PATIENCE, FLAT[:4], True),
        ({"ConvergenceDetected": {"CompleteOnConvergence": "Enabled"}}, FLAT, True),
        ({"ConvergenceDetected": {"CompleteOnConvergence": "Enabled"}}, FLAT[:10], False),
        ({"ConvergenceDetected": {"CompleteOnConvergence": "Disabled"}}, FLAT, False),
    ],
)
def test_a_criterion_ends_the_search(criteria: dict, results: list[Result], is_met: bool) -> None:
    assert is_criterion_met(criteria, results) is is_met
    assert (find_convergence_time(results) == 10.0) is (len(results) == 11)


@pytest.mark.parametrize(
    ("results", "is_last", "said"),
    [
        (make_failed_results(4), False, None),
        (
            make_failed_results(5),
            False,
            r"No training job succeeded after 5 attempts.*AlgorithmError: no",
        ),
        ([*make_failed_results(5), result(9, 1.0)], True, None),
        (make_failed_results(1), True, "All training jobs failed"),
        (make_failed_results(5), True, "No training job succeeded after 5 attempts"),
        ([result(n) for n in range(5)], False, "No objective metrics found after running 5"),
        ([], True, None),
    ],
)
def test_jobs_without_a_success_fail_the_search(results, is_last: bool, said: str | None) -> None:
    reason = explain_failure(results, last=is_last)
    assert reason is None if said is None else all(part in reason for part in said.split(".*"))


# a later search: accepted parents, and the results used from them


def child(kind: str = "IdenticalDataAndAlgorithm", **more: Any) -> dict[str, Any]:
    names = [{"HyperParameterTuningJobName": "p"}]
    start = {"WarmStartType": kind, "ParentHyperParameterTuningJobs": names}
    return request(**{"WarmStartConfig": start, **more})


def trains(**more: Any) -> dict[str, Any]:
    return {"TrainingJobDefinition": definition(**more)}


CHANNEL = trains(InputDataConfig=[{"ChannelName": "train"}])
MOST = {"Type": "Maximize", "MetricName": "loss"}
FLOATS = {"ContinuousParameterRanges": [{"Name": "x", "MinValue": "1", "MaxValue": "2"}]}
SIX, NEXT = ({f"s{n}": value for n in range(6)} for value in "12")
COMPLETED = {"HyperParameterTuningJobStatus": "Completed"}
RUNNING = {"HyperParameterTuningJobStatus": "InProgress"}


@pytest.mark.parametrize(
    ("asked", "parent", "problem"),
    [
        (child(), request() | RUNNING, "it is InProgress"),
        (child(), request(config(HyperParameterTuningJobObjective=MOST)), "its objective is"),
        (child(), request(**trains(StaticHyperParameters={"a": "1"})),
         "it has 2 static and tuned hyperparameters, expected 1"),
        (child(), request(config(ParameterRanges=FLOATS)),
         "x is Continuous in the parent and Integer"),
        (child(**trains(StaticHyperParameters=SIX)), request(**trains(StaticHyperParameters=NEXT)),
         "12 changes"),
        (child(**CHANNEL), request(), "InputDataConfig differs"),
        (child(), request(), None),
        (child("TransferLearning", **CHANNEL), request(), None),
        (request(), request(**CHANNEL), None),
    ],
)  # fmt: skip
def test_a_parent_that_does_not_fit_is_refused(asked: dict, parent: dict, problem: str | None):
    if problem is None:
        check_warm_start(asked, {"p": COMPLETED | parent})
        return
    with pytest.raises(ApiError, match=problem):
        check_warm_start(asked, {"p": COMPLETED | parent})


@pytest.mark.parametrize(
    ("asked", "known", "first"),
    [
        (child(HyperParameterTuningJobConfig=config("Bayesian")), "1234", ""),
        (child("TransferLearning", HyperParameterTuningJobConfig=config("Bayesian")), "", "123"),
        (child(), "", ""),  # Random learns nothing
    ],
)
def test_what_is_in_range_is_learned_from_and_with_transfer_the_best_are_tried_first(
    asked: dict, known: str, first: str
) -> None:
    parents = [result(n, float(n), tuning="p") for n in (3, 1, 2, 4)]
    parents += [result(20, 0.0, tuning="p")]
    trials, tried = select_warm_start_results(
        asked, build_space(config()["ParameterRanges"]), parents
    )
    assert [trial.values["x"] for trial in trials] == [*known]
    assert [values["x"] for values in tried] == [*first]
