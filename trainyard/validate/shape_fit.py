"""Check a value at every depth against a shape: members, types, enums, patterns, limits."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from trainyard.language.definition_document import Document
from trainyard.language.expressions import GET, JOIN, JSON_GET, is_expression
from trainyard.language.steps import Step
from trainyard.validate.expression_checks import ANY, ExpressionType, infer_type
from trainyard.validate.location import (
    REFUSAL,
    UNREADABLE,
    Finding,
    Place,
    brief,
    suggestion,
    unknown_argument,
)
from trainyard.validate.step_properties import Shape, pattern

PYTHON = {
    "string": (str,),
    "integer": (int,),
    "long": (int,),
    "float": (int, float),
    "double": (int, float),
    "boolean": (bool,),
    "timestamp": (str, int, float),
    "blob": (str,),
    "list": (list,),
    "structure": (dict,),
    "map": (dict,),
}
JSON = {"structure": "object", "map": "object", "list": "list", "long": "integer"}
"""botocore's types in JSON's words, where they differ."""
EXPRESSIONS = {
    "string": {"string"},
    "integer": {"integer"},
    "long": {"integer"},
    "float": {"integer", "float"},
    "double": {"integer", "float"},
    "timestamp": {"string", "integer", "float"},
}
"""Type of the field → types of an expression that it takes; else only its own."""
REFUSED_WHY = "SageMaker refuses the request when the step starts, after the steps before it ran"


@dataclass(frozen=True, slots=True)
class Fit:
    """The check of one definition's values; ``steps`` by name resolve references."""

    document: Document
    steps: dict[str, Step]

    def check(self, value: Any, shape: Shape, place: Place) -> Iterator[Finding]:
        """Check ``value`` against ``shape``."""
        if shape.type == "any" or (value is None and shape.body.get("nullable")):
            return
        if is_expression(value):
            yield from self._expression(value, shape, place)
        elif not _is_a(value, shape.type):
            type_name = JSON.get(shape.type, shape.type)
            yield place.error(
                "type",
                f"{brief(value)} is not of type {type_name}",
                reason=REFUSED_WHY,
                fix=_convert(value, type_name),
                source=shape.source,
                answer=_other_form(type_name),
            )
        else:
            checks: dict[str, Callable[[Any, Shape, Place], Iterator[Finding]]]
            checks = {"structure": self._structure, "list": self._list, "map": self._map}
            yield from checks.get(shape.type, scalar)(value, shape, place)

    def _structure(self, value: dict, shape: Shape, place: Place) -> Iterator[Finding]:
        for name in shape.body.get("required", ()):
            if value.get(name) is None:
                yield place.error(
                    "missing-member",
                    f"{name} is missing",
                    reason=REFUSED_WHY,
                    fix=f"add {name}",
                    source=f"{shape.source}.{name}",
                )
        if shape.body.get("union") and len(value) != 1:
            yield place.error(
                "one-of",
                f"exactly one member is wanted, there are {len(value)}: {brief(list(value))}",
                reason=REFUSED_WHY,
                fix=f"keep one of {', '.join(list(shape.members)[:8])}",
                source=shape.source,
            )
        for name, item in value.items():
            if name not in shape.members:
                free = [member for member in shape.members if member not in value]
                yield place.join(name).error(
                    "unknown-member",
                    f"{shape.name} has no member {name!r}",
                    reason="the service refuses the definition, or the request when the step "
                    "starts",
                    fix=suggestion(name, free),
                    source=shape.source,
                    answer=unknown_argument(name),
                )
            # A required member that is null was reported above, as missing.
            elif item is not None or name not in shape.body.get("required", ()):
                yield from self.check(item, shape.member(name), place.join(name))

    def _list(self, value: list, shape: Shape, place: Place) -> Iterator[Finding]:
        yield from _length(value, shape, place, "items")
        for index, item in enumerate(value):
            yield from self.check(item, shape.item(), place.join(index))

    def _map(self, value: dict, shape: Shape, place: Place) -> Iterator[Finding]:
        yield from _length(value, shape, place, "entries")
        for name, item in value.items():
            yield from scalar(name, shape.key(), place.join(name))
            yield from self.check(item, shape.value(), place.join(name))

    def _expression(self, value: dict, shape: Shape, place: Place) -> Iterator[Finding]:
        value_type = infer_type(value, self.document, self.steps)
        if value_type.type == ANY:
            return
        if value_type.type not in EXPRESSIONS.get(shape.type, {shape.type}):
            yield _wrong_expression(value, value_type, shape, place)
            return
        # An S3 URI begins with constants; other patterns need text that only the run knows.
        if value_type.outline and "s3" in str(shape.body.get("pattern"))[:12]:
            yield from _pattern(value_type.outline, shape, place)
        for candidate in value_type.values:
            if _is_a(candidate, shape.type):
                yield from _of_expression(value, candidate, scalar(candidate, shape, place))


