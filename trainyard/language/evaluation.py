"""Evaluate expressions and conditions, whether all values are known or only some.

A scope provides the values. For a value that is known only at run time it returns an
:class:`Unknown` with the reason. A text that is joined with it is also ``Unknown``, and keeps its
known parts. "Run" means an execution of the pipeline.
"""

import json
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from trainyard.language.expressions import (
    GET,
    JOIN,
    JSON_GET,
    ExpressionError,
    check_expression_form,
    format_join_value,
    is_expression,
    look_up_path,
    parse_get,
)


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value that is known only at run time."""

    reason: str
    """Human-readable reason why it is not known."""

    parts: tuple["str | Unknown", ...] = ()
    """For a joined text, its known and unknown parts in order; else empty."""

    def __str__(self) -> str:
        return self.reason

    @property
    def reasons(self) -> list[str]:
        """Reasons of all its unknown parts, without duplicates."""
        reasons = (part.reason for part in self.parts if isinstance(part, Unknown))
        return list(dict.fromkeys(reasons)) or [self.reason]

    def fill_unknowns(self, stand_in: str) -> str:
        """Return the text with every unknown part replaced by ``stand_in``."""
        parts = self.parts or (self,)
        return "".join(part if isinstance(part, str) else stand_in for part in parts)


class Scope(Protocol):
    """A source of values for expressions.

    Each method returns a value or an :class:`Unknown`, and raises :class:`ExpressionError` if there
    is no value, so that a run would fail.
    """

    def parameter(self, name: str) -> Any: ...

    def variable(self, name: str) -> Any:
        """Return a variable of the execution, such as PipelineExecutionId."""
        ...

    def property(self, step: str, path: str) -> Any:
        """Return the value at ``path`` in the Describe response for what the step created."""
        ...

    def property_file(self, step: str, name: str, path: str) -> Any:
        """Return the value at ``path`` in a property file of the step."""
        ...

    def s3_file(self, uri: str, path: str) -> Any:
        """Return the value at ``path`` in the JSON object at ``uri``."""
        ...


def parse_arn_variables(arn: str) -> dict[str, str]:
    """Return the variables that an execution's ARN contains, as a mapping of name to value."""
    pipeline, _, number = arn.partition("/execution/")
    return {
        "PipelineName": pipeline.rpartition("/")[2],
        "PipelineArn": pipeline,
        "PipelineExecutionId": number,
        "PipelineExecutionArn": arn,
    }


class UnstartedScope:
    """The scope of a run that has not started: only parameters are known.

    Args:
        parameters: mapping of a parameter's name to its value; None if it is declared and has no
            value.
        otherwise: returns the value for anything else, given its name, such as
            ``Steps.Train.ModelName``; ``Unknown`` by default.
    """

    def __init__(
        self,
        parameters: Mapping[str, Any],
        otherwise: Callable[[str], Any] = lambda name: Unknown(f"{name} is known when it runs"),
    ) -> None:
        self._parameters = parameters
        self._otherwise = otherwise

    def parameter(self, name: str) -> Any:
        if name not in self._parameters:
            raise ExpressionError(f"there is no parameter {name!r}")
        value = self._parameters[name]
        return self._otherwise(f"Parameters.{name}") if value is None else value

    def variable(self, name: str) -> Any:
        return self._otherwise(f"Execution.{name}")

    def property(self, step: str, path: str) -> Any:
        return self._otherwise(f"Steps.{step}.{path}")

    def property_file(self, step: str, name: str, path: str) -> Any:
        return self._otherwise(f"Steps.{step}.PropertyFiles.{name}: {path}")

    def s3_file(self, uri: str, path: str) -> Any:
        return self._otherwise(f"{uri}: {path}")

    def resolve_later(self, reference: str) -> Any:
        """Return the value of a reference to a loop's item or output, or to an experiment."""
        return self._otherwise(reference)


