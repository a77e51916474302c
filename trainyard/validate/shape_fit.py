"""Check a value at every depth against a shape: members, types, enums, patterns, limits."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from trainyard.language.definition_document import Document
from trainyard.language.expressions import GET, JOIN, JSON_GET, is_expression
from trainyard.language.steps import Step
from trainyard.validate.botocore_shapes import Shape, pattern
from trainyard.validate.expression_checks import ANY, Typed, typed
from trainyard.validate.location import (
    REFUSED,
    UNREADABLE,
    Finding,
    Place,
    brief,
    suggestion,
    unknown_argument,
)

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
            yield _wrong_type(value, shape, place)
        else:
            yield from self._checks(shape.type)(value, shape, place)

    def _checks(self, type_: str) -> Callable[[Any, Shape, Place], Iterator[Finding]]:
        checks: dict[str, Callable[[Any, Shape, Place], Iterator[Finding]]]
        checks = {"structure": self._structure, "list": self._list, "map": self._map}
        return checks.get(type_, scalar)

    def _structure(self, value: dict, shape: Shape, place: Place) -> Iterator[Finding]:
        for name in shape.body.get("required", ()):
            if value.get(name) is None:
                yield _missing(name, shape, place)
        if shape.body.get("union") and len(value) != 1:
            yield _not_one(value, shape, place)
        for name, item in value.items():
            if name not in shape.members:
                yield _unknown(name, value, shape, place)
            elif item is not None or name not in shape.body.get("required", ()):
                yield from self.check(item, shape.member(name), place.at(name))

    def _list(self, value: list, shape: Shape, place: Place) -> Iterator[Finding]:
        yield from _length(value, shape, place, "items")
        for index, item in enumerate(value):
            yield from self.check(item, shape.item(), place.at(index))

    def _map(self, value: dict, shape: Shape, place: Place) -> Iterator[Finding]:
        yield from _length(value, shape, place, "entries")
        for name, item in value.items():
            yield from scalar(name, shape.key(), place.at(name))
            yield from self.check(item, shape.value(), place.at(name))

    def _expression(self, value: dict, shape: Shape, place: Place) -> Iterator[Finding]:
        found = typed(value, self.document, self.steps)
        if found.type == ANY:
            return
        if found.type not in EXPRESSIONS.get(shape.type, {shape.type}):
            yield _wrong_expression(value, found, shape, place)
            return
        if found.outline and "s3" in str(shape.body.get("pattern"))[:12]:
            yield from _pattern(found.outline, shape, place)  # an S3 URI begins with constants
        for known in found.values:
            if _is_a(known, shape.type):
                yield from _of_expression(value, known, scalar(known, shape, place))


def scalar(value: Any, shape: Shape, place: Place) -> Iterator[Finding]:
    """Check a string's enum, pattern and length, or a number's range."""
    enum = shape.body.get("enum")
    if enum and value not in enum:
        yield place.error(
            "enum",
            f"{brief(value)} is not one of the {len(enum)} values of {shape.name}",
            why=REFUSED_WHY,
            fix=suggestion(value, enum),
            source=shape.source,
        )
    elif isinstance(value, str):
        unlike = list(_pattern(value, shape, place))
        yield from unlike or _length(value, shape, place, "characters")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _range(value, shape, place)


def _is_a(value: Any, type_: str) -> bool:
    fits = isinstance(value, PYTHON.get(type_, (object,)))
    return fits and (type_ == "boolean" or not isinstance(value, bool))


def _pattern(value: str, shape: Shape, place: Place) -> Iterator[Finding]:
    text = shape.body.get("pattern")
    compiled = pattern(text) if text else None
    if compiled and not compiled.fullmatch(value):
        yield place.error(
            "pattern",
            f"{brief(value)} does not match {text}",
            why=REFUSED_WHY,
            fix="write it in the form that the pattern demands",
            source=shape.source,
        )


CITED = {"ProcessingInputs": "#2554, "}
"""Shape → an issue of people who met its limit."""


def _length(value: str | list | dict, shape: Shape, place: Place, what: str) -> Iterator[Finding]:
    least, most = shape.body.get("min", 0), shape.body.get("max", float("inf"))
    if not least <= len(value) <= most:
        limits = f"at least {least}" if len(value) < least else f"at most {most}"
        yield place.error(
            "length",
            f"{len(value)} {what}, {limits} are allowed",
            why=REFUSED_WHY,
            fix=f"shorten it to {most}" if len(value) > most else f"give at least {least}",
            source=CITED.get(shape.name, "") + shape.source,
        )


def _range(value: float, shape: Shape, place: Place) -> Iterator[Finding]:
    least, most = shape.body.get("min", float("-inf")), shape.body.get("max", float("inf"))
    if not least <= value <= most:
        bound = f"at least {least}" if value < least else f"at most {most}"
        yield place.error(
            "range",
            f"{value} is out of range: {bound}",
            why=REFUSED_WHY,
            fix=f"use a number that is {bound}",
            source=shape.source,
        )


def _missing(name: str, shape: Shape, place: Place) -> Finding:
    return place.error(
        "missing-member",
        f"{name} is missing",
        why=REFUSED_WHY,
        fix=f"add {name}",
        source=f"{shape.source}.{name}",
    )


def _unknown(name: str, value: dict, shape: Shape, place: Place) -> Finding:
    free = [member for member in shape.members if member not in value]
    return place.at(name).error(
        "unknown-member",
        f"{shape.name} has no member {name!r}",
        why="the service refuses the definition, or the request when the step starts",
        fix=suggestion(name, free),
        source=shape.source,
        answer=unknown_argument(name),
    )


def _not_one(value: dict, shape: Shape, place: Place) -> Finding:
    return place.error(
        "one-of",
        f"exactly one member is wanted, there are {len(value)}: {brief(list(value))}",
        why=REFUSED_WHY,
        fix=f"keep one of {', '.join(list(shape.members)[:8])}",
        source=shape.source,
    )


def _wrong_type(value: Any, shape: Shape, place: Place) -> Finding:
    wanted = JSON.get(shape.type, shape.type)
    return place.error(
        "type",
        f"{brief(value)} is not of type {wanted}",
        why=REFUSED_WHY,
        fix=_convert(value, wanted),
        source=shape.source,
        answer=_other_form(wanted),
    )


def _other_form(wanted: str) -> str:
    """Return CreatePipeline's message on a value that is no list or object (#2345, #3908)."""
    form = {"list": "Array", "object": "Object"}.get(wanted)
    return f"{UNREADABLE} Expecting start of Json {form}." if form else ""


