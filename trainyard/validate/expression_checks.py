"""List the expressions of a definition, infer their types, and check Join, JsonGet and conditions.

A "place" is a JSON path in the definition, with its step (``location.Location``).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from trainyard.language.definition_document import Document, Step
from trainyard.language.evaluation import MEMBERS, ORDER, Unknown
from trainyard.language.expressions import (
    EXPERIMENT,
    GET,
    JOIN,
    JSON_GET,
    ExpressionError,
    is_expression,
    iter_expressions,
    parse_get,
    split_path,
)
from trainyard.validate.location import (
    KINDER,
    REFUSAL,
    Finding,
    Location,
    format_unknown_argument,
    shorten_repr,
    suggest_name,
)
from trainyard.validate.step_properties import OUTPUT_TYPES, PropertyError, find_property_shape

ANY = "any"


@dataclass(frozen=True, slots=True)
class ExpressionType:
    """The type of an expression, and the values that it may have as far as they are known."""

    type: str
    """botocore's name of the type, such as ``string``; ``ANY`` if it is unknown."""

    values: tuple[Any, ...] = ()
    """Of a parameter its default and its other permitted values; of a Join its text. Empty if they
    are unknown."""

    outline: str = ""
    """Text of a Join that begins with a constant, with x in place of each part that is known only
    when the pipeline runs; else empty."""


def iter_located_expressions(document: Document) -> Iterator[tuple[dict, Location, Step | None]]:
    """Iterate over (expression, location, step) of every expression of the definition.

    The step is None for expressions in the definition's top-level configurations.
    """
    for key in ("PipelineExperimentConfig", "MlflowConfig"):
        for expression, keys in iter_expressions(document.document.get(key)):
            yield expression, Location(None, f"$.{key}").join(*keys), None
    for step in document.steps:
        location = Location(step.name, step.path)
        fields = {k: v for k, v in step.document.items() if k not in ("Arguments", "Name", "Type")}
        for expression, keys in iter_expressions(fields | {"Arguments": step.own_arguments}):
            yield expression, location.join(*keys), step


def infer_type(expression: dict, document: Document, steps: dict[str, Step]) -> ExpressionType:
    """Return the type of ``expression``; ``ANY`` if it is known only at run time, or is invalid."""
    if JOIN in expression:
        joined_text = document.resolve_value(expression)
        if not isinstance(joined_text, Unknown):
            return ExpressionType("string", (joined_text,))
        # A text can be checked for a form such as that of an S3 URI only if its beginning is
        # constant.
        begins = bool(joined_text.parts) and isinstance(joined_text.parts[0], str)
        return ExpressionType("string", outline=joined_text.fill_unknowns("x") if begins else "")
    if GET not in expression:
        return ExpressionType(ANY)
    try:
        reference = parse_get(expression[GET])
    except ExpressionError:
        # ``reference_checks`` reports it.
        return ExpressionType(ANY)
    if reference.kind == "Parameters":
        return find_parameter_type(document.parameters.get(reference.name, {}))
    if reference.kind in ("Execution", EXPERIMENT):
        return ExpressionType("string")
    if reference.kind == "Steps" and reference.name in steps:
        return _find_property_type(steps[reference.name], reference.path, steps)
    return ExpressionType(ANY)


def find_parameter_type(entry: Any) -> ExpressionType:
    """Return the type of a parameter, with its default and permitted values, from its entry in the
    definition.
    """
    default = entry.get("DefaultValue")
    others = entry.get("EnumValues")
    values = [] if default is None else [default]
    if isinstance(others, list):
        values += [value for value in others if value != default]
    return ExpressionType(OUTPUT_TYPES.get(str(entry.get("Type")), ANY), tuple(values))


