"""Expressions as the checks meet them: where they stand, what they name, what type they give."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from trainyard.language.document import Document
from trainyard.language.evaluation import Unknown
from trainyard.language.expressions import (
    EXPERIMENT,
    GET,
    JOIN,
    ExpressionError,
    Reference,
    expressions,
    parse_get,
    split_path,
)
from trainyard.language.steps import Step
from trainyard.validate.location import Place
from trainyard.validate.properties import OUTPUT_TYPES, PropertyError, find

ANY = "any"


@dataclass(frozen=True, slots=True)
class Typed:
    """What an expression will be: ``type`` in botocore's words, ``values`` as far as known."""

    type: str
    values: tuple[Any, ...] = ()
    """A parameter's default and its other permitted values; a joined text. Empty: unknown."""

    outline: str = ""
    """A joined text that begins with constants, with x for what only the run knows."""


def everywhere(document: Document) -> Iterator[tuple[dict, Place, Step | None]]:
    """Every expression of the definition, with its place and the step that it stands in."""
    for key in ("PipelineExperimentConfig", "MlflowConfig"):
        for expression, at in expressions(document.document.get(key)):
            yield expression, Place(None, f"$.{key}").at(*at), None
    for step in document.steps:
        place = Place(step.name, step.path)
        fields = {k: v for k, v in step.document.items() if k not in ("Arguments", "Name", "Type")}
        for expression, at in expressions(fields | {"Arguments": step.own_arguments}):
            yield expression, place.at(*at), step


def typed(expression: dict, document: Document, steps: dict[str, Step]) -> Typed:
    """The type that ``expression`` will have; ANY where only the run can tell, or it is wrong."""
    if JOIN in expression:
        joined = document.value(expression)
        return _outline(joined) if isinstance(joined, Unknown) else Typed("string", (joined,))
    if GET not in expression:
        return Typed(ANY)
    try:
        reference = parse_get(expression[GET])
    except ExpressionError:  # said by the references' check
        return Typed(ANY)
    return _reference_type(reference, document, steps)


def _outline(joined: Unknown) -> Typed:
    """The type of a joined text that is known in part."""
    begins = bool(joined.parts) and isinstance(joined.parts[0], str)
    return Typed("string", outline=joined.filled("x") if begins else "")


def _reference_type(reference: Reference, document: Document, steps: dict[str, Step]) -> Typed:
    if reference.kind == "Parameters":
        return parameter_type(document.parameters.get(reference.name, {}))
    if reference.kind in ("Execution", EXPERIMENT):
        return Typed("string")
    if reference.kind == "Steps" and reference.name in steps:
        return _property_type(steps[reference.name], reference.path, steps)
    return Typed(ANY)


def parameter_type(entry: Any) -> Typed:
    """The type of a parameter from its entry in the definition, with the values it names."""
    default = entry.get("DefaultValue")
    others = entry.get("EnumValues")
    values = [] if default is None else [default]
    if isinstance(others, list):
        values += [value for value in others if value != default]
    return Typed(OUTPUT_TYPES.get(str(entry.get("Type")), ANY), tuple(values))


def _property_type(step: Step, path: str, steps: dict[str, Step]) -> Typed:
    try:
        shape = find(step, split_path(path), steps)
    except (PropertyError, ExpressionError):  # said by the references' check
        return Typed(ANY)
    if shape is None or shape.type in ("timestamp", "blob"):
        return Typed(ANY)
    return Typed({"long": "integer", "double": "float"}.get(shape.type, shape.type))
