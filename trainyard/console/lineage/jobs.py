"""What a job read and wrote, by its description."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainyard.common.errors import ServiceError
from trainyard.console.account import Account
from trainyard.service import service_errors

SETTLED = 3_600.0
"""Seconds for which the description of a job is good: that of one that has ended never changes."""

KINDS = {
    "TrainingJob": "training job",
    "ProcessingJob": "processing job",
    "TransformJob": "transform job",
}
"""Member of a step's Metadata → the words for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job, its inputs and its outputs."""

    kind: str
    name: str
    status: str
    step: str = ""
    """Of the run that began it; empty where no run is known."""

    reads: tuple[tuple[str, str], ...]
    """(name of the input, S3 URI or what else it is)."""

    writes: tuple[str, ...]
    """S3 URIs."""


def read_job(account: Account, kind: str, name: str, step: str = "") -> Job:
    """The job of that kind (a key of ``KINDS``).

    Raises:
        ServiceError: there is none, or AWS refused.
    """

    def read() -> dict[str, Any]:
        with service_errors(f"reading {KINDS[kind]} {name}"):
            call = getattr(account.sagemaker, f"describe_{KINDS[kind].replace(' ', '_')}")
            answer: dict[str, Any] = call(**{f"{kind}Name": name})
        return answer

    told = account.lately(("lineage job", kind, name), read, SETTLED)
    return Job(
        kind=kind,
        name=name,
        status=str(told.get(f"{kind}Status", "Unknown")),
        step=step,
        reads=tuple(_reads(told)),
        writes=tuple(_writes(told, name)),
    )


def writer_of(account: Account, uri: str) -> Job | None:
    """The training job that says that it wrote ``uri``, tried by the names in the URI: SageMaker
    writes below ``<S3OutputPath>/<job>/output/``. None where no job says so."""
    for name in uri.removeprefix("s3://").split("/")[-3:-1]:
        try:
            job = read_job(account, "TrainingJob", name)
        except ServiceError:  # no job of that name
            continue
        if uri in job.writes:
            return job
    return None


def is_of(uri: str, written: str) -> bool:
    """Whether ``uri`` is what was written, a part of it, or holds it."""
    one, other = uri.rstrip("/"), written.rstrip("/")
    return one == other or one.startswith(other + "/") or other.startswith(one + "/")


def _reads(told: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for channel in told.get("InputDataConfig") or ():
        yield channel.get("ChannelName", ""), _source(channel.get("DataSource") or {})
    for given in told.get("ProcessingInputs") or ():
        found = given.get("S3Input") or {}
        query = given.get("DatasetDefinition") or {}
        uri = found.get("S3Uri") or next((k for k in query if k.endswith("Definition")), "")
        yield given.get("InputName", ""), uri or "not named"
    if transformed := told.get("TransformInput"):
        yield "data", _source(transformed.get("DataSource") or {})
    if model := told.get("ModelName"):
        yield "model", f"model {model}"


def _source(source: Mapping[str, Any]) -> str:
    if uri := (source.get("S3DataSource") or {}).get("S3Uri"):
        return str(uri)
    if system := (source.get("FileSystemDataSource") or {}).get("FileSystemId"):
        return f"file system {system}"
    return "not named"


def _writes(told: Mapping[str, Any], name: str) -> Iterator[str]:
    if artifact := (told.get("ModelArtifacts") or {}).get("S3ModelArtifacts"):
        yield artifact
    for output in (told.get("ProcessingOutputConfig") or {}).get("Outputs") or ():
        if uri := (output.get("S3Output") or {}).get("S3Uri"):
            yield uri
    if uri := (told.get("TransformOutput") or {}).get("S3OutputPath"):
        yield uri
