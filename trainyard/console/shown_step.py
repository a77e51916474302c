"""The step that a page shows: definition, resource, failure, exact arguments, attempts, files.

The service names only the last job of a step. Its earlier jobs are found by their names, which
differ only in the last ten characters: ``pipelines-<execution>-<truncated step>-<10 letters
and digits>``, or the prefix that the pipeline's author chose in place of ``pipelines-…``. They are
available as long as SageMaker lists them.
"""

import copy
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import islice
from typing import Any, Literal

from botocore import xform_name
from botocore.exceptions import BotoCoreError, ClientError

from trainyard.common.errors import ServiceError
from trainyard.console.account_cache import A_DAY, Account, Snapshot
from trainyard.language import definition_document as language
from trainyard.language.definition_document import JOB_ENDED, find_step
from trainyard.language.definition_document import Step as StepDefinition
from trainyard.language.evaluation import Unknown, evaluate_value
from trainyard.language.expressions import resolve_parameters
from trainyard.plan.definition_diff import HIDDEN, flatten_fields, format_path
from trainyard.runs.execution import Execution, Step
from trainyard.runs.run_values import (
    LARGEST,
    Resource,
    RunValues,
    describe_resource,
    find_step_resource,
    read_object,
)
from trainyard.runs.why.diagnosis import Cause
from trainyard.runs.why.read_evidence import find_cause
from trainyard.secrets import iter_secret_paths

UNCHANGING = 3_600.0  # seconds for which data that cannot change are cached


@dataclass(frozen=True, slots=True)
class RunDefinition:
    """The definition and parameters of an execution."""

    document: Mapping[str, Any]
    parameters: Mapping[str, Any]  # name to value, converted to the parameter's type

    def find_step(self, name: str) -> StepDefinition | None:
        """Return the step with that name; None if the definition has none.

        If ``name`` is ``<body>-<index>``, an iteration of a loop, return the step of its body.
        """
        return find_step(self.document.get("Steps"), name)


def read_definition(account: Account, arn: str) -> RunDefinition:
    """Return the definition and the parameters of the execution with that ARN."""

    def read() -> RunDefinition:
        execution = account.open_execution(arn)
        document = execution.read_definition()
        return RunDefinition(document, resolve_parameters(document, execution.read_parameters()))

    return account.read_cached(("step: defined", arn), read, UNCHANGING)


def describe_cached_resource(
    account: Account, resource: Resource, seconds: float | None = None
) -> dict[str, Any]:
    """Return the result of :func:`describe_resource`, cached for ``seconds``."""
    key = ("step: resource", resource.operation, resource.arn or resource.name)
    return account.read_cached(key, lambda: describe_resource(account.sagemaker, resource), seconds)


SETTLED_SECONDS = 60.0  # seconds for which data of an ended step are cached: it may be retried
LATE = timedelta(minutes=5)  # after this time a log is complete, and what is read from it final


class StepView:
    """A step of one execution, in its current state."""

    def __init__(self, account: Account, pipeline: str, execution: str, name: str) -> None:
        self.account, self.name = account, name
        self.execution: Execution = account.find_execution(pipeline, execution)
        self.snapshot: Snapshot = account.read_snapshot(pipeline, execution)
        self.address = {"pipeline": pipeline, "execution": execution, "step": name}

    @property
    def arn(self) -> str:
        """ARN of the execution."""
        return self.execution.arn

    @property
    def title(self) -> str:
        """Name that the user gave the execution; without one, the pipeline's name and the time."""
        return self.snapshot.format_title(self.address["pipeline"], self.address["execution"])

    @cached_property
    def step(self) -> Step | None:
        """The step of the execution; None if it has not started."""
        return next((step for step in self.snapshot.steps if step.name == self.name), None)

    @cached_property
    def run_definition(self) -> RunDefinition:
        """Definition and parameters of the execution."""
        return read_definition(self.account, self.arn)

    @cached_property
    def step_definition(self) -> StepDefinition | None:
        """The step in the definition; None if that cannot be read, or does not contain the step."""
        try:
            return self.run_definition.find_step(self.name)
        except ServiceError:
            return None

    @cached_property
    def resource(self) -> Resource | None:
        """The step's job, or another resource that the step created; None if there is none."""
        return find_step_resource(self.step) if self.step else None

    @cached_property
    def description(self) -> dict[str, Any]:
        """Response of the resource's describe operation; empty if there is no resource."""
        seconds = SETTLED_SECONDS if self.step and self.step.ended else None
        return (
            describe_cached_resource(self.account, self.resource, seconds) if self.resource else {}
        )

    @property
    def type(self) -> str:
        """Type, such as ``Training``; from the Metadata if the definition cannot be read."""
        if self.step_definition:
            return self.step_definition.type
        return next(iter(self.step.metadata), "") if self.step else ""

    def find_cause(self) -> Cause | None:
        """Return why the step failed; None if it has not failed."""
        step = self.step
        if step is None or step.status != "Failed":
            return None
        key = ("cause", self.arn, step.name, step.ended)
        is_late = step.ended is not None and datetime.now(UTC) - step.ended > LATE
        lifetime = A_DAY if is_late else SETTLED_SECONDS
        return self.account.read_cached(key, lambda: find_cause(self.execution, step), lifetime)


