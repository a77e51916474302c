"""Derive the calls of a pipeline's roles from its definition, for recipes too big to run.

The calls are those on which the emulator holds a role (authorization.role_calls); the places in S3
are read from the steps' requests here, and not by the derivation of policies that is judged.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from trainyard.emulator.iam.account_policies import make_session_principal
from trainyard.emulator.iam.authority import Caller, make_policy_request
from trainyard.emulator.iam.s3_calls import (
    iter_job_calls,
    iter_logging_calls,
    iter_step_calls,
    make_list_call,
    make_metric_call,
    make_object_call,
)
from trainyard.emulator.iam.service_calls import (
    Call,
    iter_members,
    iter_sagemaker_calls,
    make_key_call,
)
from trainyard.language.definition_document import locate_property_file
from trainyard.language.expressions import GET, JSON_GET, iter_expressions, parse_get
from trainyard.language.step_types import get_step_type
from trainyard.permissions.pipeline_subject import Subject
from trainyard.permissions.policy_evaluation import Request

EXECUTION = "abcdefghijkl"
_READS = ("ProcessingInputs", "InputDataConfig", "CheckpointConfig", "TransformInput")
_WRITES = (
    *("ProcessingOutputConfig", "OutputDataConfig", "CheckpointConfig", "TransformOutput"),
    *("TensorBoardOutputConfig", "DataCaptureConfig"),
)
_PLACES = ("S3Uri", "S3OutputPath", "DestinationS3Uri")


def iter_job_role_calls(subject: Subject) -> Iterator[Call]:
    """Yield the calls of the jobs' role."""
    for step in subject.values.steps:
        job, request = get_step_type(step.type).job, _resolve_request(subject, step.arguments)
        if job is None:
            continue
        yield from iter_job_calls(request)
        yield from _iter_transfers(request)
        yield from iter_logging_calls(job.log_group, f"pipelines-{EXECUTION}-{step.name}/algo-1")
        yield make_metric_call(job.log_group)


def _iter_transfers(request: Mapping[str, Any]) -> Iterator[Call]:
    """Yield the calls that read a job's inputs from S3, and write its outputs."""
    for bucket, key in _iter_places(request, _READS):
        yield make_list_call(bucket, key)
        yield make_object_call("GetObject", bucket, _make_child_key(key))
    for bucket, key in _iter_places(request, _WRITES):
        yield make_object_call("PutObject", bucket, _make_child_key(key))


def _iter_places(request: Mapping[str, Any], fields: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the (bucket, key) of every URI in some fields of a request."""
    for field in fields:
        for place in _PLACES:
            yield from map(_split_uri, iter_members(request.get(field), place))


def iter_pipeline_role_calls(subject: Subject) -> Iterator[Call]:
    """Yield the calls of the pipeline's role."""
    for step in subject.values.steps:
        if step.type in ("Condition", "Fail"):
            continue
        named = {name: step.document.get(name) for name in ("FunctionArn", "SqsQueueUrl")}
        request = _resolve_request(subject, step.arguments)
        fields = _resolve_request(subject, named)
        name = f"pipelines-{EXECUTION}-{step.name}-0123456789"
        yield from iter_step_calls(step.type, name, request, fields)
        if job := get_step_type(step.type).job:  # when the execution is stopped
            yield from iter_sagemaker_calls(f"Stop{job.api}", {f"{job.api}Name": name})
    for found, _ in iter_expressions(subject.document):
        if body := found.get(JSON_GET):
            yield make_object_call("GetObject", *_split_uri(_resolve_json_uri(subject, body)))
            yield from _iter_decryptions(subject)


def _iter_decryptions(subject: Subject) -> Iterator[Call]:
    """Yield the decryptions of the jobs' outputs, which S3 does with its caller's permissions."""
    for step in subject.values.steps:
        outputs = [step.arguments.get(f) for f in ("ProcessingOutputConfig", "OutputDataConfig")]
        for key in {*iter_members(outputs, "KmsKeyId")}:
            yield make_key_call("Decrypt", _resolve_request(subject, key))


def _resolve_json_uri(subject: Subject, body: Mapping[str, Any]) -> str:
    """Return the URI of the file that a JsonGet reads."""
    if "S3Uri" in body:
        return _resolve_request(subject, body["S3Uri"])
    file = parse_get(body["PropertyFile"][GET])
    folder, name = locate_property_file(subject.values.get_step(file.name).document, file.path)
    return f"{_resolve_request(subject, {GET: f'Steps.{file.name}.{folder}'})}/{name}"


def iter_events_role_calls(subject: Subject) -> Iterator[Call]:
    """Yield the calls of the role that starts the pipeline on a schedule."""
    yield from iter_sagemaker_calls("StartPipelineExecution", {"PipelineName": subject.name})


def iter_cache_lookups(subject: Subject) -> Iterator[Call]:
    """Yield the S3 listings by which a plan learns which steps' results are in the cache."""
    for step in subject.values.steps:
        if step.document.get("CacheConfig"):
            request = _resolve_request(subject, step.arguments)
            for bucket, key in _iter_places(request, (*_READS[:2], *_WRITES[:2])):
                yield make_list_call(bucket, key)


def _resolve_request(subject: Subject, value: Any) -> Any:
    """Return a request in which every value that only a run decides is ``x``."""
    if isinstance(value, list):
        return [_resolve_request(subject, item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1 and next(iter(value)).startswith((GET, "Std:")):
        return subject.values.resolve_text(value, "a request").replace("*", "x")
    return {name: _resolve_request(subject, item) for name, item in value.items()}


def _split_uri(uri: Any) -> tuple[str, str]:
    bucket, _, key = str(uri).removeprefix("s3://").partition("/")
    return bucket, key


def _make_child_key(key: str) -> str:
    return f"{key.rstrip('/')}/part-0" if key else "part-0"


def _make_request_lister(
    calls: Callable[[Subject], Iterator[Call]],
) -> Callable[[Subject, str], list[Request]]:
    """Return a function (subject, role's ARN) → the calls as requests of a session of the role."""

    def list_requests(subject: Subject, role: str) -> list[Request]:
        caller = Caller(make_session_principal(role), None)
        return [make_policy_request(caller, call) for call in calls(subject)]

    return list_requests


DERIVED_CALLS = {
    "job": _make_request_lister(iter_job_role_calls),
    "pipeline": _make_request_lister(iter_pipeline_role_calls),
    "plan": _make_request_lister(iter_cache_lookups),
    "ci": _make_request_lister(iter_cache_lookups),
    "events": _make_request_lister(iter_events_role_calls),
}
"""Role → its calls, as requests of a session of the role with an ARN."""