def _find_property_type(step: Step, path: str, steps: dict[str, Step]) -> ExpressionType:
    """Return the type of a step's property; ``ANY`` if it does not exist or has no JSON type."""
    try:
        shape = find_property_shape(step, split_path(path), steps)
    except (PropertyError, ExpressionError):
        # ``reference_checks`` reports it.
        return ExpressionType(ANY)
    if shape is None or shape.type in ("timestamp", "blob"):
        return ExpressionType(ANY)
    return ExpressionType({"long": "integer", "double": "float"}.get(shape.type, shape.type))


PASSING = "developer guide: Pass Data Between Steps"


def check_join(body: Any, location: Location) -> Iterator[Finding]:
    """Check the body of a ``Std:Join``."""
    values = body.get("Values") if isinstance(body, dict) else None
    if not isinstance(values, list):
        yield location.make_error(
            "expression",
            f"{shorten_repr(body)}: expected On and a list of Values",
            reason=REFUSAL,
            fix='{"Std:Join": {"On": "/", "Values": […]}}',
            source="SDK 3.27: Join",
        )
        return
    for key in body:
        if key not in ("On", "Values"):
            yield make_unknown_member_finding(location.join(key), JOIN, key, ["On", "Values"])
    if not isinstance(body.get("On", ""), str):
        yield _make_text_finding(location.join("On"), body["On"])
    for index, value in enumerate(values):
        is_function = (
            isinstance(value, dict) and len(value) == 1 and set(value) <= {GET, JOIN, JSON_GET}
        )
        if value is None or (isinstance(value, list | dict) and not is_function):
            yield location.join("Values", index).make_error(
                "join-values",
                f"{shorten_repr(value)}: expected text, a number, true or false, or an expression",
                reason="the step fails when its values are joined",
                fix="join scalar values only",
                source="SDK 3.27: Join",
            )


def _make_text_finding(location: Location, value: Any) -> Finding:
    """Return a finding that a value must be constant text."""
    return location.make_error(
        "expression",
        f"{shorten_repr(value)} is not text: an expression is not allowed here",
        reason=f"{REFUSAL}: it is read before any expression has a value",
        fix="write constant text",
        source="#3463 #4418",
    )


def make_unknown_member_finding(
    location: Location,
    owner: str,
    key: str,
    valid: list[str],
    known_from: str = "SDK 3.27: functions",
) -> Finding:
    """Return a finding that ``owner``, such as a function or the definition, has an unknown member.

    Args:
        location: path of the member.
        owner: name of what has the member, for the message.
        key: the unknown member.
        valid: names of valid members, to suggest from.
        known_from: source of ``valid``.
    """
    return location.make_error(
        "unknown-member",
        f"{owner} has no member {key!r}",
        reason=f"{REFUSAL}: unknown property",
        fix=suggest_name(key, valid),
        source=f"{known_from}; the service's message in #2746",
        answer=format_unknown_argument(key),
    )


def check_json_get(body: Any, location: Location) -> Iterator[Finding]:
    """Check the body of a ``Std:JsonGet``."""
    members = ("PropertyFile", "S3Uri", "Path")
    if not isinstance(body, dict) or ("PropertyFile" in body) == ("S3Uri" in body):
        yield location.make_error(
            "expression",
            f"{shorten_repr(body)}: expected Path, and either PropertyFile or S3Uri",
            reason=REFUSAL,
            fix='write {"PropertyFile": {"Get": "Steps.X.PropertyFiles.Y"}, "Path": "a.b"}',
            source="SDK 3.27: JsonGet",
        )
        return
    for key in body:
        if key not in members:
            yield make_unknown_member_finding(location.join(key), JSON_GET, key, list(members))
    yield from _check_json_path(body.get("Path"), location.join("Path"))
    file = body.get("PropertyFile")
    text = file.get(GET) if isinstance(file, dict) else None
    if "PropertyFile" in body and not re.fullmatch(r"Steps\.[^.]+\.PropertyFiles\..+", str(text)):
        yield location.join("PropertyFile").make_error(
            "expression",
            f'{shorten_repr(file)}: expected {{"Get": "Steps.<step>.PropertyFiles.<name>"}}',
            reason=REFUSAL,
            fix="name the step and its property file",
            source="SDK 3.27: JsonGet",
        )