def make_run_values(view: StepView) -> RunValues:
    """Return the scope that resolves expressions to the values of the step's execution."""
    account = view.account

    def read(uri: str) -> bytes:
        """Return the content of a property file. Raises ServiceError if it cannot be read."""
        try:
            result = account.read_cached(("step: file", uri), lambda: read_object(account.s3, uri))
        except (ClientError, BotoCoreError) as error:
            raise ServiceError(f"{uri}: {error}") from None
        if len(result[1]) > LARGEST:
            raise ServiceError(f"{uri} is too large to be read here")
        return result[1]

    return RunValues(
        arn=view.arn,
        answer=view.snapshot.described,
        steps=view.snapshot.steps,
        document=view.run_definition.document,
        parameters=view.run_definition.parameters,
        describe=lambda resource: describe_cached_resource(account, resource),
        read=read,
    )


def resolve_entry(step: language.Step, values: RunValues) -> dict[str, Any]:
    """Return the step's complete entry in the definition with its expressions replaced by values.

    Nested steps are left out. A value that is not known yet is shown as ``(not known: why)``, a
    secret as ``(hidden)``.
    """
    entry = {**step.document, "Arguments": step.own_arguments}
    return dict(redact_value(evaluate_value(entry, values, lenient=True)))


def redact_value(value: Any) -> Any:
    """Return a copy that may be shown: secrets are hidden, unknown values replaced by a text."""
    public_value = _replace_unknowns(copy.deepcopy(value))
    for path in list(iter_secret_paths(public_value)):
        holder = public_value
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] = HIDDEN
    return public_value


