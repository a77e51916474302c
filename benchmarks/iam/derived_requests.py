"""The calls that a pipeline makes with its roles, from its definition: for recipes too big to run.

The calls are those on which the emulator holds a role (authorization.role_calls); the places in S3
are read from the steps' requests here, and not by the derivation of policies that is judged.
"""

from collections.abc import Callable, Iterator, Mapping
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


def job_requests(subject: Subject) -> Iterator[Call]:
    """Iterate over the calls of the jobs' role."""
    for step in subject.values.steps:
        job, asked = get_step_type(step.type).job, _resolve_request(subject, step.arguments)
        if job is None:
            continue
        yield from iter_job_calls(asked)
        yield from _moves(asked)
        yield from iter_logging_calls(job.log_group, f"pipelines-{EXECUTION}-{step.name}/algo-1")
        yield make_metric_call(job.log_group)


def _moves(asked: Mapping[str, Any]) -> Iterator[Call]:
    for field in _READS:
        for place in _PLACES:
            for uri in iter_members(asked.get(field), place):
                bucket, key = _split(uri)
                yield make_list_call(bucket, key)
                yield make_object_call("GetObject", bucket, _below(key))
    for field in _WRITES:
        for place in _PLACES:
            for uri in iter_members(asked.get(field), place):
                bucket, key = _split(uri)
                yield make_object_call("PutObject", bucket, _below(key))


def pipeline_requests(subject: Subject) -> Iterator[Call]:
    """Iterate over the calls of the pipeline's role."""
    for step in subject.values.steps:
        if step.type in ("Condition", "Fail"):
            continue
        named = {name: step.document.get(name) for name in ("FunctionArn", "SqsQueueUrl")}
        asked, fields = _resolve_request(subject, step.arguments), _resolve_request(subject, named)
        name = f"pipelines-{EXECUTION}-{step.name}-0123456789"
        yield from iter_step_calls(step.type, name, asked, fields)
        if job := get_step_type(step.type).job:  # when the execution is stopped
            yield from iter_sagemaker_calls(f"Stop{job.api}", {f"{job.api}Name": name})
    for found, _ in iter_expressions(subject.document):
        if body := found.get(JSON_GET):
            yield make_object_call("GetObject", *_split(_json_file(subject, body)))
            yield from _decryption(subject)


def _decryption(subject: Subject) -> Iterator[Call]:
    """S3 decrypts, with its caller's rights, what the jobs' outputs are encrypted with."""
    for step in subject.values.steps:
        outputs = [step.arguments.get(f) for f in ("ProcessingOutputConfig", "OutputDataConfig")]
        for key in {*iter_members(outputs, "KmsKeyId")}:
            yield make_key_call("Decrypt", _resolve_request(subject, key))


def _json_file(subject: Subject, body: Mapping[str, Any]) -> str:
    if "S3Uri" in body:
        return _resolve_request(subject, body["S3Uri"])
    file = parse_get(body["PropertyFile"][GET])
    folder, name = locate_property_file(subject.values.get_step(file.name).document, file.path)
    return f"{_resolve_request(subject, {GET: f'Steps.{file.name}.{folder}'})}/{name}"


def events_requests(subject: Subject) -> Iterator[Call]:
    """Iterate over the calls of the role that starts the pipeline on a schedule."""
    yield from iter_sagemaker_calls("StartPipelineExecution", {"PipelineName": subject.name})


def look_requests(subject: Subject) -> Iterator[Call]:
    """Iterate over what a plan lists to know of each step whether the cache answers it."""
    for step in subject.values.steps:
        if step.document.get("CacheConfig"):
            asked = _resolve_request(subject, step.arguments)
            for field in (*_READS[:2], *_WRITES[:2]):
                for place in _PLACES:
                    for uri in iter_members(asked.get(field), place):
                        yield make_list_call(*_split(uri))


def _resolve_request(subject: Subject, value: Any) -> Any:
    """Return a request in which what a run decides is ``x``."""
    if isinstance(value, list):
        return [_resolve_request(subject, item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1 and next(iter(value)).startswith((GET, "Std:")):
        return subject.values.resolve_text(value, "a request").replace("*", "x")
    return {name: _resolve_request(subject, item) for name, item in value.items()}


def _split(uri: Any) -> tuple[str, str]:
    bucket, _, key = str(uri).removeprefix("s3://").partition("/")
    return bucket, key


def _below(key: str) -> str:
    return f"{key.rstrip('/')}/part-0" if key else "part-0"


def _make_request_lister(
    calls: Callable[[Subject], Iterator[Call]],
) -> Callable[[Subject, str], list[Request]]:
    """Return the calls as requests of a session of the role with that ARN, each once."""

    def list_requests(subject: Subject, role: str) -> list[Request]:
        caller = Caller(make_session_principal(role), None)
        return [make_policy_request(caller, call) for call in calls(subject)]

    return list_requests


DERIVED_CALLS = {
    "job": _make_request_lister(job_requests),
    "pipeline": _make_request_lister(pipeline_requests),
    "plan": _make_request_lister(look_requests),
    "ci": _make_request_lister(look_requests),
    "events": _make_request_lister(events_requests),
}
"""Role → its calls, as requests of a session of the role with an ARN."""
