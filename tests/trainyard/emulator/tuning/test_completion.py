"""When a tuning job is done, and when it gives up."""

import pytest

from tests.trainyard.emulator.tuning.results import result
from trainyard.emulator.tuning.completion import converged_at, hopeless, met


@pytest.mark.parametrize("minimize, target, reached", [
    (True, 1.0, True), (True, 0.9, False), (False, 1.0, True), (False, 1.1, False),
])  # fmt: skip
def test_the_target_is_reached_from_the_right_side(
    minimize: bool, target: float, reached: bool
) -> None:
    assert met({"TargetObjectiveMetricValue": target}, [result(1, 1.0, minimize=minimize)]) is (
        reached
    )


def test_jobs_that_do_not_improve_end_it() -> None:
    criteria = {"BestObjectiveNotImproving": {"MaxNumberOfTrainingJobsNotImproving": 3}}
    values = [result(n, 1.0) for n in range(4)]
    assert not met(criteria, values[:3])
    assert met(criteria, values)


def test_convergence_ends_it_where_that_is_enabled() -> None:
    flat = [result(n, 1.0) for n in range(11)]
    assert converged_at(flat[:10]) is None
    assert converged_at(flat) == 10.0
    assert met({"ConvergenceDetected": {"CompleteOnConvergence": "Enabled"}}, flat)
    assert not met({"ConvergenceDetected": {"CompleteOnConvergence": "Disabled"}}, flat)


def test_five_failures_without_a_success_are_enough() -> None:
    failed = [result(n, status="Failed", FailureReason="AlgorithmError: no") for n in range(5)]
    assert hopeless(failed[:4], last=False) is None
    assert "No training job succeeded after 5 attempts" in (hopeless(failed, last=False) or "")
    assert "AlgorithmError: no" in (hopeless(failed, last=False) or "")
    assert hopeless([*failed, result(9, 1.0)], last=True) is None


def test_a_short_tuning_fails_in_the_end() -> None:
    failed = [result(1, status="Failed", FailureReason="AlgorithmError: no")]
    assert "All training jobs failed" in (hopeless(failed, last=True) or "")


def test_jobs_that_print_no_objective_are_failures_of_another_kind() -> None:
    silent = [result(n) for n in range(5)]
    assert "No objective metrics found after running 5" in (hopeless(silent, last=False) or "")
    assert hopeless([], last=True) is None