def _replace_unknowns(value: Any) -> Any:
    """Return a copy with each unknown value replaced by ``(not known: why)``."""
    if isinstance(value, Unknown):
        return f"(not known: {value})"
    if isinstance(value, dict):
        return {key: _replace_unknowns(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_replace_unknowns(item) for item in value]
    return value


MOST = 25  # maximum attempts examined, the newest ones: a retry policy makes at most 20
_NAME = re.compile(r"(?P<prefix>.+-)[A-Za-z0-9]{10}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An attempt of a step that started a job."""

    job: str
    status: str
    started: datetime | None
    ended: datetime | None
    reason: str
    description: Mapping[str, Any]  # response of the job's describe operation
    is_earlier: bool  # whether the attempt is older than the last retry of the execution


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """The attempts of a step, the oldest first."""

    found: tuple[Attempt, ...]
    note: str = ""  # message about attempts that cannot be found


def list_attempts(account: Account, snapshot: Snapshot, step: Step) -> Attempts:
    """Return the attempts of the step; none if the step started no job."""
    resource = find_step_resource(step)
    if step.job is None or resource is None or step.source:
        return Attempts(found=())
    others = {other.job[1] for other in snapshot.steps if other.job and other.name != step.name}
    names = _list_job_names(account, resource, others)
    attempt_list = tuple(
        _read_attempt(account, step, replace(resource, name=name)) for name in names[-MOST:]
    )
    missing = step.attempts - sum(not attempt.is_earlier for attempt in attempt_list)
    note = (
        f"The service counts {step.attempts} attempts. {missing} of them have no listed job: "
        "the job could not be created, or the service no longer lists it, or its name "
        "cannot be distinguished from that of another step's job."
    )
    return Attempts(found=attempt_list, note=note if missing > 0 else "")


def _list_job_names(account: Account, resource: Resource, others: set[str]) -> list[str]:
    """Return the names of the step's jobs in the order of their creation.

    Return only the last job's name if the earlier jobs may belong to other steps.
    """
    match = _NAME.fullmatch(resource.name)
    if match is None:
        return [resource.name]
    prefix = match["prefix"]
    clash = any((other := _NAME.fullmatch(name)) and other["prefix"] == prefix for name in others)
    # The last jobs of two steps share a prefix, so the owners of the earlier jobs are not known.
    if clash:
        return [resource.name]
    order = {"SortBy": "CreationTime", "SortOrder": "Descending", "MaxResults": 100}
    listing = account.call_sagemaker(
        f"list_{xform_name(resource.kind)}s", NameContains=prefix, **order
    )
    summaries = listing.get(f"{resource.kind}Summaries", [])
    names = [summary.get(f"{resource.kind}Name", "") for summary in summaries]
    # The listing has the newest job first; NameContains also finds longer names.
    own_names = [
        name
        for name in reversed(names)
        if (name_match := _NAME.fullmatch(name)) and name_match[1] == prefix
    ]
    return [*(name for name in own_names if name != resource.name), resource.name]


def _read_attempt(account: Account, step: Step, resource: Resource) -> Attempt:
    """Return the attempt whose job is ``resource``."""
    job = describe_cached_resource(
        account, replace(resource, arn=f"{resource.arn.rpartition('/')[0]}/{resource.name}")
    )
    status = job.get(f"{resource.kind}Status", "Unknown")
    creation_time = job.get("CreationTime")
    end_time = job.get(f"{resource.kind.removesuffix('Job')}EndTime") or job.get("LastModifiedTime")
    return Attempt(
        job=resource.name,
        status=status,
        started=creation_time,
        ended=end_time if status in JOB_ENDED else None,
        reason=job.get("FailureReason") or job.get("ExitMessage") or "",
        description=job,
        is_earlier=bool(creation_time and step.started and creation_time < step.started),
    )


PLACES = 40  # maximum places listed; the others are in the arguments

Use = Literal["input", "output"]

_SAYS = re.compile(
    r"(?P<input>Input|ModelData|Supplied)|Output|Artifacts|Checkpoint|Calculated|Viol"
)
_NAMED_FIELDS = re.compile(
    r"^(?:Environment|HyperParameters|Container(?:Arguments|Entrypoint)|Tags)\b"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedUri:
    """An S3 URI in the arguments of a step."""

    name: str  # path in the arguments, such as ``InputDataConfig[train].S3Uri``
    use: Use
    uri: str


def list_used_uris(description: Mapping[str, Any], job: str = "") -> list[UsedUri]:
    """Return every S3 URI in a step's description, inputs first.

    Args:
        description: the job's own description, or the step's arguments.
        job: name of the job: a training job writes into a folder of that name.
    """
    return sorted(
        islice(_iter_used_uris(description, job), PLACES), key=lambda used_uri: used_uri.use
    )


def _iter_used_uris(description: Mapping[str, Any], job: str) -> Iterator[UsedUri]:
    """Iterate over the S3 URIs in a description, each one once per use (input or output)."""
    pairs = set()
    # ``flatten_fields`` takes JSON types only; a time contains no URI, so its text is good enough.
    texts = json.loads(json.dumps(description, default=str))
    for path, field in flatten_fields(texts).items():
        uri = field.raw.strip('"') if isinstance(field.raw, str) else ""
        if not uri.startswith("s3://") or field.text == HIDDEN or any(c.isspace() for c in uri):
            continue
        if path.endswith("OutputDataConfig.S3OutputPath") and job:
            # A training job writes into a folder of its own name at this URI.
            uri = f"{uri.rstrip('/')}/{job}/"
        says = _SAYS.search(path)
        if says is None or _NAMED_FIELDS.search(path):
            continue
        use: Use = "input" if says["input"] else "output"
        if (use, uri) not in pairs:
            pairs.add((use, uri))
            yield UsedUri(name=format_path(path), use=use, uri=uri)


TRAININGS = 100  # maximum training jobs shown: as many as AWS lists in one response


@dataclass(frozen=True, slots=True, kw_only=True)
class Trials:
    """Training jobs that a tuning job started."""

    jobs: Sequence[Mapping[str, Any]]  # HyperParameterTrainingJobSummary of each, best first
    names: Sequence[str]  # names of the tuned hyperparameters
    more: bool  # whether there are more training jobs than these


def list_trials(account: Account, tuning_job: str) -> Trials:
    """Return the first ``TRAININGS`` training jobs that a tuning job started, the best first."""
    answer = account.call_sagemaker(
        "list_training_jobs_for_hyper_parameter_tuning_job",
        HyperParameterTuningJobName=tuning_job,
        MaxResults=TRAININGS,
    )
    jobs = sorted(answer.get("TrainingJobSummaries", []), key=_compute_rank_key)
    names = dict.fromkeys(name for job in jobs for name in job.get("TunedHyperParameters", {}))
    return Trials(jobs=jobs, names=sorted(names), more="NextToken" in answer)


def _compute_rank_key(job: Mapping[str, Any]) -> tuple[bool, float]:
    """Return the sort key: the best objective first, jobs without one last."""
    metric = job.get("FinalHyperParameterTuningJobObjectiveMetric") or {}
    value = metric.get("Value")
    if value is None or job.get("ObjectiveStatus") == "Failed":
        return (True, 0.0)
    return (False, -value if metric.get("Type") == "Maximize" else value)
