"""An execution of a definition on an emulator of its own, as facts that can be compared.

Names of jobs, ids of executions and times are replaced, as no two executions share them.
"""

import hashlib
import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError

from trainyard.emulator.request_scope import REGION, within
from trainyard.emulator.runtime.interpreter import OWN
from trainyard.emulator.server import Endpoint, serve
from trainyard.equality.code_contents import Files, content_digest
from trainyard.equality.normal_form import Rules, output_places, request
from trainyard.equality.training_requests import unwatched, without_defaults
from trainyard.language.steps import named, steps_of
from trainyard.plan.step_fields import HIDDEN, flat
from trainyard.runs.execution import Execution, Step
from trainyard.runs.run_differences import EXECUTION, key

ROLE = "arn:aws:iam::123456789012:role/trainyard-equal"
NAME = "equal"
REST = ""
"""Stands for a step in the facts that belong to none."""
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?")
_TRIAL = re.compile(r"(\{job of [^{}]*\}-\d{3})-[0-9a-f]{8}")
"""A training that a tuning job started, whose name ends in a part that is drawn."""
_BUCKET = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?=[/\"])")
_WAITING = ("Callback",)
"""Types of steps that wait for an answer from outside."""


class NotRunError(Exception):
    """The definition cannot be executed here; the message says why."""


@dataclass(frozen=True, slots=True)
class Observed:
    """What happened: step → fact → value, in the order in which the facts came about."""

    facts: Mapping[str, Mapping[str, str]]
    status: str


