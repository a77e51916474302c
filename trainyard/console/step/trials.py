"""The training jobs of a tuning job, the best one first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainyard.console.account import Account
from trainyard.service import service_errors

MOST = 100
"""Training jobs that are shown: as many as AWS lists at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trials:
    """What a tuning job has tried."""

    jobs: Sequence[Mapping[str, Any]]
    """HyperParameterTrainingJobSummary of each."""

    names: Sequence[str]
    """The hyperparameters that were tuned."""

    more: bool


def trials(here: Account, tuning_job: str) -> Trials:
    """The training jobs that a tuning job has begun.

    Raises:
        ServiceError: AWS refused.
    """
    return here.lately(("step: trials", tuning_job), lambda: _read(here, tuning_job))


def _read(here: Account, tuning_job: str) -> Trials:
    with service_errors(f"listing the training jobs of {tuning_job}"):
        answer = here.sagemaker.list_training_jobs_for_hyper_parameter_tuning_job(
            HyperParameterTuningJobName=tuning_job, MaxResults=MOST
        )
    jobs = sorted(answer.get("TrainingJobSummaries", []), key=_rank)
    names = dict.fromkeys(name for job in jobs for name in job.get("TunedHyperParameters", {}))
    return Trials(jobs=jobs, names=sorted(names), more="NextToken" in answer)


def _rank(job: Mapping[str, Any]) -> tuple[bool, float]:
    """The best objective first; jobs without one come last."""
    found = job.get("FinalHyperParameterTuningJobObjectiveMetric") or {}
    value = found.get("Value")
    if value is None or job.get("ObjectiveStatus") == "Failed":
        return (True, 0.0)
    return (False, -value if found.get("Type") == "Maximize" else value)
