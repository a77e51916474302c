"""Parse the expressions in definitions: ``Get``, ``Std:Join``, ``Std:JsonGet``; also parameters.

Expressions may be anywhere in a step's Arguments. ``trainyard.language.evaluation`` computes their
values.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

GET, JOIN, JSON_GET = "Get", "Std:Join", "Std:JsonGet"
EXECUTION_VARIABLES = (
    "StartDateTime",
    "CurrentDateTime",
    "PipelineName",
    "PipelineArn",
    "PipelineExecutionId",
    "PipelineExecutionArn",
    "TrainingJobName",
    "ProcessingJobName",
)
_TOKEN = re.compile(r"\.?([A-Za-z_][\w-]*)|\[(\d+)\]|\['([^']*)'\]|\[\"([^\"]*)\"\]")
LOOP_ITEM, LOOP_OUTPUT, EXPERIMENT = "ForEach", "IterationOutput", "PipelineExperimentConfig"
"""Kinds of references that only SDK 3.27's ForEachStep and experiment configuration create."""
Value = str | int | float | bool
Keys = tuple[str | int, ...]
"""Path of member names and list indices, from the outside in."""


class ExpressionError(Exception):
    """An expression is malformed, or has no value."""


@dataclass(frozen=True, slots=True)
class Reference:
    """The target of a ``Get``.

    ``kind`` is Parameters, Execution, Steps or PropertyFiles, or one of the constants LOOP_ITEM,
    LOOP_OUTPUT and EXPERIMENT. ``name`` is the parameter, variable or step; ``path`` the property
    or property file.
    """

    kind: str
    name: str
    path: str = ""


def is_expression(value: object) -> bool:
    """Return whether ``value`` is a ``Get``, ``Std:Join`` or ``Std:JsonGet``."""
    return (
        isinstance(value, dict) and len(value) == 1 and next(iter(value)) in (GET, JOIN, JSON_GET)
    )


def parse_get(text: object) -> Reference:
    """Parse the text of a ``Get``, such as ``Steps.Train.ModelArtifacts.S3ModelArtifacts``.

    Raises:
        ExpressionError: it does not have the form of a reference, or the execution variable does
            not exist.
    """
    kind, _, rest = text.partition(".") if isinstance(text, str) else ("", "", "")
    step, _, path = rest.partition(".")
    if kind == "Execution" and rest and rest not in EXECUTION_VARIABLES:
        raise ExpressionError(f"{GET} {text!r}: expected one of {list(EXECUTION_VARIABLES)}")
    if kind in ("Parameters", "Execution") and rest:
        return Reference(kind, rest)
    if kind == EXPERIMENT and rest in ("ExperimentName", "TrialName"):
        return Reference(kind, rest)
    if kind == LOOP_ITEM and rest and split_path(rest)[0] == "CurrentItem":
        return Reference(kind, "CurrentItem", rest)
    if kind not in ("Steps", LOOP_OUTPUT) or not step or not path:
        raise ExpressionError(f"{GET} {text!r}: expected Parameters.x, Execution.x or Steps.x.y")
    if kind == "Steps" and path.startswith("PropertyFiles."):
        return Reference("PropertyFiles", step, path.removeprefix("PropertyFiles."))
    split_path(path)
    return Reference(kind, step, path)


def iter_expressions(value: Any, keys: Keys = ()) -> Iterator[tuple[dict[str, Any], Keys]]:
    """Iterate over (expression, path) of all expressions in ``value``, including nested ones.

    ``keys`` is the path of ``value`` itself.
    """
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from iter_expressions(item, (*keys, index))
    elif isinstance(value, dict):
        if is_expression(value):
            yield value, keys
        for key, item in value.items():
            yield from iter_expressions(item, (*keys, key))


def iter_references(value: Any) -> Iterator[Reference]:
    """Iterate over all references in ``value``, at any depth.

    Raises:
        ExpressionError: an expression is malformed.
    """
    for expression, _ in iter_expressions(value):
        check_expression_form(expression)
        if GET in expression:
            yield parse_get(expression[GET])


def iter_known_references(value: Any) -> Iterator[Reference]:
    """Iterate over all references in ``value``, at any depth; skip malformed ones.

    This is for deployed definitions, which may be in a newer version of the language.
    """
    for expression, _ in iter_expressions(value):
        with suppress(ExpressionError):
            if GET in expression:
                yield parse_get(expression[GET])


def check_expression_form(value: dict) -> None:
    """Check that a Join or JsonGet has all its members.

    Raises:
        ExpressionError: a member is missing or malformed.
    """
    if JOIN in value:
        body = value[JOIN]
        if not isinstance(body, dict) or not isinstance(body.get("Values"), list):
            raise ExpressionError(f"{JOIN}: expected {{'On': ..., 'Values': [...]}}, got {body}")
    if JSON_GET in value:
        _check_json_get(value[JSON_GET])


