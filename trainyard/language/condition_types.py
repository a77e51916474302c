"""Conditions of a Condition step: all operators, typed as on AWS."""

import operator
from collections.abc import Iterable, Iterator
from typing import Any

from trainyard.language.evaluation import Scope, Unknown, evaluate
from trainyard.language.expressions import ExpressionError

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
        if kind not in list(MEMBERS):  # a list also compares unhashable values
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
    if isinstance(value, bool):
        return "Boolean"
    if isinstance(value, int | float):
        return "Number"
    if isinstance(value, str):
        return "String"
    if isinstance(value, Unknown):
        raise ExpressionError(f"condition {kind}: {value}")
    raise ExpressionError(f"condition {kind}: {value!r} is not a string, number or boolean")
