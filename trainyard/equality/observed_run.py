"""Execute a definition on an emulator of its own, and return facts that can be compared.

Names of jobs, ids of executions and times are replaced, because they differ in every execution.
"""

import hashlib
import io
import json
import re
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from botocore import xform_name
from botocore.exceptions import ClientError

from trainyard.common.hashes import hash_file, hash_json
from trainyard.emulator.containers.node import OWN_PYTHON
from trainyard.emulator.request_scope import REGION, enter_scope
from trainyard.emulator.sagemaker.jobs.transfers import build_local_path
from trainyard.emulator.server import Endpoint, serve_emulator
from trainyard.equality.normal_form import (
    Rules,
    iter_output_uris,
    normalize_request,
    remove_defaults,
    remove_unused_monitoring,
)
from trainyard.language.definition_document import find_step, iter_steps
from trainyard.plan.definition_diff import HIDDEN, flatten_fields
from trainyard.runs.execution import Execution, Step
from trainyard.runs.run_differences import (
    EXECUTION,
    FAULTS,
    LARGEST,
    make_comparison_key,
    read_archive,
)

ROLE = "arn:aws:iam::123456789012:role/trainyard-equal"
NAME = "equal"
REST = ""
"""Key of the facts that belong to no step."""
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?")
_TRIAL = re.compile(r"(\{job of [^{}]*\}-\d{3})-[0-9a-f]{8}")
"""Name of a training job that a tuning job started; its last part is random."""
_BUCKET = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?=[/\"])")
_WAITING = ("Callback",)
"""Types of steps that wait for a response from outside the pipeline."""


class NotRunError(Exception):
    """The definition cannot be executed here; the message says why."""


@dataclass(frozen=True, slots=True)
class Observation:
    """Facts of an execution, {step: {fact: value}}, in the order in which the steps ran."""

    facts: Mapping[str, Mapping[str, str]]
    status: str


@dataclass(frozen=True, slots=True)
class Setting:
    """Settings that both executions share: files in S3, parameters, Python and time limit."""

    files: Mapping[str, Path]
    """Mapping of a URI in S3 to the local file that is uploaded there before the execution."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    python: Path = OWN_PYTHON
    seconds: float = 3600
    """Maximum duration of an execution, in seconds."""


def observe_run(
    document: Mapping[str, Any], setting: Setting, names: Mapping[str, str] | None = None
) -> Observation:
    """Execute a valid definition on a new emulator, and return the observed facts.

    Args:
        document: the definition.
        setting: files, parameters, Python and time limit of the execution.
        names: mapping of a step to its name in the facts, for steps that have another name there.

    Raises:
        EmulatorError: the emulator cannot start on this machine.
        NotRunError: the emulator refuses the definition, a step waits for a response from outside,
            or the execution takes longer than ``setting.seconds``.
    """
    for step in iter_steps(document["Steps"]):
        if step.type in _WAITING:
            raise NotRunError(
                f"step {step.name} ({step.type}) waits for a response from outside the pipeline"
            )
    file_facts: dict[str, dict[str, str]] = {}

    def record_files(job: str, host: str, folder: Path) -> None:
        """Record the digests of a node's files. The emulator calls it before the job runs."""
        files = dict(_iter_file_digests(folder))
        file_facts.setdefault(job, {}).update({f"file {host}:{k}": v for k, v in files.items()})

    with (
        tempfile.TemporaryDirectory(prefix="trainyard-equal-") as state,
        serve_emulator(Path(state), python=setting.python) as endpoint,
        enter_scope(REGION),
    ):
        endpoint.app.aws.on_stage = record_files
        _upload_files(endpoint, setting.files, document)
        arn = _start_execution(endpoint, document, setting)
        try:
            outcome = endpoint.wait(arn, setting.seconds)
        except TimeoutError as late:
            raise NotRunError(str(late)) from None
        reader = _FactCollector(endpoint, document, setting, file_facts)
        return Observation(
            reader.collect_facts(arn, names or {}), outcome["PipelineExecutionStatus"]
        )


def _iter_file_digests(ml_folder: Path) -> Iterator[tuple[str, str]]:
    """Iterate over (path, digest) of the files in ``ml_folder``, the folder of a job's /opt/ml.

    The job's configuration is left out, because it contains names of jobs.
    """
    for path in sorted(ml_folder.rglob("*")):
        below = path.relative_to(ml_folder)
        if path.is_file() and not below.as_posix().startswith(("config/", "input/config/")):
            yield f"/opt/ml/{below.as_posix()}", hash_content(path, path.name)


