"""Counters, ranks and summaries of training jobs."""

import pytest

from tests.trainyard.emulator.sagemaker.tuning.results import result
from trainyard.emulator.sagemaker.tuning.tuning_results import (
    converged_at,
    counters,
    failure_reason,
    is_criterion_met,
    not_improving,
    rank_results,
)


def test_counters_tell_the_two_kinds_of_failure_apart() -> None:
    found = counters(
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
    assert found["TrainingJobStatusCounters"] == {
        "Completed": 2,
        "InProgress": 2,
        "Stopped": 1,
        "RetryableError": 1,
        "NonRetryableError": 1,
    }
    assert found["ObjectiveStatusCounters"] == {"Succeeded": 2, "Pending": 2, "Failed": 3}


def test_the_best_is_the_least_or_the_most_and_of_equals_the_first() -> None:
    values = [result(1, 2.0), result(2), result(3, 1.0), result(4, 1.0)]
    assert [r.name for r in rank_results(values)] == ["t-003", "t-004", "t-001"]
    most = [result(1, 2.0, minimize=False), result(2, 3.0, minimize=False)]
    assert rank_results(most)[0].name == "t-002"


def test_a_summary_says_what_was_tuned_only() -> None:
    summary = result(3, 1.5).summary()
    assert summary["TunedHyperParameters"] == {"x": "3"}
    assert summary["FinalHyperParameterTuningJobObjectiveMetric"]["Value"] == 1.5
    assert "FinalHyperParameterTuningJobObjectiveMetric" not in result(3).summary()


def test_an_improvement_is_one_of_a_hundredth() -> None:
    values = [100.0, 99.5, 99.2, 98.0, 97.5]
    assert not_improving([result(n, value) for n, value in enumerate(values)]) == 1
    assert not_improving([result(n, value) for n, value in enumerate(values[:3])]) == 2


@pytest.mark.parametrize("minimize, target, reached", [
    (True, 1.0, True), (True, 0.9, False), (False, 1.0, True), (False, 1.1, False),
])  # fmt: skip
def test_the_target_is_reached_from_the_right_side(
    minimize: bool, target: float, reached: bool
) -> None:
    assert is_criterion_met(
        {"TargetObjectiveMetricValue": target}, [result(1, 1.0, minimize=minimize)]
    ) is (reached)


def test_jobs_that_do_not_improve_end_it() -> None:
    criteria = {"BestObjectiveNotImproving": {"MaxNumberOfTrainingJobsNotImproving": 3}}
    values = [result(n, 1.0) for n in range(4)]
    assert not is_criterion_met(criteria, values[:3])
    assert is_criterion_met(criteria, values)


def test_convergence_ends_it_where_that_is_enabled() -> None:
    flat = [result(n, 1.0) for n in range(11)]
    assert converged_at(flat[:10]) is None
    assert converged_at(flat) == 10.0
    assert is_criterion_met({"ConvergenceDetected": {"CompleteOnConvergence": "Enabled"}}, flat)
    assert not is_criterion_met(
        {"ConvergenceDetected": {"CompleteOnConvergence": "Disabled"}}, flat
    )


def test_five_failures_without_a_success_are_enough() -> None:
    failed = [result(n, status="Failed", FailureReason="AlgorithmError: no") for n in range(5)]
    assert failure_reason(failed[:4], last=False) is None
    assert "No training job succeeded after 5 attempts" in (
        failure_reason(failed, last=False) or ""
    )
    assert "AlgorithmError: no" in (failure_reason(failed, last=False) or "")
    assert failure_reason([*failed, result(9, 1.0)], last=True) is None


def test_a_short_tuning_fails_in_the_end() -> None:
    failed = [result(1, status="Failed", FailureReason="AlgorithmError: no")]
    assert "All training jobs failed" in (failure_reason(failed, last=True) or "")


def test_jobs_that_print_no_objective_are_failures_of_another_kind() -> None:
    silent = [result(n) for n in range(5)]
    assert "No objective metrics found after running 5" in (
        failure_reason(silent, last=False) or ""
    )
    assert failure_reason([], last=True) is None
