"""Read the evidence of a failed step from the service: its reason, and the job's logs.

This is separate from ``diagnosis``, which takes evidence of any origin and calls no service.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from trainyard.aws_clients import create_client, service_errors
from trainyard.common.errors import ServiceError
from trainyard.language.definition_document import Step as StepDefinition
from trainyard.language.definition_document import find_step
from trainyard.language.evaluation import (
    Unknown,
    are_conditions_met,
    evaluate_value,
    is_condition_met,
)
from trainyard.language.expressions import (
    GET,
    JSON_GET,
    ExpressionError,
    is_expression,
    parse_get,
    resolve_parameters,
)
from trainyard.runs.execution import Execution, Step, compute_event_id
from trainyard.runs.run_values import LARGEST, RunValues, describe_resource, read_object
from trainyard.runs.why.diagnosis import Cause, diagnose_failure
from trainyard.runs.why.logged_exceptions import Evidence, make_line

LINES = 5_000
"""Number of lines that are read from the end of each machine's log. The first cause of a failure is
not far from the end."""

TELLING = ("Interrupted", "MaxRuntimeExceeded", "MaxWaitTimeExceeded")
"""Values of a training job's SecondaryStatus that are themselves the cause of its failure."""


def find_causes(execution: Execution) -> list[Cause]:
    """Return the cause of each failed step of the execution, in the order of its steps.

    Raises:
        ServiceError: AWS cannot be reached, or denies access to the logs.
    """
    return [
        find_cause(execution, step) for step in execution.list_steps() if step.status == "Failed"
    ]


def find_cause(execution: Execution, step: Step) -> Cause:
    """Return the cause of the step's failure.

    Raises:
        ServiceError: AWS cannot be reached, or denies access to the logs.
    """
    if "Fail" in step.metadata and (conditions := explain_conditions(execution, step)):
        message = step.reason or "a Fail step without a message"
        return Cause(
            step=step.title,
            name="condition",
            sentence=message,
            certainty="certain",
            lines=conditions,
        )
    job: Mapping[str, Any] = {}
    if step.job and step.job[0] == "TrainingJob":
        job = execution.describe_training_job(step.job[1])
    status = job.get("SecondaryStatus", "")
    lines = [
        make_line(host, event.get("timestamp", 0), text, compute_event_id(event))
        for host, events in execution.read_last_events(step, LINES).items()
        for event in events
        for text in event.get("message", "").splitlines()
    ]
    # The sort is stable: lines of one event, which share its time, keep their order.
    lines.sort(key=lambda log_line: log_line.timestamp)
    return diagnose_failure(
        Evidence(
            step=step.title,
            reason=job.get("FailureReason") or step.reason,
            status=status if status in TELLING else "",
            lines=tuple(lines),
        )
    )


# The conditions that led to a Fail step: what was compared, where the value is stored, and what was
# required.
#
# The service keeps a condition's outcome but not the values that it compared: they are read again.

DEMANDS = {
    "Equals": "equal to",
    "GreaterThan": "more than",
    "GreaterThanOrEqualTo": "at least",
    "LessThan": "less than",
    "LessThanOrEqualTo": "at most",
}
"""Mapping of a condition's operator to the words for it."""


def explain_conditions(execution: Execution, step: Step) -> tuple[str, ...]:
    """Return a line for each condition whose outcome made the step run, the innermost step's first.

    If something cannot be read, the line says so and nothing is raised, because the caller can
    show the step's own message anyway.
    """
    try:
        document = execution.read_definition()
        steps = document.get("Steps")
        definition, lines = find_step(steps, step.name), list[str]()
        scope = _make_run_values(execution, document) if definition and definition.branch else None
        while scope and definition and definition.branch:
            name, outcome = definition.branch
            definition = find_step(steps, name)
            lines += _explain_outcome(definition, outcome, scope) if definition else ()
    except ServiceError as error:
        return (f"its condition could not be read: {error}",)
    return tuple(lines)


