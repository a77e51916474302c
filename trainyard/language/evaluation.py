"""Evaluate expressions, whether all values are known or only some.

A scope provides the values. For a value that it cannot know before a run it returns an
:class:`Unknown`, which carries the reason; a text that is joined with it is unknown in turn, and
keeps its known parts.
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
    as_text,
    check_shape,
    is_expression,
    lookup,
    parse_get,
)


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value that only a run knows."""

    reason: str
    """Reason why it is not known, in words for people."""

    parts: tuple["str | Unknown", ...] = ()
    """A joined text's known and unknown parts, in order; empty if no part is known."""

    def __str__(self) -> str:
        return self.reason

    @property
    def reasons(self) -> list[str]:
        """The reasons of all its unknown parts, each once."""
        reasons = (part.reason for part in self.parts if isinstance(part, Unknown))
        return list(dict.fromkeys(reasons)) or [self.reason]

    def fill_unknowns(self, stand_in: str) -> str:
        """Return the text with ``stand_in`` in place of every part that is not known."""
        parts = self.parts or (self,)
        return "".join(part if isinstance(part, str) else stand_in for part in parts)


class Scope(Protocol):
    """A source of values. Each method returns a value or an :class:`Unknown`, and raises
    :class:`ExpressionError` if there is no value and a run would fail.
    """

    def parameter(self, name: str) -> Any: ...

    def variable(self, name: str) -> Any:
        """Return an execution's variable, such as PipelineExecutionId."""
        ...

    def property(self, step: str, path: str) -> Any:
        """Return the value at ``path`` in the Describe answer for what the step created."""
        ...

    def property_file(self, step: str, name: str, path: str) -> Any:
        """Return the value at ``path`` in a property file of the step."""
        ...

    def s3_file(self, uri: str, path: str) -> Any:
        """Return the value at ``path`` in the JSON object at ``uri``."""
        ...


def arn_variables(arn: str) -> dict[str, str]:
    """Return the variables that an execution's ARN contains."""
    pipeline, _, number = arn.partition("/execution/")
    return {
        "PipelineName": pipeline.rpartition("/")[2],
        "PipelineArn": pipeline,
        "PipelineExecutionId": number,
        "PipelineExecutionArn": arn,
    }