def scalar(value: Any, shape: Shape, place: Place) -> Iterator[Finding]:
    """Check a string's enum, pattern and length, or a number's range."""
    enum = shape.body.get("enum")
    if enum and value not in enum:
        yield place.error(
            "enum",
            f"{brief(value)} is not one of the {len(enum)} values of {shape.name}",
            reason=REFUSED_WHY,
            fix=suggestion(value, enum),
            source=shape.source,
        )
    elif isinstance(value, str):
        unlike = list(_pattern(value, shape, place))
        # One finding is enough: a text of another form may well have another length, too.
        yield from unlike or _length(value, shape, place, "characters")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        least, most = shape.body.get("min", float("-inf")), shape.body.get("max", float("inf"))
        if not least <= value <= most:
            bound = f"at least {least}" if value < least else f"at most {most}"
            yield place.error(
                "range",
                f"{value} is out of range: {bound}",
                reason=REFUSED_WHY,
                fix=f"use a number that is {bound}",
                source=shape.source,
            )


def _is_a(value: Any, type_: str) -> bool:
    # To Python True is an int, but JSON's true does not fit where a number is expected.
    fits = isinstance(value, PYTHON.get(type_, (object,)))
    return fits and (type_ == "boolean" or not isinstance(value, bool))


def _pattern(value: str, shape: Shape, place: Place) -> Iterator[Finding]:
    text = shape.body.get("pattern")
    regex = pattern(text) if text else None
    if regex and not regex.fullmatch(value):
        yield place.error(
            "pattern",
            f"{brief(value)} does not match {text}",
            reason=REFUSED_WHY,
            fix="write it in the form that the pattern demands",
            source=shape.source,
        )


CITATIONS = {"ProcessingInputs": "#2554, "}
"""Shape → an issue of people who met its limit."""


def _length(value: str | list | dict, shape: Shape, place: Place, unit: str) -> Iterator[Finding]:
    least, most = shape.body.get("min", 0), shape.body.get("max", float("inf"))
    if not least <= len(value) <= most:
        limits = f"at least {least}" if len(value) < least else f"at most {most}"
        yield place.error(
            "length",
            f"{len(value)} {unit}, {limits} are allowed",
            reason=REFUSED_WHY,
            fix=f"shorten it to {most}" if len(value) > most else f"give at least {least}",
            source=CITATIONS.get(shape.name, "") + shape.source,
        )


def _other_form(type_name: str) -> str:
    """Return CreatePipeline's message on a value that is no list or object (#2345, #3908)."""
    form = {"list": "Array", "object": "Object"}.get(type_name)
    return f"{UNREADABLE} Expecting start of Json {form}." if form else ""


def _convert(value: Any, type_name: str) -> str:
    if isinstance(value, dict) and len(value) == 1:
        return suggestion(next(iter(value)), [GET, JOIN, JSON_GET]) + " (an expression has one key)"
    if type_name == "string" and isinstance(value, int | float | bool):
        return f'write it as text: "{str(value).lower() if isinstance(value, bool) else value}"'
    return f"give a value of type {type_name}"


def _wrong_expression(
    value: dict, value_type: ExpressionType, shape: Shape, place: Place
) -> Finding:
    type_name = JSON.get(shape.type, shape.type)
    answer = _other_form(type_name)
    if GET in value and not answer:
        target = f"to argument of type [{type_name.capitalize()}]"
        answer = f"Cannot assign property reference [{value[GET]}] {target}."
    text = value.get(GET, JOIN)
    if type_name == "string" and value_type.type in ("integer", "float", "boolean"):
        return place.error(
            "number-in-string",
            f"{text} is of type {value_type.type}, and a string is wanted here",
            reason=REFUSAL,
            fix='write .to_string(), in JSON {"Std:Join": {"On": "", "Values": [{"Get": …}]}}',
            source=f"#4867 #2631, {shape.source}",
            answer=answer,
        )
    source = (
        f"#2345, {shape.source}" if type_name in ("list", "object") else f"#4867, {shape.source}"
    )
    return place.error(
        "expression-type",
        f"{text} is of type {JSON.get(value_type.type, value_type.type)}, and {type_name} is "
        "wanted here",
        reason=REFUSAL,
        fix=f"put the expression inside a {type_name}"
        if type_name in ("list", "object")
        else f"refer to something of type {type_name}, or change the parameter's Type",
        source=source,
        answer=answer,
    )


def _of_expression(value: dict, candidate: Any, findings: Iterator[Finding]) -> Iterator[Finding]:
    """Iterate over the same findings, reported for the value that the expression has by default."""
    for finding in findings:
        text = value.get(GET, JOIN)
        yield Finding(
            rule=finding.rule,
            severity="error",
            step=finding.step,
            path=finding.path,
            problem=f"{text} is {brief(candidate)}: {finding.problem}",
            why=finding.why,
            fix=finding.fix,
            source=finding.source,
        )