def _check_json_path(path: Any, location: Location) -> Iterator[Finding]:
    """Check the Path of a JsonGet."""
    if not isinstance(path, str):
        yield _make_text_finding(location, path)
        return
    try:
        split_path(path)
    except ExpressionError as error:
        yield location.make_error(
            "json-path",
            str(error),
            reason="the value is not found, and the step fails after the job has run",
            fix="write members and indices only, such as metrics.accuracy.value or runs[0].loss",
            source=PASSING,
        )


# Check conditions: their operators and members, and whether the two sides can be compared.

SOURCE = "SDK 3.27: conditions"
NUMBERS = ("integer", "float")


def check_conditions(document: Document, steps: dict[str, Step]) -> Iterator[Finding]:
    """Iterate over the findings in the conditions of all Condition steps."""
    for step in document.steps:
        if step.type != "Condition":
            continue
        if step.branch:
            yield Location(step.name, step.path).make_warning(
                "nested-condition",
                f"the condition is in a branch of the condition {step.branch[0]!r}",
                reason=KINDER,
                fix="put its conditions into the outer one, with Or, or into a script",
                source="developer guide, Condition step (no nested ones); SDK 3.27 composes them",
            )
        location = Location(step.name, step.path).join("Arguments")
        conditions = step.arguments.get("Conditions")
        if not isinstance(conditions, list) or not conditions:
            yield _make_form_finding(
                location.join("Conditions"), conditions, "a list with at least one condition"
            )
            continue
        for index, condition in enumerate(conditions):
            check = _ConditionChecker(document, steps)
            yield from check.check_condition(condition, location.join("Conditions", index))
        if not step.arguments.get("IfSteps") and not step.arguments.get("ElseSteps"):
            yield location.make_warning(
                "empty-condition",
                "neither IfSteps nor ElseSteps has a step",
                reason="whatever the outcome, nothing follows from it",
                fix="move the steps that depend on the outcome into a branch",
                source=SOURCE,
            )