class Start:
    """The scope of a run that has not started: parameters are known, the rest is not yet.

    Args:
        parameters: name → value; None: the parameter is declared, and has no value.
        otherwise: returns the stand-in for anything else, given its name such as
            ``Steps.Train.ModelName``.
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

    def later(self, reference: str) -> Any:
        """Return the value of ``reference`` in a loop's or an experiment's run."""
        return self._otherwise(reference)


def evaluate(value: Any, scope: Scope, *, lenient: bool = False) -> Any:
    """Return ``value`` with every expression in it replaced; lists and objects member by member.

    Args:
        lenient: an expression that fails is :class:`Unknown`, with the error as its reason.

    Raises:
        ExpressionError: an expression is malformed, or a run would fail on it.
    """
    if isinstance(value, list):
        return [evaluate(item, scope, lenient=lenient) for item in value]
    if not isinstance(value, dict):
        return value
    if not is_expression(value):
        return {key: evaluate(item, scope, lenient=lenient) for key, item in value.items()}
    try:
        return _value(value, scope, lenient)
    except ExpressionError as error:
        if not lenient:
            raise
        return Unknown(str(error))


def _value(expression: dict, scope: Scope, lenient: bool) -> Any:
    check_shape(expression)
    if GET in expression:
        return _get(expression[GET], scope)
    if JOIN in expression:
        body = expression[JOIN]
        return join(evaluate(body["Values"], scope, lenient=lenient), str(body.get("On", "")))
    body = expression[JSON_GET]
    if "PropertyFile" in body:
        file = parse_get(body["PropertyFile"][GET])
        return scope.property_file(file.name, file.path, body["Path"])
    uri = evaluate(body["S3Uri"], scope, lenient=lenient)
    return uri if isinstance(uri, Unknown) else scope.s3_file(uri, body["Path"])


def _get(text: str, scope: Scope) -> Any:
    reference = parse_get(text)
    if reference.kind == "Parameters":
        return scope.parameter(reference.name)
    if reference.kind == "Execution":
        return scope.variable(reference.name)
    if reference.kind == "Steps":
        return scope.property(reference.name, reference.path)
    if reference.kind == "PropertyFiles":
        raise ExpressionError(f"{GET} {text!r}: a property file is read with {JSON_GET}")
    if isinstance(scope, Start):
        return scope.later(text)
    raise ExpressionError(f"{GET} {text!r} is known in the run of a loop or an experiment only")


def join(values: Iterable[Any], on: str = "") -> str | Unknown:
    """Return the values as one text; Unknown, with its parts, when one of them is.

    Raises:
        ExpressionError: a value is neither text, number nor boolean.
    """
    parts: list[str | Unknown] = []
    for value in values:
        parts += [on] if parts and on else []
        parts += (value.parts or (value,)) if isinstance(value, Unknown) else (as_text(value),)
    unknown = next((part for part in parts if isinstance(part, Unknown)), None)
    return Unknown(unknown.reason, tuple(parts)) if unknown else "".join(map(str, parts))


def unknowns(value: Any) -> Iterator[Unknown]:
    """Iterate over every unknown value in an evaluated one."""
    if isinstance(value, Unknown):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from unknowns(item)


def read_json(data: bytes, path: str, location: str) -> Any:
    """Return the value at ``path`` in the JSON file ``data``, which ``location`` names.

    Raises:
        ExpressionError: it is not valid JSON, or has no value there.
    """

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    try:
        document = json.loads(data, parse_constant=refuse)
    except ValueError as error:
        raise ExpressionError(f"{location} is not valid JSON: {error}") from None
    return lookup(document, path, location)


# Conditions of a Condition step: all operators, typed as on AWS.

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
"""Operator → its members (SDK 3.27: ConditionTypeEnum and the classes' ``to_request``)."""
LISTS = ("Values", "Conditions")


def check(condition: Any) -> None:
    """Check a condition. Raises :class:`ExpressionError`: unknown operator or missing member."""
    for part in _walk(condition):
        kind = part.get("Type") if isinstance(part, dict) else None
        # A list, unlike a dict, also compares values that have no hash.
        if kind not in list(MEMBERS):
            raise ExpressionError(f"condition type {kind!r}: expected one of {list(MEMBERS)}")
        for member in MEMBERS[kind]:
            if member not in part:
                raise ExpressionError(f"condition {kind} has no {member}")
            if member in LISTS and not isinstance(part[member], list):
                message = f"condition {kind}: {member} is {part[member]!r}, expected a list"
                raise ExpressionError(message)


def _walk(condition: Any) -> Iterator[Any]:
    yield condition
    if isinstance(condition, dict):
        inner = [condition["Condition"]] if "Condition" in condition else []
        parts = condition.get("Conditions", [])
        for part in [*inner, *(parts if isinstance(parts, list) else ())]:
            yield from _walk(part)


def all_hold(conditions: Iterable[dict], scope: Scope) -> bool:
    """Return the outcome of a Condition step. Raises as :func:`holds` does."""
    return all(holds(condition, scope) for condition in conditions)


def holds(condition: dict, scope: Scope) -> bool:
    """Return whether a condition holds. Raises :class:`ExpressionError`: values cannot be compared,
    or one is not known.
    """
    kind = condition["Type"]
    if kind == "Not":
        return not holds(condition["Condition"], scope)
    if kind == "Or":
        return any(holds(part, scope) for part in condition["Conditions"])
    if kind == "In":
        value = evaluate(condition["QueryValue"], scope)
        return any(_equal(kind, value, evaluate(item, scope)) for item in condition["Values"])
    left_value = evaluate(condition["LeftValue"], scope)
    right = evaluate(condition["RightValue"], scope)
    if kind == "Equals":
        return _equal(kind, left_value, right)
    if _type(kind, left_value, right) == "Boolean":
        raise ExpressionError(f"condition {kind}: true and false have no order")
    return ORDER[kind](left_value, right)


def _equal(kind: str, left_value: Any, right: Any) -> bool:
    _type(kind, left_value, right)
    return left_value == right


def _type(kind: str, left_value: Any, right: Any) -> str:
    """Return the type of both values; integers and floats are both Number."""
    types = [_type_of(kind, value) for value in (left_value, right)]
    if types[0] != types[1]:
        raise ExpressionError(
            f"condition {kind} compares {left_value!r} ({types[0]}) with {right!r} ({types[1]}): "
            "both sides must have one type"
        )
    return types[0]


def _type_of(kind: str, value: Any) -> str:
    # First, as Python's bool is an int.
    if isinstance(value, bool):
        return "Boolean"
    if isinstance(value, int | float):
        return "Number"
    if isinstance(value, str):
        return "String"
    if isinstance(value, Unknown):
        raise ExpressionError(f"condition {kind}: {value}")
    raise ExpressionError(f"condition {kind}: {value!r} is not a string, number or boolean")
