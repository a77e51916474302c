"""Counters, ranks and summaries of training jobs."""

from tests.trainyard.emulator.tuning.results import result
from trainyard.emulator.tuning.results import counters, not_improving, ranked


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
    assert [r.name for r in ranked(values)] == ["t-003", "t-004", "t-001"]
    most = [result(1, 2.0, minimize=False), result(2, 3.0, minimize=False)]
    assert ranked(most)[0].name == "t-002"


def test_a_summary_says_what_was_tuned_only() -> None:
    summary = result(3, 1.5).summary()
    assert summary["TunedHyperParameters"] == {"x": "3"}
    assert summary["FinalHyperParameterTuningJobObjectiveMetric"]["Value"] == 1.5
    assert "FinalHyperParameterTuningJobObjectiveMetric" not in result(3).summary()


def test_an_improvement_is_one_of_a_hundredth() -> None:
    values = [100.0, 99.5, 99.2, 98.0, 97.5]
    assert not_improving([result(n, value) for n, value in enumerate(values)]) == 1
    assert not_improving([result(n, value) for n, value in enumerate(values[:3])]) == 2
