"""Properties that other steps can refer to (``Steps.X.…``), in the shape of Describe responses."""

import functools
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import botocore.loaders

from trainyard.language.definition_document import Step
from trainyard.language.expressions import ExpressionError, split_path
from trainyard.language.step_types import STEP_TYPES, get_step_type
from trainyard.language.step_types.step_type import ANYTHING, make_structure
from trainyard.validate.location import suggest_name

# Shapes that values are checked against: botocore's service models, and our own in the same form.
#
# The model is read from botocore's JSON file, without a client: 0.05 s, once per process.


@functools.cache
def load_service_shapes(service: str) -> Mapping[str, Mapping[str, Any]]:
    """Return a mapping of shape name to shape, from botocore's model of ``service``."""
    return botocore.loaders.Loader().load_service_model(service, "service-2")["shapes"]


@dataclass(frozen=True, slots=True)
class Shape:
    """A shape of botocore's or of our own; findings cite ``origin`` and ``name`` as its source."""

    origin: str
    """``botocore``, or the source of one of our own shapes."""

    name: str
    """Name, such as ``CreateTrainingJobRequest.StoppingCondition``."""

    body: Mapping[str, Any]
    """``type`` and the entries for that type: members, required, member, key, value, enum, …"""

    service: str = "sagemaker"

    @property
    def type(self) -> str:
        """Botocore's type: structure, list, map, string, integer, …; ``any`` in our own shapes."""
        return self.body["type"]

    @property
    def source(self) -> str:
        """Source that a finding cites."""
        return f"{self.origin}: {self.name}"

    @property
    def members(self) -> Mapping[str, Any]:
        """Mapping of the names of a structure's members to their shapes."""
        return self.body.get("members", {})

    def find_member(self, key: str) -> "Shape":
        """Return the shape of a structure's member."""
        return self._resolve_shape(self.members[key], key)

    def find_item(self) -> "Shape":
        """Return the shape of a list's items."""
        return self._resolve_shape(self.body["member"], "")

    def find_key(self) -> "Shape":
        """Return the shape of a map's keys."""
        return self._resolve_shape(self.body["key"], "key")

    def find_value(self) -> "Shape":
        """Return the shape of a map's values."""
        return self._resolve_shape(self.body["value"], "value")

    def _resolve_shape(self, target: Mapping[str, Any], key: str) -> "Shape":
        """Return the shape that ``target`` refers to, or ``target`` itself as a shape."""
        if "shape" in target:
            owner = self.name if self.origin != "botocore" else self.name.split(".")[0]
            shape_name = f"{owner}.{key}" if key else target["shape"]
            body = _drop_members(load_service_shapes(self.service)[target["shape"]], target)
            if body["type"] in ("structure", "list", "map"):
                return Shape("botocore", target["shape"], body, self.service)
            return Shape("botocore", shape_name, body, self.service)
        return Shape(self.origin, f"{self.name}.{key}" if key else self.name, target, self.service)


