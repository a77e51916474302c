"""Checks of a definition's form at CreatePipeline, by the rules of ``trainyard.validate``.

They refuse only what AWS is known to refuse at this point and not when a step starts. Other rules
of validate concern what would fail later.
"""

import json
from collections.abc import Iterator
from typing import Any

from trainyard.emulator.api import ApiError
from trainyard.emulator.request_shapes import model
from trainyard.validate import reference_checks, step_dependencies, step_request_checks
from trainyard.validate.location import UNREADABLE, Finding
from trainyard.validate.outer_form import read

ERROR_RULES = {
    "form",
    "parameter-enum",
    "parameter-default",
    "type",
    "not-json",
    "unknown-member",  # "Unknown Argument member": aws/sagemaker-python-sdk#3472, #2746
    "number-in-string",  # "Cannot assign property reference … to argument of type": #4867, #2631
    "expression-type",
    "length",  # "Model validation failed - container … length": #2554, kedro-sagemaker#14
    "not-in-a-pipeline",  # #3472
    "after-fail",  # the API's FailStep is a terminal step
    "depends-on",
    "name",
    "version",
    "duplicate-name",
    "parameter-type",
    "step-type",
    "unknown-step",
    "unknown-parameter",
    "property-file",
    "property-file-output",
    "expression",
    "cycle",
    "loop-item",
    "loop-body",
    "inside-a-loop",
}
DEEPEST = 100  # levels of nested lists and objects; a nested step takes four


def check(text: str) -> None:
    """Raise ``ValidationException`` with the first error that AWS refuses in a definition."""
    if wrong := next(
        (f for f in _findings(text) if f.severity == "error" and f.rule in ERROR_RULES), None
    ):
        step = f" Step {wrong.step!r}:" if wrong.step else ""
        location = f"{step} {wrong.path}: {wrong.problem}; {wrong.fix}"
        raise ApiError("ValidationException", f"{wrong.answer or UNREADABLE}{location}")


def check_size(text: str) -> None:
    """Raise ``ValidationException`` for a text that is longer than a request may hold."""
    request = model().operation_model("CreatePipeline").input_shape
    most = request.members["PipelineDefinition"].metadata["max"]
    if len(text) > most:
        message = f"PipelineDefinition has {len(text)} characters, and at most {most} are allowed"
        raise ApiError("ValidationException", f"{message}; use PipelineDefinitionS3Location")


def decode_definition(data: bytes, location: str) -> str:
    """Return a definition stored in S3 as text. Raises ``ValidationException`` if it is not
    text.
    """
    try:
        return data.decode()
    except UnicodeDecodeError as wrong:
        raise _unreadable_error(f" {location} is not UTF-8: {wrong}") from None


def _findings(text: str) -> Iterator[Finding]:
    _check_depth(text)
    document, findings = read(text)
    yield from findings
    if document and not any(f.rule in ("not-json", "form") for f in findings):
        steps = {step.name: step for step in document.steps}
        yield from step_request_checks.findings(document, steps)
        yield from reference_checks.findings(document, steps)
        yield from step_dependencies.findings(document, steps)


def _check_depth(text: str) -> None:
    try:
        level: list[Any] = [json.loads(text)]
    except RecursionError:
        raise _unreadable_error(f" It is nested deeper than {DEEPEST} levels") from None
    except ValueError:
        return  # read() reports the error
    for _ in range(DEEPEST):
        level = [inner for value in level for inner in _inside(value)]
    if level:
        raise _unreadable_error(f" It is nested deeper than {DEEPEST} levels")


def _inside(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _unreadable_error(detail: str) -> ApiError:
    return ApiError("ValidationException", f"{UNREADABLE}{detail}")