def evaluate_value(value: Any, scope: Scope, *, lenient: bool = False) -> Any:
    """Return ``value`` with every expression in it replaced by its value, at any depth.

    Args:
        value: any part of a definition.
        scope: source of the values.
        lenient: return :class:`Unknown` for an expression that fails, with the error as its reason.

    Raises:
        ExpressionError: an expression is malformed, or a run would fail on it.
    """
    if isinstance(value, list):
        return [evaluate_value(item, scope, lenient=lenient) for item in value]
    if not isinstance(value, dict):
        return value
    if not is_expression(value):
        return {key: evaluate_value(item, scope, lenient=lenient) for key, item in value.items()}
    try:
        return _evaluate_expression(value, scope, lenient)
    except ExpressionError as error:
        if not lenient:
            raise
        return Unknown(str(error))


def _evaluate_expression(expression: dict, scope: Scope, lenient: bool) -> Any:
    """Return the value of one expression."""
    check_expression_form(expression)
    if GET in expression:
        return _evaluate_get(expression[GET], scope)
    if JOIN in expression:
        body = expression[JOIN]
        return join_values(
            evaluate_value(body["Values"], scope, lenient=lenient), str(body.get("On", ""))
        )
    body = expression[JSON_GET]
    if "PropertyFile" in body:
        file = parse_get(body["PropertyFile"][GET])
        return scope.property_file(file.name, file.path, body["Path"])
    uri = evaluate_value(body["S3Uri"], scope, lenient=lenient)
    return uri if isinstance(uri, Unknown) else scope.s3_file(uri, body["Path"])


def _evaluate_get(text: str, scope: Scope) -> Any:
    """Return the value of the reference in a ``Get``."""
    reference = parse_get(text)
    if reference.kind == "Parameters":
        return scope.parameter(reference.name)
    if reference.kind == "Execution":
        return scope.variable(reference.name)
    if reference.kind == "Steps":
        return scope.property(reference.name, reference.path)
    if reference.kind == "PropertyFiles":
        raise ExpressionError(f"{GET} {text!r}: a property file is read with {JSON_GET}")
    if isinstance(scope, UnstartedScope):
        return scope.resolve_later(text)
    raise ExpressionError(f"{GET} {text!r} is known only while a loop or an experiment runs")


def join_values(values: Iterable[Any], on: str = "") -> str | Unknown:
    """Return the values as one text, with ``on`` between them; if one of them is unknown, an
    ``Unknown`` with all parts.

    Raises:
        ExpressionError: a value is neither text, number nor boolean.
    """
    parts: list[str | Unknown] = []
    for value in values:
        parts += [on] if parts and on else []
        parts += (
            (value.parts or (value,)) if isinstance(value, Unknown) else (format_join_value(value),)
        )
    unknown = next((part for part in parts if isinstance(part, Unknown)), None)
    return Unknown(unknown.reason, tuple(parts)) if unknown else "".join(map(str, parts))


def iter_unknowns(value: Any) -> Iterator[Unknown]:
    """Iterate over all ``Unknown`` in an evaluated value, at any depth."""
    if isinstance(value, Unknown):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from iter_unknowns(item)


def extract_json_value(data: bytes, path: str, location: str) -> Any:
    """Return the value at ``path`` in a JSON file with the content ``data``.

    ``location`` names the file in messages.

    Raises:
        ExpressionError: it is not valid JSON, or has no value at ``path``.
    """

    def refuse(constant: str) -> None:
        """Called for NaN and Infinity, which Python accepts and JSON does not have."""
        raise ValueError(f"{constant} is not JSON")

    try:
        document = json.loads(data, parse_constant=refuse)
    except ValueError as error:
        raise ExpressionError(f"{location} is not valid JSON: {error}") from None
    return look_up_path(document, path, location)


# Evaluate the conditions of a Condition step: all operators, with types compared as on AWS.

ORDER = {
    "GreaterThan": operator.gt,
    "GreaterThanOrEqualTo": operator.ge,
    "LessThan": operator.lt,
    "LessThanOrEqualTo": operator.le,
}
MEMBERS = {
    "Equals": ("LeftValue", "RightValue"),
    **{name: ("LeftValue", "RightValue") for name in ORDER},
    "In": ("QueryValue", "Values"),
    "Not": ("Condition",),
    "Or": ("Conditions",),
}
"""Mapping of an operator to the members that its condition must have (SDK 3.27: ConditionTypeEnum
and the classes' ``to_request``)."""
LISTS = ("Values", "Conditions")