def _check_json_get(body: Any) -> None:
    """Check that a JsonGet has a Path, and either a PropertyFile or an S3Uri."""
    members = body if isinstance(body, dict) else {}
    if not isinstance(members.get("Path"), str) or ("PropertyFile" in members) == (
        "S3Uri" in members
    ):
        raise ExpressionError(f"{JSON_GET}: expected Path and PropertyFile or S3Uri, got {body}")
    split_path(members["Path"])
    if "PropertyFile" in members:
        file = members["PropertyFile"]
        if not is_expression(file) or parse_get(file.get(GET)).kind != "PropertyFiles":
            raise ExpressionError(f"{JSON_GET}: {file} names no property file of a step")


def format_join_value(value: Any) -> str:
    """Return a value as the service writes it into the result of a ``Std:Join``.

    Raises:
        ExpressionError: the value is None, an object or a list.
    """
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, dict | list):
        raise ExpressionError(f"{JOIN}: expected a string, number or boolean, got {value!r}")
    # The service writes booleans as JSON does: true, and not True.
    return json.dumps(value)


def split_path(path: str) -> list[str | int]:
    """Split ``a.b[0].c['d e']`` into ``["a", "b", 0, "c", "d e"]``.

    Raises:
        ExpressionError: the path is empty or malformed.
    """
    tokens: list[str | int] = []
    position = 0
    while position < len(path):
        match = _TOKEN.match(path, position)
        if not match or (match[0].startswith(".") and position == 0):
            raise ExpressionError(f"path {path!r}: expected the form a.b[0].c or a['b']")
        name, index, single, double = match.groups()
        key = next((text for text in (name, single, double) if text is not None), None)
        tokens.append(int(index) if index is not None else str(key))
        position = match.end()
    if not tokens:
        raise ExpressionError("the path is empty: expected the form a.b[0].c or a['b']")
    return tokens


def look_up_path(document: Any, path: str, location: str) -> Any:
    """Return the value at ``path`` in ``document``; ``location`` names the document in messages.

    Raises:
        ExpressionError: there is no such value; the message names the missing part.
    """
    value = document
    for token in split_path(path):
        try:
            value = _find_child(value, token)
        except (KeyError, IndexError, TypeError):
            have = f"; its members are {sorted(value)}" if isinstance(value, dict) else ""
            raise ExpressionError(f"{location}: {path!r} has no {token!r}{have}") from None
    return value


def _find_child(value: Any, token: str | int) -> Any:
    """Return the member or item ``token`` of a value.

    A string as the key of a list, as in ``Outputs['train']``, means the item that has this name in
    a member such as OutputName, MetricName or ChannelName.

    Raises:
        KeyError: there is none.
        IndexError: there is none.
        TypeError: the value has no members or items.
    """
    if isinstance(value, dict):
        return value[str(token)]
    if isinstance(value, list) and isinstance(token, str):
        matches = (
            item for item in value for key in item if key.endswith("Name") and item[key] == token
        )
        match = next(matches, None)
        if match is None:
            raise KeyError(token)
        return match
    if isinstance(value, list) and isinstance(token, int):
        return value[token]
    raise TypeError(token)


# Pipeline parameters: their types, and their values in an execution.

TYPES = {"String": (str,), "Integer": (int,), "Float": (int, float), "Boolean": (bool,)}
"""Mapping of a parameter type to the Python types of its values. ``True`` is an int in Python, but
not in JSON, so booleans are checked separately."""
DEFAULT_TYPE = "String"
"""Type of a parameter that declares none, by AWS's JSON schema of definitions."""


def _parse_float(text: str) -> float:
    value = float(text)
    # Python parses "nan" and "inf", which JSON cannot express.
    if not math.isfinite(value):
        raise ValueError
    return value


_READ: Mapping[str, Callable[[str], Value]] = {
    "String": str,
    "Integer": int,
    "Float": _parse_float,
    "Boolean": lambda text: {"true": True, "false": False}[text.lower()],
}


def has_parameter_type(value: Any, kind: str) -> bool:
    """Return whether ``value`` in a definition is valid for a parameter of type ``kind``."""
    return isinstance(value, TYPES[kind]) and (kind == "Boolean" or not isinstance(value, bool))


def parse_parameter_value(text: str, kind: str) -> Value:
    """Parse a parameter's value that was given as text.

    Raises:
        ValueError: it is not of type ``kind``. NaN and infinity are not Floats, because JSON cannot
            express them.
    """
    try:
        return _READ[kind](text)
    except (KeyError, ValueError):
        raise ValueError(f"{text!r} is not of type {kind}") from None


def format_parameter_value(value: Value) -> str:
    """Return a parameter's value as text, as ListPipelineParametersForExecution returns it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def index_parameters(document: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the parameters of a valid definition as a mapping of name to entry."""
    return {entry["Name"]: entry for entry in document.get("Parameters") or ()}


def resolve_parameters(document: Mapping[str, Any], texts: Mapping[str, str]) -> dict[str, Any]:
    """Return a mapping of each parameter's name to its value in an execution.

    A value is parsed from ``texts`` (mapping of a name to a text) if the name is there; otherwise
    it is the default value, or None if the parameter has none.

    Raises:
        ValueError: a given value is not of the parameter's type.
    """
    return {
        name: parse_parameter_value(texts[name], entry.get("Type", DEFAULT_TYPE))
        if name in texts
        else entry.get("DefaultValue")
        for name, entry in index_parameters(document).items()
    }