@dataclass(frozen=True, slots=True)
class Setting:
    """What both executions share."""

    files: Mapping[str, Path]
    """URI in S3 → file to put there first."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    python: Path = OWN
    seconds: float = 3600
    """Longest duration of an execution."""


def observe(
    document: Mapping[str, Any], setting: Setting, names: Mapping[str, str] | None = None
) -> Observed:
    """Execute a valid definition, and return what happened.

    Args:
        names: step → its name in the facts, where that is another.

    Raises:
        EmulatorError: the emulator cannot start here.
        NotRunError: the emulator refuses the definition, or a step waits for an answer.
    """
    for step in steps_of(document["Steps"]):
        if step.type in _WAITING:
            raise NotRunError(f"step {step.name} ({step.type}) waits for an answer from outside")
    seen: dict[str, dict[str, str]] = {}

    def look(job: str, host: str, folder: Path) -> None:
        found = dict(_files(folder))
        seen.setdefault(job, {}).update({f"file {host}:{k}": v for k, v in found.items()})

    with (
        tempfile.TemporaryDirectory(prefix="trainyard-equal-") as state,
        serve(Path(state), python=setting.python) as endpoint,
        within(REGION),
    ):
        endpoint.app.aws.staged = look
        _put(endpoint, setting.files, document)
        arn = _started(endpoint, document, setting)
        try:
            ended = endpoint.wait(arn, setting.seconds)
        except TimeoutError as late:
            raise NotRunError(str(late)) from None
        reader = _Reader(endpoint, document, setting, seen)
        return Observed(reader.read(arn, names or {}), ended["PipelineExecutionStatus"])


def _files(ml: Path) -> Iterator[tuple[str, str]]:
    """Iterate over (path, digest) of what is in /opt/ml; its settings differ in names of jobs."""
    for path in sorted(ml.rglob("*")):
        below = path.relative_to(ml)
        if path.is_file() and not below.as_posix().startswith(("config/", "input/config/")):
            yield f"/opt/ml/{below.as_posix()}", content_digest(path, path.name)


def _put(endpoint: Endpoint, files: Mapping[str, Path], document: Mapping[str, Any]) -> None:
    """Create the buckets that the definition names, which AWS has, and upload the files."""
    objects = endpoint.app.objects
    for bucket in {*_BUCKET.findall(json.dumps([document, *files]))}:
        objects.create_bucket(bucket)
    for uri, path in files.items():
        bucket, _, name = uri.removeprefix("s3://").partition("/")
        objects.put_file(bucket, name, path)


def _started(endpoint: Endpoint, document: Mapping[str, Any], setting: Setting) -> str:
    sagemaker = endpoint.app.aws.client("sagemaker")
    declared = {entry["Name"] for entry in document.get("Parameters") or ()}
    given = [{"Name": k, "Value": v} for k, v in setting.parameters.items() if k in declared]
    try:
        sagemaker.create_pipeline(
            PipelineName=NAME,
            PipelineDefinition=json.dumps(document),
            RoleArn=ROLE,
            ClientRequestToken="e" * 32,
        )
        return sagemaker.start_pipeline_execution(
            PipelineName=NAME, PipelineParameters=given, ClientRequestToken="e" * 32
        )["PipelineExecutionArn"]
    except ClientError as refused:
        raise NotRunError(refused.response["Error"]["Message"]) from None


class _Reader:
    """Reads an execution that has ended."""

    def __init__(
        self,
        endpoint: Endpoint,
        document: Mapping[str, Any],
        setting: Setting,
        seen: Mapping[str, Mapping[str, str]],
    ) -> None:
        self._app, self._document, self._seen = endpoint.app, document, seen
        self._setting, self._code = setting, Files(setting.files)
        self._own: dict[str, str] = {}
        self._execution = ""

    def read(self, arn: str, names: Mapping[str, str]) -> dict[str, dict[str, str]]:
        """Return the facts of each step; the objects that belong to none come last."""
        steps = Execution(arn, make=lambda service, _: self._app.aws.client(service)).steps()
        self._execution = arn.rpartition("/")[2]
        self._own = {self._execution: EXECUTION}
        for step in steps:
            if job := _job_name(step):
                self._own[job] = f"{{job of {_titled(step.name, names)}}}"
        objects = dict(self._objects())
        found = {}
        for step in steps:
            facts = dict(self._before(step))
            facts |= self._outcome(step)
            facts |= self._outputs(step, objects)
            found[_titled(step.name, names)] = facts
        found[REST] = self._digests("object", objects)
        return found

    def _before(self, step: Step) -> Iterator[tuple[str, str]]:
        """Iterate over the job's request, and the files that it saw."""
        declared = named(self._document["Steps"], step.name)
        if not step.job or declared is None:
            return
        rules = Rules(self._code.digest, sorts=True, cosmetic={})
        job = without_defaults(unwatched(self._job(step, declared.arguments), rules.cosmetic))
        for path, one in flat(request(job, rules)).items():
            said = self._text(one.raw)
            yield f"request {path}", f"(hidden) {_mark(said)}" if one.text == HIDDEN else said
        yield from self._seen.get(step.job[1], {}).items()

    def _job(self, step: Step, arguments: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return Describe's answer for the step's job; only the members of ``arguments``."""
        assert step.job is not None
        kind, name = step.job
        sagemaker = self._app.aws.client("sagemaker")
        ask = getattr(sagemaker, "describe_" + re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind).lower())
        answer = ask(**{f"{kind}Name": name})
        wanted = answer if arguments is None else arguments
        return {k: v for k, v in answer.items() if k in wanted and k != f"{kind}Name"}

    def _outcome(self, step: Step) -> dict[str, str]:
        return {
            "status": step.status,
            "failure reason": self._text(step.reason),
            "from the cache": str(step.cached),
            "attempts": str(step.attempts),
            "result": self._text(json.dumps(step.metadata, sort_keys=True, default=str)),
        }

    def _outputs(self, step: Step, objects: dict[str, str]) -> dict[str, str]:
        """Return the objects below the job's outputs, and take them out of ``objects``."""
        folders = tuple(_output_folders(self._job(step))) if step.job else ()
        mine = [uri for uri in objects if folders and uri.startswith(folders)]
        return self._digests("output", {uri: objects.pop(uri) for uri in mine})

    def _digests(self, what: str, objects: Mapping[str, str]) -> dict[str, str]:
        """Return a fact for each object; those that only generated names tell apart share one."""
        found: dict[str, list[str]] = {}
        for uri, digest in objects.items():
            found.setdefault(f"{what} {self._text(uri)}", []).append(digest)
        return {fact: " ".join(sorted(digests)) for fact, digests in found.items()}

    def _objects(self) -> Iterator[tuple[str, str]]:
        """Iterate over (URI, digest) of what the execution wrote."""
        store = self._app.objects
        for bucket, _ in store.buckets():
            for info in store.list(bucket):
                uri = f"s3://{bucket}/{info.key}"
                digest = content_digest(store.path(bucket, info.key), info.key)
                was = self._setting.files.get(uri)
                if was is None or content_digest(was, info.key) != digest:
                    yield uri, digest

    def _text(self, value: Any) -> str:
        found = key(value, self._own)
        made = re.escape(f"-{EXECUTION}-")
        found = re.sub(rf"[\w-]*{made}[\w-]+", "{generated name}", _TRIAL.sub(r"\1", found))
        return _TIME.sub("{time}", found)


def _job_name(step: Step) -> str | None:
    """Return the name of the job that the step started, also of a tuning job."""
    tuning = step.metadata.get("TuningJob", {}).get("Arn", "")
    return step.job[1] if step.job else tuning.rpartition("/")[2] or None


def _mark(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()[:8]


def _titled(step: str, names: Mapping[str, str]) -> str:
    """Return the step's name in the facts; an iteration of a loop is called after its body."""
    body, _, index = step.rpartition("-")
    if body in names and index.isdigit():
        return f"{names[body]}-{index}"
    return names.get(step, step)


def _output_folders(job: Mapping[str, Any]) -> Iterator[str]:
    """Iterate over the folders that a job wrote, each with its slash."""
    yield from (f"{place}/" for place in output_places(job))
    if uri := (job.get("ModelArtifacts") or {}).get("S3ModelArtifacts"):
        yield uri.rpartition("/")[0] + "/"
