"""Check conditions: their operators, members, and whether their sides can be compared."""

from collections.abc import Iterator
from typing import Any

from trainyard.language.condition_types import MEMBERS, ORDER
from trainyard.language.definition_document import Document
from trainyard.language.expressions import is_expression
from trainyard.language.steps import Step
from trainyard.validate.expression_checks import ANY, infer_type
from trainyard.validate.location import (
    KINDER,
    REFUSAL,
    Finding,
    Place,
    brief,
    suggestion,
    unknown_argument,
)

SOURCE = "SDK 3.27: conditions"
NUMBERS = ("integer", "float")


def findings(document: Document, steps: dict[str, Step]) -> Iterator[Finding]:
    """Iterate over findings in the conditions of every Condition step."""
    for step in document.steps:
        if step.type != "Condition":
            continue
        if step.branch:
            yield Place(step.name, step.path).warning(
                "nested-condition",
                f"the condition stands in a branch of the condition {step.branch[0]!r}",
                reason=KINDER,
                fix="put its conditions into the outer one, with Or, or into a script",
                source="developer guide, Condition step (no nested ones); SDK 3.27 composes them",
            )
        place = Place(step.name, step.path).join("Arguments")
        conditions = step.arguments.get("Conditions")
        if not isinstance(conditions, list) or not conditions:
            yield _form(place.join("Conditions"), conditions, "a list with at least one condition")
            continue
        for index, condition in enumerate(conditions):
            check = _Check(document, steps)
            yield from check.condition(condition, place.join("Conditions", index))
        if not step.arguments.get("IfSteps") and not step.arguments.get("ElseSteps"):
            yield _no_branch(place)


class _Check:
    """The check of one definition's conditions; ``steps`` by name resolve references."""

    def __init__(self, document: Document, steps: dict[str, Step]) -> None:
        self.document = document
        self.steps = steps

    def condition(self, condition: Any, place: Place) -> Iterator[Finding]:
        """Check one condition, and those inside it."""
        kind = condition.get("Type") if isinstance(condition, dict) else None
        if kind not in list(MEMBERS):  # a list also compares unhashable values
            expectation = f"a condition of one Type of {', '.join(MEMBERS)}"
            yield _form(place, condition, expectation, suggestion(kind, list(MEMBERS)))
            return
        yield from _members(condition, kind, place)
        if kind == "Not":
            yield from self._check_parts([condition.get("Condition")], place, ["Condition"])
        elif kind == "Or":
            yield from self._or(condition.get("Conditions"), place)
        elif kind == "In":
            yield from self._in(condition, place)
        elif all(member in condition for member in MEMBERS[kind]):
            yield from self._compare(kind, condition["LeftValue"], condition["RightValue"], place)

    def _or(self, parts: Any, place: Place) -> Iterator[Finding]:
        if not isinstance(parts, list) or not parts:
            yield _form(place.join("Conditions"), parts, "a list with at least one condition")
            return
        yield from self._check_parts(parts, place, [("Conditions", i) for i in range(len(parts))])

    def _check_parts(self, parts: list, place: Place, keys: list) -> Iterator[Finding]:
        for part, key in zip(parts, keys, strict=True):
            child = place.join(key) if isinstance(key, str) else place.join(*key)
            if part is not None:
                yield from self.condition(part, child)

    def _in(self, condition: dict, place: Place) -> Iterator[Finding]:
        values = condition.get("Values")
        if not isinstance(values, list) or not values:
            yield _form(place.join("Values"), values, "a list with at least one value")
            return
        for index, value in enumerate(values):
            child = place.join("Values", index)
            yield from self._compare("In", condition.get("QueryValue"), value, child)

    def _compare(self, kind: str, left_value: Any, right: Any, place: Place) -> Iterator[Finding]:
        types = [self._type(value) for value in (left_value, right)]
        for side, type_ in zip((left_value, right), types, strict=True):
            if type_ is None:
                yield _form(place, side, "text, a number, true or false, or an expression")
        known_types = [t for t in types if t is not None and t != ANY]
        if len(known_types) == 2 and not _comparable(*known_types):
            yield _mismatch(kind, left_value, right, known_types, place)
        elif kind in ORDER and any(type_ not in NUMBERS for type_ in known_types):
            yield _no_order(kind, left_value, right, known_types, place)

    def _type(self, value: Any) -> str | None:
        """Return the side's type; ANY if only the run can know it, None if no type is possible."""
        if is_expression(value):
            type_ = infer_type(value, self.document, self.steps).type
            return None if type_ in ("list", "structure", "map") else type_
        names = {bool: "boolean", int: "integer", float: "float", str: "string"}
        return names.get(type(value))


def _comparable(left_type: str, right: str) -> bool:
    return left_type == right or (left_type in NUMBERS and right in NUMBERS)


def _members(condition: dict, kind: str, place: Place) -> Iterator[Finding]:
    for member in MEMBERS[kind]:
        if member not in condition:
            yield place.error(
                "missing-member",
                f"condition {kind} has no {member}",
                reason=REFUSAL,
                fix=f"add {member}",
                source=SOURCE,
            )
    for key in condition:
        if key not in ("Type", *MEMBERS[kind]):
            yield place.join(key).error(
                "unknown-member",
                f"condition {kind} has no member {key!r}",
                reason=f"{REFUSAL}: unknown property",
                fix=suggestion(key, list(MEMBERS[kind])),
                source="#2746",
                answer=unknown_argument(key),
            )


def _form(place: Place, value: Any, expectation: str, fix: str = "") -> Finding:
    return place.error(
        "condition",
        f"{brief(value)}, expected {expectation}",
        reason=REFUSAL,
        fix=fix or f"give {expectation}",
        source=SOURCE,
    )


def _mismatch(kind: str, left_value: Any, right: Any, types: list, place: Place) -> Finding:
    return place.error(
        "condition-types",
        f"{kind} compares {brief(left_value)} ({types[0]}) with {brief(right)} ({types[1]})",
        reason="values of two types are never equal and have no order: the step fails, or always "
        "takes one branch",
        fix="give both sides one type: change the parameter's Type, or write the constant as such",
        source=f"{SOURCE}; type of the sides as in the definition",
    )


def _no_order(kind: str, left_value: Any, right: Any, types: list, place: Place) -> Finding:
    if "boolean" in types:
        problem, make = f"{kind} of true and false, which have no order", place.error
    else:
        problem, make = f"{kind} of text: {brief(left_value)}, {brief(right)}", place.warning
    return make(
        "condition-types",
        problem,
        reason='text is ordered by its characters: "10" comes before "9"',
        fix="compare numbers, or use Equals",
        source=SOURCE,
    )


def _no_branch(place: Place) -> Finding:
    return place.warning(
        "empty-condition",
        "neither IfSteps nor ElseSteps has a step",
        reason="whatever the outcome, nothing follows from it",
        fix="move the steps that depend on the outcome into a branch",
        source=SOURCE,
    )