class _ConditionChecker:
    """Checks conditions of one definition; ``steps`` maps names to steps, to resolve references."""

    def __init__(self, document: Document, steps: dict[str, Step]) -> None:
        self.document = document
        self.steps = steps

    def check_condition(self, condition: Any, location: Location) -> Iterator[Finding]:
        """Check one condition and the conditions nested in it."""
        kind = condition.get("Type") if isinstance(condition, dict) else None
        # A list, because ``in`` on a dict raises TypeError for an unhashable value.
        if kind not in list(MEMBERS):
            expectation = f"a condition of one Type of {', '.join(MEMBERS)}"
            yield _make_form_finding(
                location, condition, expectation, suggest_name(kind, list(MEMBERS))
            )
            return
        yield from _check_members(condition, kind, location)
        if kind == "Not":
            yield from self._check_parts([condition.get("Condition")], location, ["Condition"])
        elif kind == "Or":
            yield from self._check_or(condition.get("Conditions"), location)
        elif kind == "In":
            yield from self._check_in(condition, location)
        elif all(member in condition for member in MEMBERS[kind]):
            yield from self._check_comparison(
                kind, condition["LeftValue"], condition["RightValue"], location
            )

    def _check_or(self, parts: Any, location: Location) -> Iterator[Finding]:
        """Check the list ``parts`` of the conditions of an Or."""
        if not isinstance(parts, list) or not parts:
            yield _make_form_finding(
                location.join("Conditions"), parts, "a list with at least one condition"
            )
            return
        yield from self._check_parts(
            parts, location, [("Conditions", i) for i in range(len(parts))]
        )

    def _check_parts(self, parts: list, location: Location, keys: list) -> Iterator[Finding]:
        """Check nested conditions; ``keys`` are their paths below ``location``."""
        for part, key in zip(parts, keys, strict=True):
            child = location.join(key) if isinstance(key, str) else location.join(*key)
            if part is not None:
                yield from self.check_condition(part, child)

    def _check_in(self, condition: dict, location: Location) -> Iterator[Finding]:
        """Check that each of an In condition's Values can be compared with its QueryValue."""
        values = condition.get("Values")
        if not isinstance(values, list) or not values:
            yield _make_form_finding(
                location.join("Values"), values, "a list with at least one value"
            )
            return
        for index, value in enumerate(values):
            child = location.join("Values", index)
            yield from self._check_comparison("In", condition.get("QueryValue"), value, child)

    def _check_comparison(
        self, kind: str, left_value: Any, right: Any, location: Location
    ) -> Iterator[Finding]:
        """Check that the two sides of a comparison can be compared."""
        types = [self._infer_type(value) for value in (left_value, right)]
        for operand, type_ in zip((left_value, right), types, strict=True):
            if type_ is None:
                yield _make_form_finding(
                    location, operand, "text, a number, true or false, or an expression"
                )
        known_types = [t for t in types if t is not None and t != ANY]
        is_comparable = len(set(known_types)) == 1 or set(known_types) <= set(NUMBERS)
        if len(known_types) == 2 and not is_comparable:
            yield location.make_error(
                "condition-types",
                f"{kind} compares {shorten_repr(left_value)} ({known_types[0]}) with "
                f"{shorten_repr(right)} "
                f"({known_types[1]})",
                reason="values of two types are never equal and have no order: the step fails, or "
                "always takes one branch",
                fix="give both sides one type: change the parameter's Type, or that of the "
                "constant",
                source=f"{SOURCE}; type of the sides as in the definition",
            )
        elif kind in ORDER and any(type_ not in NUMBERS for type_ in known_types):
            if "boolean" in known_types:
                problem = f"{kind} of true and false, which have no order"
                make = location.make_error
            else:
                problem, make = (
                    f"{kind} of text: {shorten_repr(left_value)}, {shorten_repr(right)}",
                    location.make_warning,
                )
            yield make(
                "condition-types",
                problem,
                reason='text is ordered by its characters: "10" comes before "9"',
                fix="compare numbers, or use Equals",
                source=SOURCE,
            )

    def _infer_type(self, value: Any) -> str | None:
        """Return the type of one side of a comparison.

        Return ``ANY`` if it is known only at run time, and None if the value cannot be compared.
        """
        if is_expression(value):
            type_ = infer_type(value, self.document, self.steps).type
            return None if type_ in ("list", "structure", "map") else type_
        names = {bool: "boolean", int: "integer", float: "float", str: "string"}
        return names.get(type(value))


def _check_members(condition: dict, kind: str, location: Location) -> Iterator[Finding]:
    """Check that a condition has exactly the members of its type."""
    for member in MEMBERS[kind]:
        if member not in condition:
            yield location.make_error(
                "missing-member",
                f"condition {kind} has no {member}",
                reason=REFUSAL,
                fix=f"add {member}",
                source=SOURCE,
            )
    for key in condition:
        if key not in ("Type", *MEMBERS[kind]):
            yield location.join(key).make_error(
                "unknown-member",
                f"condition {kind} has no member {key!r}",
                reason=f"{REFUSAL}: unknown property",
                fix=suggest_name(key, list(MEMBERS[kind])),
                source="#2746",
                answer=format_unknown_argument(key),
            )


def _make_form_finding(location: Location, value: Any, expectation: str, fix: str = "") -> Finding:
    """Return a finding about a condition in which ``value`` is not what was expected."""
    return location.make_error(
        "condition",
        f"{shorten_repr(value)}, expected {expectation}",
        reason=REFUSAL,
        fix=fix or f"give {expectation}",
        source=SOURCE,
    )