def _upload_files(
    endpoint: Endpoint, files: Mapping[str, Path], document: Mapping[str, Any]
) -> None:
    """Create the buckets that the definition names, as they exist in AWS, and upload the files."""
    objects = endpoint.app.objects
    for bucket in {*_BUCKET.findall(json.dumps([document, *files]))}:
        objects.create_bucket(bucket)
    for uri, path in files.items():
        bucket, _, name = uri.removeprefix("s3://").partition("/")
        objects.put_file(bucket, name, path)


def _start_execution(endpoint: Endpoint, document: Mapping[str, Any], setting: Setting) -> str:
    """Create the pipeline, start an execution of it, and return the ARN of the execution."""
    sagemaker = endpoint.app.aws.make_client("sagemaker")
    names = {entry["Name"] for entry in document.get("Parameters") or ()}
    parameters = [{"Name": k, "Value": v} for k, v in setting.parameters.items() if k in names]
    try:
        sagemaker.create_pipeline(
            PipelineName=NAME,
            PipelineDefinition=json.dumps(document),
            RoleArn=ROLE,
            ClientRequestToken="e" * 32,
        )
        return sagemaker.start_pipeline_execution(
            PipelineName=NAME, PipelineParameters=parameters, ClientRequestToken="e" * 32
        )["PipelineExecutionArn"]
    except ClientError as error:
        raise NotRunError(error.response["Error"]["Message"]) from None


