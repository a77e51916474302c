"""Results of a step: every attempt with its job, the trainings of a tuning, files in S3.

The service names only the last job of a step. The others are found by their names, which differ
only in the last ten characters: ``pipelines-<execution>-<step, cut>-<10 letters and digits>``, or
the prefix that the pipeline's author chose. They are available as long as SageMaker lists them.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from botocore.exceptions import BotoCoreError, ClientError

from trainyard.aws_clients import service_errors
from trainyard.console.account_cache import Account, Snapshot
from trainyard.console.shown_step import describe
from trainyard.language.statuses import JOB_ENDED
from trainyard.plan.definition_diff import label
from trainyard.plan.s3_listing import listed
from trainyard.plan.step_fields import HIDDEN, flat
from trainyard.runs.execution import Step
from trainyard.runs.run_values import Resource, resource_of

MOST = 25
"""Most attempts examined, the newest ones: a retry policy makes at most 20."""

_NAME = re.compile(r"(?P<prefix>.+-)[A-Za-z0-9]{10}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An attempt that started a job."""

    job: str
    status: str
    started: datetime | None
    ended: datetime | None
    reason: str
    description: Mapping[str, Any]
    """Describe operation's answer about the job."""

    is_earlier: bool
    """True if it is from before the execution was retried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """The attempts of a step, the first one first."""

    found: tuple[Attempt, ...]
    note: str = ""
    """Message about attempts that cannot be found."""


def attempts(here: Account, snapshot: Snapshot, step: Step) -> Attempts:
    """Return the step's attempts; none for a step that started no job.

    Raises:
        ServiceError: AWS refused.
    """
    resource = resource_of(step)
    if step.job is None or resource is None or step.source:
        return Attempts(found=())
    names = _names(here, resource, others=_jobs(snapshot.steps, step))
    found = tuple(_attempt(here, step, replace(resource, name=name)) for name in names[-MOST:])
    return Attempts(found=found, note=_note(step, found))


def _jobs(steps: Iterable[Step], but: Step) -> set[str]:
    return {one.job[1] for one in steps if one.job and one.name != but.name}


def _names(here: Account, resource: Resource, others: set[str]) -> list[str]:
    """Return the names of the step's jobs, in the order of creation; only its own if the names of
    other steps' jobs are not distinguishable.
    """
    matched = _NAME.fullmatch(resource.name)
    if matched is None:
        return [resource.name]
    prefix = matched["prefix"]
    clash = any((other := _NAME.fullmatch(name)) and other["prefix"] == prefix for name in others)
    if clash:  # these are the last jobs; the owners of earlier ones are not known
        return [resource.name]
    listed = here.lately(
        ("step: jobs", resource.kind, prefix), lambda: _listed(here, resource.kind, prefix)
    )
    mine = [name for name in listed if (found := _NAME.fullmatch(name)) and found[1] == prefix]
    return [*(name for name in mine if name != resource.name), resource.name]


def _listed(here: Account, kind: str, prefix: str) -> list[str]:
    """Return names of jobs that contain the prefix, the oldest first."""
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


def _attempt(here: Account, step: Step, resource: Resource) -> Attempt:
    job = describe(
        here, replace(resource, arn=f"{resource.arn.rpartition('/')[0]}/{resource.name}")
    )
    status = job.get(f"{resource.kind}Status", "Unknown")
    created = job.get("CreationTime")
    return Attempt(
        job=resource.name,
        status=status,
        started=created,
        ended=ended(job, resource.kind) if status in JOB_ENDED else None,
        reason=job.get("FailureReason") or job.get("ExitMessage") or "",
        description=job,
        is_earlier=bool(created and step.started and created < step.started),
    )


def ended(job: Mapping[str, Any], kind: str) -> datetime | None:
    """Return when a job that no longer runs ended, by its description."""
    own: datetime | None = job.get(f"{kind.removesuffix('Job')}EndTime")
    return own or job.get("LastModifiedTime")


def _note(step: Step, found: tuple[Attempt, ...]) -> str:
    missing = step.attempts - sum(not one.is_earlier for one in found)
    if missing > 0:
        return (
            f"The service counts {step.attempts} attempts. {missing} of them have no listed job: "
            "the service was refused before it had one, or no longer lists it, or its name "
            "cannot be distinguished from that of another step's job."
        )
    return ""


PLACES = 40
"""Most places listed; the others are in the arguments."""

KEYS = 1_000
"""Most objects counted."""

SECONDS = 10.0
"""Seconds for which a listing is reused, since jobs write continuously."""

Use = Literal["input", "output", "named"]

_SAYS = re.compile(
    r"(?P<input>Input|ModelData|Supplied)|Output|Artifacts|Checkpoint|Calculated|Viol"
)
_NAMED = re.compile(r"^(?:Environment|HyperParameters|Container(?:Arguments|Entrypoint)|Tags)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """An S3 URI of a step."""

    name: str
    """Path in the arguments: ``InputDataConfig[train].S3Uri``."""

    use: Use
    uri: str
    sizes: Sequence[int] | None = None
    """Bytes of each of the first ``KEYS`` objects; None if they could not be listed."""

    error: str = ""
    """Why it could not be listed."""


def places(here: Account, description: Mapping[str, Any], job: str = "") -> list[Place]:
    """Return every S3 URI in a step's description, inputs first, each with its objects' sizes.

    Args:
        description: the job's own description, or the step's arguments.
        job: its name: a training job writes into a folder of that name.
    """
    found = list(_uris(description, job))[:PLACES]
    with ThreadPoolExecutor(8) as threads:
        listed = list(threads.map(lambda one: _place(here, *one), found))
    order = {"input": 0, "output": 1, "named": 2}
    return sorted(listed, key=lambda place: order[place.use])


def _uris(description: Mapping[str, Any], job: str) -> Iterator[tuple[str, Use, str]]:
    """Iterate over (name, use, URI), each URI once for each use."""
    seen = set()
    texts = json.loads(json.dumps(description, default=str))  # times have no URI
    for path, field in flat(texts).items():
        uri = field.raw.strip('"') if isinstance(field.raw, str) else ""
        if not uri.startswith("s3://") or field.text == HIDDEN or any(c.isspace() for c in uri):
            continue
        if path.endswith("OutputDataConfig.S3OutputPath") and job:
            uri = f"{uri.rstrip('/')}/{job}/"
        use = _use(path)
        if (use, uri) not in seen:
            seen.add((use, uri))
            yield label(path), use, uri


def _use(path: str) -> Use:
    says = None if _NAMED.search(path) else _SAYS.search(path)
    if says is None:
        return "named"
    return "input" if says["input"] else "output"


def _place(here: Account, name: str, use: Use, uri: str) -> Place:
    def read() -> list[int]:
        return [one.get("Size", 0) for one in listed(here.s3, uri, KEYS)]

    try:
        sizes = here.lately(("step: listing", uri), read, SECONDS)
    except (ClientError, BotoCoreError) as error:
        return Place(name=name, use=use, uri=uri, error=str(error))
    return Place(name=name, use=use, uri=uri, sizes=sizes)


TRAININGS = 100
"""Training jobs shown: as many as AWS lists at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trials:
    """Listed trainings of a tuning job."""

    jobs: Sequence[Mapping[str, Any]]
    """HyperParameterTrainingJobSummary of each job."""

    names: Sequence[str]
    """Names of the tuned hyperparameters."""

    more: bool


def trials(here: Account, tuning_job: str) -> Trials:
    """Return the training jobs that a tuning job has started.

    Raises:
        ServiceError: AWS refused.
    """
    return here.lately(("step: trials", tuning_job), lambda: _read(here, tuning_job))


def _read(here: Account, tuning_job: str) -> Trials:
    with service_errors(f"listing the training jobs of {tuning_job}"):
        answer = here.sagemaker.list_training_jobs_for_hyper_parameter_tuning_job(
            HyperParameterTuningJobName=tuning_job, MaxResults=TRAININGS
        )
    jobs = sorted(answer.get("TrainingJobSummaries", []), key=_rank)
    names = dict.fromkeys(name for job in jobs for name in job.get("TunedHyperParameters", {}))
    return Trials(jobs=jobs, names=sorted(names), more="NextToken" in answer)


def _rank(job: Mapping[str, Any]) -> tuple[bool, float]:
    """Return the sort key: the best objective first, jobs without one last."""
    found = job.get("FinalHyperParameterTuningJobObjectiveMetric") or {}
    value = found.get("Value")
    if value is None or job.get("ObjectiveStatus") == "Failed":
        return (True, 0.0)
    return (False, -value if found.get("Type") == "Maximize" else value)
