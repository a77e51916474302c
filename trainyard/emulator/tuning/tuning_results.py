"""Results of a tuning job, from the records of its training jobs alone."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainyard.emulator.tuning.search_space import Values
from trainyard.emulator.tuning.trial_jobs import OBJECTIVE
from trainyard.language.statuses import JOB_ENDED

IMPROVEMENT = 0.01
"""Part of the best value by which a job must improve on it: 1 % (botocore)."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one training job of a tuning job."""

    tuning: str
    definition: str
    """The DefinitionName; empty for a single definition without a name."""

    record: Mapping[str, Any]
    """DescribeTrainingJob's answer."""

    tuned_names: frozenset[str]
    """Names of the hyperparameters that were searched."""

    minimize: bool

    @property
    def name(self) -> str:
        return str(self.record["TrainingJobName"])

    @property
    def status(self) -> str:
        return str(self.record["TrainingJobStatus"])

    @property
    def has_ended(self) -> bool:
        return self.status in JOB_ENDED

    @property
    def retryable(self) -> bool:
        """Return whether it failed for a reason outside of the job."""
        reason = self.record.get("FailureReason", "")
        return self.status == "Failed" and reason.startswith("InternalServerError")

    @property
    def values(self) -> Values:
        """Hyperparameters that the job tried."""
        hyperparameters = self.record["HyperParameters"]
        return {name: value for name, value in hyperparameters.items() if name in self.tuned_names}

    @property
    def objective(self) -> float | None:
        """Last value of the objective; None while it runs, if it failed, or if it printed none."""
        if not self.has_ended or self.status == "Failed":
            return None
        metric_name = self.record["HyperParameters"][OBJECTIVE]
        metrics = self.record.get("FinalMetricDataList", ())
        values = [metric["Value"] for metric in metrics if metric["MetricName"] == metric_name]
        return float(values[0]) if values else None

    @property
    def objective_status(self) -> str:
        if not self.has_ended:
            return "Pending"
        return "Failed" if self.objective is None else "Succeeded"

    def summary(self) -> dict[str, Any]:
        """Return the HyperParameterTrainingJobSummary."""
        keys = ("TrainingJobName", "TrainingJobArn", "CreationTime", "TrainingStartTime",
                  "TrainingEndTime", "TrainingJobStatus", "FailureReason")  # fmt: skip
        summary = {key: self.record[key] for key in keys if key in self.record}
        if self.definition:
            summary["TrainingJobDefinitionName"] = self.definition
        if self.objective is not None:
            summary["FinalHyperParameterTuningJobObjectiveMetric"] = {
                "Type": "Minimize" if self.minimize else "Maximize",
                "MetricName": self.record["HyperParameters"][OBJECTIVE],
                "Value": self.objective,
            }
        return summary | {
            "TuningJobName": self.tuning,
            "TunedHyperParameters": self.values,
            "ObjectiveStatus": self.objective_status,
        }


def rank_results(results: Iterable[Result]) -> list[Result]:
    """Return results with an objective, the best first; of equal ones the earlier first."""
    scored_results = [result for result in results if result.objective is not None]
    return sorted(scored_results, key=_rank)


def _rank(result: Result) -> float:
    assert result.objective is not None
    return result.objective if result.minimize else -result.objective


def counters(results: Iterable[Result]) -> dict[str, dict[str, int]]:
    """Return TrainingJobStatusCounters and ObjectiveStatusCounters."""
    jobs = dict.fromkeys(
        ("Completed", "InProgress", "RetryableError", "NonRetryableError", "Stopped"), 0
    )
    objectives = dict.fromkeys(("Succeeded", "Pending", "Failed"), 0)
    for result in results:
        if result.status == "Failed":
            jobs["RetryableError" if result.retryable else "NonRetryableError"] += 1
        else:
            jobs[result.status if result.has_ended else "InProgress"] += 1
        objectives[result.objective_status] += 1
    return {"TrainingJobStatusCounters": jobs, "ObjectiveStatusCounters": objectives}


def in_order_of_end(results: Iterable[Result]) -> list[Result]:
    """Return ended results with an objective, in the order of their end."""
    return sorted(
        (result for result in results if result.objective is not None),
        key=lambda result: float(result.record["TrainingEndTime"]),
    )


def not_improving(results: Iterable[Result]) -> int:
    """Return the number of jobs ended since the last that improved the best value by 1 %."""
    best, count = None, 0
    for result in in_order_of_end(results):
        value = _rank(result)
        if best is None or value < best - IMPROVEMENT * abs(best):
            best, count = value, 0
        else:
            best, count = min(best, value), count + 1
    return count


CONVERGENCE_JOBS = 10
ATTEMPTS = 5
"""Number of jobs without a success after which a tuning job gives up
(amazon-sagemaker-examples#2437)."""


def converged_at(results: Sequence[Result]) -> float | None:
    """Return when the search converged, in seconds since the epoch; None if it did not."""
    ended_results = in_order_of_end(results)
    for count in range(1, len(ended_results) + 1):
        first_results = ended_results[:count]
        if not_improving(first_results) >= max(
            CONVERGENCE_JOBS, 3 * len(first_results[-1].tuned_names)
        ):
            return float(first_results[-1].record["TrainingEndTime"])
    return None


def is_criterion_met(criteria: Mapping[str, Any], results: Sequence[Result]) -> bool:
    """Return whether one of TuningJobCompletionCriteria is met."""
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
    """Return why the tuning job fails: no success, or no objective; None when it continues.

    ``last``: no further job will start.
    """
    ended_results = [result for result in results if result.has_ended]
    if len(ended_results) < (1 if last else ATTEMPTS) or any(
        result.objective_status == "Succeeded" for result in ended_results
    ):
        return None
    failures = [result for result in ended_results if result.status == "Failed"]
    if len(failures) < len(ended_results):
        return (
            f"No objective metrics found after running {len(ended_results)} training jobs. Please "
            "ensure "
            "that the custom algorithm is emitting the objective metric as defined by the regular "
            "expression provided."
        )
    example = f"The first: {failures[0].name}: {failures[0].record.get('FailureReason', '')}"
    if last and len(ended_results) < ATTEMPTS:
        return (
            "All training jobs failed. Please take a look at the training jobs failures to get "
            f"more details. {example}"
        )
    return (
        f"No training job succeeded after {len(ended_results)} attempts. Please take a look at the "
        f"training job failures to get more details. {example}"
    )
