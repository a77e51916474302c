"""When a tuning job is done, and why it fails.

TuningJobCompletionCriteria: any one that is met completes it. AWS does not publish when it sees
convergence; here it is when three jobs for each searched hyperparameter, and at least
``CONVERGED``, have ended since one bettered the best by 1 %.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from trainyard.emulator.tuning.results import Result, in_order_of_end, not_improving

CONVERGED = 10
ATTEMPTS = 5
"""After so many jobs without a success a tuning job gives up (amazon-sagemaker-examples#2437)."""


def converged_at(results: Sequence[Result]) -> float | None:
    """When the search converged, in seconds since the epoch; None: it did not."""
    ended = in_order_of_end(results)
    for count in range(1, len(ended) + 1):
        seen = ended[:count]
        if not_improving(seen) >= max(CONVERGED, 3 * len(seen[-1].tuned)):
            return float(seen[-1].record["TrainingEndTime"])
    return None


def met(criteria: Mapping[str, Any], results: Sequence[Result]) -> bool:
    """Whether one of TuningJobCompletionCriteria is met."""
    target = criteria.get("TargetObjectiveMetricValue")
    if target is not None and any(_reaches(result, target) for result in results):
        return True
    patience = criteria.get("BestObjectiveNotImproving") or {}
    most = patience.get("MaxNumberOfTrainingJobsNotImproving")
    if most is not None and not_improving(results) >= most:
        return True
    switch = (criteria.get("ConvergenceDetected") or {}).get("CompleteOnConvergence")
    return switch == "Enabled" and converged_at(results) is not None


def _reaches(result: Result, target: float) -> bool:
    if result.objective is None:
        return False
    return result.objective <= target if result.minimize else result.objective >= target


def hopeless(results: Sequence[Result], last: bool) -> str | None:
    """Why the tuning job fails: no job succeeded, or none has an objective; None when it goes on.

    ``last``: whether no further job will start.
    """
    ended = [result for result in results if result.ended]
    if len(ended) < (1 if last else ATTEMPTS) or any(
        result.objective_status == "Succeeded" for result in ended
    ):
        return None
    failed = [result for result in ended if result.status == "Failed"]
    if len(failed) < len(ended):
        return (
            f"No objective metrics found after running {len(ended)} training jobs. Please ensure "
            "that the custom algorithm is emitting the objective metric as defined by the regular "
            "expression provided."
        )
    said = f"The first: {failed[0].name}: {failed[0].record.get('FailureReason', '')}"
    if last and len(ended) < ATTEMPTS:
        return (
            "All training jobs failed. Please take a look at the training jobs failures to get "
            f"more details. {said}"
        )
    return (
        f"No training job succeeded after {len(ended)} attempts. Please take a look at the "
        f"training job failures to get more details. {said}"
    )