def _drop_members(body: Mapping[str, Any], target: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a structure without the members that our own shape ``target`` leaves out."""
    gone = target.get("without")
    if not gone:
        return body
    members = {name: member for name, member in body["members"].items() if name not in gone}
    required_names = [name for name in body.get("required", ()) if name not in gone]
    return {**body, "members": members, "required": required_names}


def find_service_shape(name: str, service: str = "sagemaker") -> Shape:
    """Return the shape with that name in botocore's model.

    If an older botocore does not have the shape, return one that accepts anything
    (``step_request_checks`` warns about that).
    """
    return Shape("botocore", name, load_service_shapes(service).get(name, ANYTHING), service)


@functools.cache
def compile_pattern(text: str) -> re.Pattern[str] | None:
    r"""Compile a shape's pattern for ``fullmatch``; return None if Python cannot express it."""
    # Java writes \p{L} for a letter; Python has no such class, so the wider \w replaces it.
    for java, python in ((r"\p{L}", r"\w"), (r"\p{Z}", r"\s"), (r"\p{N}", r"\d")):
        text = text.replace(java, python)
    text = re.sub(r"\)\$\{(\d+),(\d+)\}$", r")", text.replace(r"\p{Alnum}", "A-Za-z0-9"))
    if r"\p{" in text:
        return None
    try:
        return re.compile(text.removeprefix("^").removesuffix("$"))
    except re.error:
        return None


OUTPUT_TYPES = {"String": "string", "Integer": "integer", "Float": "float", "Boolean": "boolean"}
"""Mapping of the type of a pipeline parameter, or of a Lambda or callback output, to botocore's
type."""


class PropertyError(Exception):
    """A step has no such property; ``fix`` says which properties it has."""

    def __init__(self, problem: str, fix: str) -> None:
        super().__init__(problem)
        self.fix = fix


def find_property_shape(
    step: Step, tokens: list[str | int], steps: dict[str, Step]
) -> Shape | None:
    """Return the shape of a property; None if it may be anything.

    Args:
        step: step that has the property.
        tokens: path of the property, without the name of the step.
        steps: all steps by name.

    Raises:
        PropertyError: the step's type has no such property, or this step does not declare it.
    """
    if step.type == "ForEach" and tokens[0] == "IterationOutputs":
        return _resolve_iteration(step, tokens[1:], steps)
    if step.type == "ForEach" and tokens[0] == "Selected":
        return _resolve_selector(step, tokens[1:], steps)
    shape = _find_root_shape(step)
    if shape is None:
        return None
    # A Describe response repeats the step's own Arguments. So the Arguments show whether an output
    # with that name, a list item with that index, or a map key exists.
    declaration: Any = step.arguments
    open_members = get_step_type(step.type).open_members
    for depth, token in enumerate(tokens):
        if shape.type == "any" or tokens[0] in open_members:
            return None
        shape = _find_child(shape, token, tokens[:depth], step)
        declaration = _get_declaration(declaration, token, step)
    return shape


def find_unbracketed_name(step: Step, path: str, steps: dict[str, Step]) -> str:
    """Return the first name in ``path`` that follows a dot, but needs brackets.

    Brackets are needed for an item of a list or a map. Return "" if there is no such name.
    """
    for dot in re.finditer(r"\.(\w[\w-]*)", path):
        # A dot inside quotes does not separate names; a name that does not exist is reported
        # elsewhere.
        with suppress(ExpressionError, PropertyError):
            before = split_path(path[: dot.start()])
            holder = find_property_shape(step, before, steps)
            if holder and (holder.type in ("list", "map") or before[-1] == "OutputParameters"):
                return dot[1]
    return ""


def _resolve_iteration(step: Step, tokens: list[str | int], steps: dict[str, Step]) -> Shape | None:
    """Return the shape at ``IterationOutputs[0].<body step>.<property>``.

    Source: SDK 3.27, ForEachStep. Raises PropertyError.
    """
    if len(tokens) < 3 or not isinstance(tokens[0], int):
        problem = f"IterationOutputs of step {step.name!r} without an index, step and property"
        raise PropertyError(problem, "write IterationOutputs[0].<body step>.<property>")
    body = steps.get(str(tokens[1]))
    if body is None or body.loop != step.name:
        inside = [other.name for other in steps.values() if other.loop == step.name]
        problem = f"step {step.name!r} has no body step {tokens[1]!r}"
        raise PropertyError(problem, suggest_name(tokens[1], inside))
    return find_property_shape(body, tokens[2:], steps)


def _resolve_selector(step: Step, tokens: list[str | int], steps: dict[str, Step]) -> Shape | None:
    """Return the shape at ``Selected.<property>``, of the body step that the selector compares."""
    selector = step.arguments.get("Selector")
    field = selector.get("Field") if isinstance(selector, dict) else None
    text = str(field.get("Get")) if isinstance(field, dict) else ""
    body = steps.get(text.split(".")[1]) if text.startswith("IterationOutput.") else None
    if body is None:
        raise PropertyError(f"step {step.name!r} has no selector", "add Selector, or an index")
    return find_property_shape(body, tokens, steps) if tokens else None


def _find_root_shape(step: Step) -> Shape | None:
    """Return the structure of all properties of a step; None if its type is not known.

    Raises PropertyError for a type of step without properties.
    """
    kind = STEP_TYPES.get(step.type)
    if kind is None:
        return None
    if kind.declares_outputs:
        return Shape("SDK 3.27", f"{step.type}Step", _build_output_parameters(step))
    _, name = kind.find_shape_names(step.arguments)
    if name is None and not kind.properties:
        raise PropertyError(
            f"a {step.type} step has no properties", "refer to a step that creates something"
        )
    if name is None:
        return Shape("SDK 3.27", f"{step.type}Step", make_structure(**kind.properties))
    shapes = [
        find_service_shape(shape_name, kind.service)
        for shape_name in (name, kind.listing)
        if shape_name
    ]
    # The installed botocore is older than the shape: the properties may be anything.
    if shapes[0].type == "any":
        return shapes[0]
    members = {key: member for shape in shapes for key, member in shape.members.items()}
    body = {**shapes[0].body, "members": {**members, **kind.properties}}
    return Shape("botocore", name, body, kind.service)


def _build_output_parameters(step: Step) -> dict[str, Any]:
    """Return the structure of ``OutputParameters['x']`` of a Lambda or callback step."""
    outputs = step.document.get("OutputParameters")
    members = {
        output["OutputName"]: {"type": OUTPUT_TYPES.get(str(output.get("OutputType")), "any")}
        for output in (outputs if isinstance(outputs, list) else [])
        if isinstance(output, dict) and isinstance(output.get("OutputName"), str)
    }
    return make_structure(OutputParameters=make_structure(**members))


def _find_child(shape: Shape, token: str | int, before: list, step: Step) -> Shape:
    """Return the shape of the child ``token``. Raises PropertyError if there is none."""
    parent = ".".join(map(str, [step.name, *before]))
    if shape.type == "structure" and isinstance(token, str):
        if token in shape.members:
            return shape.find_member(token)
        problem = f"{parent} has no property {token!r}"
        raise PropertyError(problem, suggest_name(token, list(shape.members)))
    if shape.type == "map" and isinstance(token, str):
        return shape.find_value()
    max_items = shape.body.get("max")
    if (
        shape.type == "list"
        and isinstance(token, int)
        and max_items is not None
        and token >= max_items
    ):
        problem = f"{parent} has at most {max_items} items, there is no [{token}]"
        raise PropertyError(problem, f"use an index below {max_items}")
    if shape.type == "list":
        return shape.find_item()
    problem = f"{parent} is of type {shape.type}, which has no {token!r}"
    raise PropertyError(problem, f"refer to {parent} itself")


def _get_declaration(declaration: Any, token: str | int, step: Step) -> Any:
    """Return the child ``token`` of a part of the step's Arguments; None if there is none.

    Raises PropertyError if a list in the Arguments has no such item.
    """
    if isinstance(declaration, list):
        return _find_list_item(declaration, token, step)
    if not isinstance(declaration, dict):
        return None
    return declaration.get(str(token))


def _find_list_item(declaration: list, token: str | int, step: Step) -> Any:
    """Return an item of a list by its index or by its name (a member that ends with ``Name``)."""
    if isinstance(token, int):
        if token >= len(declaration):
            problem = (
                f"step {step.name!r} declares {len(declaration)} of these, there is no [{token}]"
            )
            raise PropertyError(problem, f"use an index below {len(declaration)}")
        return declaration[token]
    values_by_name: dict[Any, Any] = {
        value: item
        for item in declaration
        if isinstance(item, dict)
        for key, value in item.items()
        if key.endswith("Name") and isinstance(value, str)
    }
    if token not in values_by_name and all(isinstance(name, str) for name in values_by_name):
        problem = f"step {step.name!r} declares no {token!r} there"
        raise PropertyError(problem, suggest_name(token, list(values_by_name)))
    return values_by_name.get(token)
