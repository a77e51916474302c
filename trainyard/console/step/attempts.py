"""Every attempt of a step, each with the job that it started.

The service names one job of a step: the last. The others are found by their names, which differ in
the last ten characters alone: ``pipelines-<execution>-<step, cut>-<10 letters and digits>``, or
the prefix that the pipeline's author chose. They are there as long as SageMaker lists them.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from trainyard.console.account import Account, Snapshot
from trainyard.console.step.shown import Made, describe, made_by
from trainyard.language.statuses import JOB_ENDED
from trainyard.runs.execution import Step
from trainyard.service import service_errors

MOST = 25
"""Attempts that are looked at, the newest ones: a retry policy makes at most 20."""

_NAME = re.compile(r"(?P<prefix>.+-)[A-Za-z0-9]{10}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt that started a job."""

    job: str
    status: str
    started: datetime | None
    ended: datetime | None
    reason: str
    description: Mapping[str, Any]
    """The Describe operation's answer about the job."""

    is_earlier: bool
    """Whether it is of before the execution was retried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """The attempts of a step, the first one first."""

    found: tuple[Attempt, ...]
    note: str = ""
    """What cannot be known of others."""


def attempts(here: Account, snapshot: Snapshot, step: Step) -> Attempts:
    """The step's attempts; none of a step that started no job.

    Raises:
        ServiceError: AWS refused.
    """
    made = made_by(step)
    if step.job is None or made is None or step.source:
        return Attempts(found=())
    names = _names(here, made, others=_jobs(snapshot.steps, step))
    found = tuple(_attempt(here, step, replace(made, name=name)) for name in names[-MOST:])
    return Attempts(found=found, note=_note(step, found))


def _jobs(steps: Iterable[Step], but: Step) -> set[str]:
    return {one.job[1] for one in steps if one.job and one.name != but.name}


def _names(here: Account, made: Made, others: set[str]) -> list[str]:
    """The names of the step's jobs, in the order of their creation; its own one, where others
    cannot be told from those of other steps."""
    matched = _NAME.fullmatch(made.name)
    if matched is None:
        return [made.name]
    prefix = matched["prefix"]
    clash = any((other := _NAME.fullmatch(name)) and other["prefix"] == prefix for name in others)
    if clash:  # of which these are the last; whose the first were, nobody can say
        return [made.name]
    listed = here.lately(
        ("step: jobs", made.kind, prefix), lambda: _listed(here, made.kind, prefix)
    )
    mine = [name for name in listed if (found := _NAME.fullmatch(name)) and found[1] == prefix]
    return [*(name for name in mine if name != made.name), made.name]


def _listed(here: Account, kind: str, prefix: str) -> list[str]:
    """Names of jobs that have the prefix somewhere, the oldest first."""
    listing = {
        "TrainingJob": here.sagemaker.list_training_jobs,
        "ProcessingJob": here.sagemaker.list_processing_jobs,
        "TransformJob": here.sagemaker.list_transform_jobs,
    }[kind]
    with service_errors(f"listing the jobs {prefix}…"):
        answer = listing(
            NameContains=prefix, SortBy="CreationTime", SortOrder="Descending", MaxResults=100
        )
    names = [one.get(f"{kind}Name", "") for one in answer.get(f"{kind}Summaries", [])]
    return names[::-1]


def _attempt(here: Account, step: Step, made: Made) -> Attempt:
    job = describe(here, replace(made, arn=f"{made.arn.rpartition('/')[0]}/{made.name}"))
    status = job.get(f"{made.kind}Status", "Unknown")
    created = job.get("CreationTime")
    return Attempt(
        job=made.name,
        status=status,
        started=created,
        ended=ended(job, made.kind) if status in JOB_ENDED else None,
        reason=job.get("FailureReason") or job.get("ExitMessage") or "",
        description=job,
        is_earlier=bool(created and step.started and created < step.started),
    )


def ended(job: Mapping[str, Any], kind: str) -> datetime | None:
    """When a job that runs no more ended, by its description."""
    own: datetime | None = job.get(f"{kind.removesuffix('Job')}EndTime")
    return own or job.get("LastModifiedTime")


def _note(step: Step, found: tuple[Attempt, ...]) -> str:
    missing = step.attempts - sum(not one.is_earlier for one in found)
    if missing > 0:
        return (
            f"The service counts {step.attempts} attempts. Of {missing} of them no job is listed: "
            "the service was refused before it had one, or lists it no more, or its name "
            "cannot be told from that of another step's."
        )
    return ""