def _convert(value: Any, wanted: str) -> str:
    if isinstance(value, dict) and len(value) == 1:
        return suggestion(next(iter(value)), [GET, JOIN, JSON_GET]) + " (an expression has one key)"
    if wanted == "string" and isinstance(value, int | float | bool):
        return f'write it as text: "{str(value).lower() if isinstance(value, bool) else value}"'
    return f"give a value of type {wanted}"


def _wrong_expression(value: dict, found: Typed, shape: Shape, place: Place) -> Finding:
    wanted = JSON.get(shape.type, shape.type)
    answer = _other_form(wanted)
    if GET in value and not answer:
        target = f"to argument of type [{wanted.capitalize()}]"
        answer = f"Cannot assign property reference [{value[GET]}] {target}."
    text = value.get(GET, JOIN)
    if wanted == "string" and found.type in ("integer", "float", "boolean"):
        return place.error(
            "number-in-string",
            f"{text} is of type {found.type}, and a string is wanted here",
            why=REFUSED,
            fix='write .to_string(), in JSON {"Std:Join": {"On": "", "Values": [{"Get": …}]}}',
            source=f"#4867 #2631, {shape.source}",
            answer=answer,
        )
    source = f"#2345, {shape.source}" if wanted in ("list", "object") else f"#4867, {shape.source}"
    return place.error(
        "expression-type",
        f"{text} is of type {JSON.get(found.type, found.type)}, and {wanted} is wanted here",
        why=REFUSED,
        fix=f"put the expression inside a {wanted}"
        if wanted in ("list", "object")
        else f"refer to something of type {wanted}, or change the parameter's Type",
        source=source,
        answer=answer,
    )


def _of_expression(value: dict, known: Any, findings: Iterator[Finding]) -> Iterator[Finding]:
    """Iterate over the same findings, reported for the value that the expression has by default."""
    for found in findings:
        text = value.get(GET, JOIN)
        yield Finding(
            rule=found.rule,
            severity="error",
            step=found.step,
            path=found.path,
            problem=f"{text} is {brief(known)}: {found.problem}",
            why=found.why,
            fix=found.fix,
            source=found.source,
        )