class _FactCollector:
    """Collects the facts of an execution that has ended."""

    def __init__(
        self,
        endpoint: Endpoint,
        document: Mapping[str, Any],
        setting: Setting,
        file_facts: Mapping[str, Mapping[str, str]],
    ) -> None:
        self._app, self._document, self._file_facts = endpoint.app, document, file_facts
        self._setting, self._code = setting, UploadedFiles(setting.files)
        self._stand_ins: dict[str, str] = {}
        self._execution = ""

    def collect_facts(self, arn: str, names: Mapping[str, str]) -> dict[str, dict[str, str]]:
        """Return {step: {fact: value}}; ``REST`` has the objects that belong to no step."""
        steps = Execution(
            arn, make=lambda service, _: self._app.aws.make_client(service)
        ).list_steps()
        self._execution = arn.rpartition("/")[2]
        self._stand_ins = {self._execution: EXECUTION}
        for step in steps:
            # A tuning job is not in ``step.job``, but its name is random, too.
            tuning = step.metadata.get("TuningJob", {}).get("Arn", "")
            if job := step.job[1] if step.job else tuning.rpartition("/")[2]:
                self._stand_ins[job] = f"{{job of {_name_step(step.name, names)}}}"
        objects = dict(self._iter_objects())
        facts_by_step = {}
        for step in steps:
            facts = dict(self._iter_input_facts(step))
            facts |= {
                "status": step.status,
                "failure reason": self._replace_names(step.reason),
                "from the cache": str(step.cached),
                "attempts": str(step.attempts),
                "result": self._replace_names(
                    json.dumps(step.metadata, sort_keys=True, default=str)
                ),
            }
            description = self._describe_job(step) if step.job else {}
            folders = [f"{output_uri}/" for output_uri in iter_output_uris(description)]
            if uri := (description.get("ModelArtifacts") or {}).get("S3ModelArtifacts"):
                folders.append(uri.rpartition("/")[0] + "/")
            # Removed from ``objects``: what remains there at the end belongs to no step.
            own_uris = [uri for uri in objects if uri.startswith(tuple(folders))]
            facts |= self._build_object_facts("output", {uri: objects.pop(uri) for uri in own_uris})
            facts_by_step[_name_step(step.name, names)] = facts
        facts_by_step[REST] = self._build_object_facts("object", objects)
        return facts_by_step

    def _iter_input_facts(self, step: Step) -> Iterator[tuple[str, str]]:
        """Iterate over (fact, value) of the job's request and of the files that it received."""
        definition = find_step(self._document["Steps"], step.name)
        if not step.job or definition is None:
            return
        rules = Rules(self._code.hash_uri, sorts=True, cosmetic={})
        job = remove_defaults(
            remove_unused_monitoring(self._describe_job(step, definition.arguments), rules.cosmetic)
        )
        for path, shown_value in flatten_fields(normalize_request(job, rules)).items():
            text = self._replace_names(shown_value.raw)
            # A secret is compared by a hash, because the facts are shown to the user.
            if shown_value.text == HIDDEN:
                text = f"(hidden) {hashlib.sha256(text.encode()).hexdigest()[:8]}"
            yield f"request {path}", text
        yield from self._file_facts.get(step.job[1], {}).items()

    def _describe_job(
        self, step: Step, arguments: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return the description of the step's job; if given, only the members in ``arguments``."""
        assert step.job is not None
        kind, name = step.job
        sagemaker = self._app.aws.make_client("sagemaker")
        ask = getattr(sagemaker, xform_name(f"Describe{kind}"))
        answer = ask(**{f"{kind}Name": name})
        members = answer if arguments is None else arguments
        return {k: v for k, v in answer.items() if k in members and k != f"{kind}Name"}

    def _build_object_facts(self, kind: str, objects: Mapping[str, str]) -> dict[str, str]:
        """Return {fact: digests}; objects that differ only in generated names share a fact."""
        digests_by_fact: dict[str, list[str]] = {}
        for uri, digest in objects.items():
            digests_by_fact.setdefault(f"{kind} {self._replace_names(uri)}", []).append(digest)
        return {fact: " ".join(sorted(digests)) for fact, digests in digests_by_fact.items()}

    def _iter_objects(self) -> Iterator[tuple[str, str]]:
        """Iterate over (URI, digest) of the objects that the execution wrote."""
        store = self._app.objects
        for bucket, _ in store.list_buckets():
            for info in store.list(bucket):
                uri = f"s3://{bucket}/{info.key}"
                digest = hash_content(store.locate_file(bucket, info.key), info.key)
                was = self._setting.files.get(uri)
                if was is None or hash_content(was, info.key) != digest:
                    yield uri, digest

    def _replace_names(self, value: Any) -> str:
        """Return ``value`` as text in which generated names and times are replaced."""
        result = make_comparison_key(value, self._stand_ins)
        suffix = re.escape(f"-{EXECUTION}-")
        result = re.sub(rf"[\w-]*{suffix}[\w-]+", "{generated name}", _TRIAL.sub(r"\1", result))
        return _TIME.sub("{time}", result)


def _name_step(step: str, names: Mapping[str, str]) -> str:
    """Return a step's name in the facts: ``names`` renames steps and iterations of loop steps."""
    body, _, index = step.rpartition("-")
    if body in names and index.isdigit():
        return f"{names[body]}-{index}"
    return names.get(step, step)


# Digests of files by their content; the times and owners in an archive do not count.

ARCHIVES = (".tar.gz", ".tgz")


def hash_content(path: Path, name: str) -> str:
    """Return the SHA-256 of a file, or of the members of an archive.

    ``name`` is the name that the file has in S3; its suffix says whether it is an archive.
    """
    file_digest = hash_file(path)
    if not name.endswith(ARCHIVES) or path.stat().st_size > LARGEST:
        return file_digest
    return hash_archive(path.read_bytes()) or file_digest


def hash_archive(archive: bytes) -> str | None:
    """Return a digest of the members of a ``.tar.gz``; None if it cannot be read completely."""
    archive_contents = read_archive(archive)
    if archive_contents.fault:
        return None
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            members = list(tar)
    except FAULTS:
        return None
    # ``read_archive`` does not read sparse files.
    if any(member.issparse() for member in members):
        return None
    forms = [
        (member.name, str(member.type), member.mode & 0o111, member.linkname) for member in members
    ]
    return hash_json([archive_contents.files, sorted(forms)])


class UploadedFiles:
    """The objects that are in S3 before an execution, as a mapping of URI to local file."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self._files = files

    def hash_uri(self, uri: str) -> str | None:
        """Return a digest of the files that a job gets from ``uri``; None if there are none."""
        files = {
            build_local_path(uri, file_uri): path
            for file_uri, path in self._files.items()
            if file_uri.startswith(uri)
        }
        if files:
            digests = {name: hash_content(path, name) for name, path in sorted(files.items())}
            return hash_json(digests)[:16]
        return None