def _make_run_values(execution: Execution, document: Mapping[str, Any]) -> RunValues:
    """Return the scope that resolves the definition's expressions to this execution's values."""
    region = execution.arn.split(":")[3]
    sagemaker, s3 = create_client("sagemaker", region), create_client("s3", region)

    def read(uri: str) -> bytes:
        """Return an object's content; raise ServiceError if it is larger than ``LARGEST``."""
        with service_errors(f"reading {uri}"):
            content = read_object(s3, uri)[1]
        if len(content) > LARGEST:
            raise ServiceError(f"{uri} is too large to be read here")
        return content

    return RunValues(
        arn=execution.arn,
        answer=execution.describe(),
        steps=execution.list_steps(),
        document=document,
        parameters=resolve_parameters(document, execution.read_parameters()),
        describe=lambda resource: describe_resource(sagemaker, resource),
        read=read,
    )


def _explain_outcome(step: StepDefinition, outcome: bool, scope: RunValues) -> Iterator[str]:
    """Yield a line for each condition of the step that explains its outcome.

    These are all conditions if the outcome was true, else only those that do not hold. If the
    conditions now have another outcome than in the execution, all are listed with a note.
    """
    conditions = step.arguments.get("Conditions") or []
    try:
        is_as_then = are_conditions_met(conditions, scope) == outcome
    except ExpressionError:
        is_as_then = True  # a value is unknown: the condition's line says which
    note = "" if is_as_then else "; what it compared has changed since the run"
    for condition in conditions:
        if outcome or not is_as_then or not _is_condition_true(condition, scope):
            yield f"{step.name} was {outcome}: {describe_condition(condition, scope)}{note}"


def _is_condition_true(condition: dict[str, Any], scope: RunValues) -> bool:
    try:
        return is_condition_met(condition, scope)
    except ExpressionError:
        return False


def describe_condition(condition: Mapping[str, Any], scope: RunValues) -> str:
    """Describe what a condition compares and requires, with the values of an execution."""
    kind = condition.get("Type")
    if kind == "Not":
        return f"not ({describe_condition(condition['Condition'], scope)})"
    if kind == "Or":
        parts = (describe_condition(part, scope) for part in condition["Conditions"])
        return "one of: " + "; or ".join(parts)
    if kind == "In":
        demand = "one of " + ", ".join(
            _describe_operand(item, scope) for item in condition["Values"]
        )
        return f"{_describe_operand(condition['QueryValue'], scope)}, demanded: {demand}"
    demand = f"{DEMANDS.get(str(kind), kind)} {_describe_operand(condition['RightValue'], scope)}"
    return f"{_describe_operand(condition['LeftValue'], scope)}, demanded: {demand}"


def _describe_operand(operand: Any, scope: RunValues) -> str:
    """Describe one side of a comparison: ``<source> is <value>``; for a constant only the value."""
    try:
        value = evaluate_value(operand, scope)
    except ExpressionError as error:
        value = Unknown(str(error))
    text = f"not known ({value})" if isinstance(value, Unknown) else json.dumps(value)
    if not is_expression(operand):
        return text
    return f"{_describe_source(operand, scope)} is {text}"


def _describe_source(expression: Mapping[str, Any], scope: RunValues) -> str:
    """Describe where an expression's value comes from, such as a parameter or a path in a file."""
    if GET in expression:
        reference = parse_get(expression[GET])
        return f"parameter {reference.name}" if reference.kind == "Parameters" else expression[GET]
    if JSON_GET not in expression:
        return "the joined text"
    body = expression[JSON_GET]
    try:
        if "S3Uri" in body:
            uri, step = evaluate_value(body["S3Uri"], scope), ""
        else:
            file = parse_get(body["PropertyFile"][GET])
            uri, step = scope.find_property_file_uri(file.name, file.path), f" of step {file.name}"
    except ExpressionError as error:
        return f"{body['Path']} of a file that is not known ({error})"
    return f"{body['Path']} in {uri}{step}"