def check_condition(condition: Any) -> None:
    """Check that a condition, and those nested in it, have known operators and all members.

    Raises:
        ExpressionError: an operator is unknown, or a member is missing or not a list.
    """
    for part in _iter_conditions(condition):
        kind = part.get("Type") if isinstance(part, dict) else None
        # A list, because ``in`` on a dict raises TypeError for an unhashable value.
        if kind not in list(MEMBERS):
            raise ExpressionError(f"condition type {kind!r}: expected one of {list(MEMBERS)}")
        for member in MEMBERS[kind]:
            if member not in part:
                raise ExpressionError(f"condition {kind} has no {member}")
            if member in LISTS and not isinstance(part[member], list):
                message = f"condition {kind}: {member} is {part[member]!r}, expected a list"
                raise ExpressionError(message)


def _iter_conditions(condition: Any) -> Iterator[Any]:
    """Iterate over a condition and all conditions nested in it."""
    yield condition
    if isinstance(condition, dict):
        inner = [condition["Condition"]] if "Condition" in condition else []
        parts = condition.get("Conditions", [])
        for part in [*inner, *(parts if isinstance(parts, list) else ())]:
            yield from _iter_conditions(part)


def are_conditions_met(conditions: Iterable[dict], scope: Scope) -> bool:
    """Return the outcome of a Condition step: whether all its conditions hold.

    Raises:
        ExpressionError: as in :func:`is_condition_met`.
    """
    return all(is_condition_met(condition, scope) for condition in conditions)


def is_condition_met(condition: dict, scope: Scope) -> bool:
    """Return whether a condition holds.

    Raises:
        ExpressionError: values cannot be compared, or one of them is not known.
    """
    kind = condition["Type"]
    if kind == "Not":
        return not is_condition_met(condition["Condition"], scope)
    if kind == "Or":
        return any(is_condition_met(part, scope) for part in condition["Conditions"])
    if kind == "In":
        value = evaluate_value(condition["QueryValue"], scope)
        return any(
            _is_equal(kind, value, evaluate_value(item, scope)) for item in condition["Values"]
        )
    left_value = evaluate_value(condition["LeftValue"], scope)
    right = evaluate_value(condition["RightValue"], scope)
    if kind == "Equals":
        return _is_equal(kind, left_value, right)
    if _find_common_type(kind, left_value, right) == "Boolean":
        raise ExpressionError(f"condition {kind}: true and false have no order")
    return ORDER[kind](left_value, right)


def _is_equal(kind: str, left_value: Any, right: Any) -> bool:
    """Return whether the values are equal. Raises ExpressionError if their types differ."""
    _find_common_type(kind, left_value, right)
    return left_value == right


def _find_common_type(kind: str, left_value: Any, right: Any) -> str:
    """Return the type that both values have; integers and floats are both Number.

    Raises:
        ExpressionError: their types differ, or a value has none that can be compared.
    """
    types = [_get_type_name(kind, value) for value in (left_value, right)]
    if types[0] != types[1]:
        raise ExpressionError(
            f"condition {kind} compares {left_value!r} ({types[0]}) with {right!r} ({types[1]}): "
            "both sides must have one type"
        )
    return types[0]


def _get_type_name(kind: str, value: Any) -> str:
    """Return ``Boolean``, ``Number`` or ``String``. Raises ExpressionError for any other value."""
    # This comes first, because Python's bool is an int.
    if isinstance(value, bool):
        return "Boolean"
    if isinstance(value, int | float):
        return "Number"
    if isinstance(value, str):
        return "String"
    if isinstance(value, Unknown):
        raise ExpressionError(f"condition {kind}: {value}")
    raise ExpressionError(f"condition {kind}: {value!r} is not a string, number or boolean")
