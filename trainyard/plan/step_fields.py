"""A step of a definition as flat fields, each with a name and a text that a person can read.

Items of lists are identified by a naming field, not by position; JSON inside a string is opened;
arguments of a container become flags; references read ``Shard.train``, not as JSON.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainyard.language.evaluation import Unknown
from trainyard.language.expressions import (
    GET,
    JOIN,
    ExpressionError,
    is_expression,
    parse_get,
)
from trainyard.language.step_types import NESTED_KEYS
from trainyard.language.steps import steps_of
from trainyard.secrets import hidden

NAMING = ("ChannelName", "InputName", "PropertyFileName", "OutputName", "MetricName", "Name", "Key")
"""Fields that name an item of a list; the first that it has counts."""

CODE = re.compile(r"s3://(?P<bucket>[^/]+)/(?P<key>\S+/code/(?P<hash>[0-9a-f]{32}))/")
"""URI of a folder of code that is named by its content: ``s3://bucket/…/code/<hash>/``."""

_JSON_STRING = re.compile(r"\s*[{\[]")
_OUTPUT = re.compile(r"ProcessingOutputConfig\.Outputs\['([^']+)'\]\.S3Output\.S3Uri")


@dataclass(frozen=True, slots=True)
class Field:
    """A value of a step."""

    raw: Any
    """Value as in the definition; it is compared."""

    text: str
    """Value as text for people."""


HIDDEN = "(hidden)"
_NAME = re.compile(r"[^.\[\]']+")

Fields = dict[str, Field]
"""Path inside the step, such as ``HyperParameters.learning_rate`` → the field."""


def fields(step: Mapping[str, Any]) -> Fields:
    """Return all fields of a step without its name and its nested steps."""
    outside = {key: value for key, value in step.items() if key not in ("Name", "Arguments")}
    arguments = dict(step.get("Arguments") or {})
    for branch in NESTED_KEYS:
        if branch in arguments:
            arguments[branch] = [inner["Name"] for inner in arguments[branch] or ()]
    return flat(outside | arguments)


def flat(values: Mapping[str, Any]) -> Fields:
    """Return the fields of any part of a step, such as its cache key."""
    leaves = (leaf for key, value in values.items() for leaf in _inside(key, value))
    return {path: Field(value, format_value(path, value)) for path, value in leaves}


def format_value(path: str, value: Any) -> str:
    """Return ``value`` as text; what looks like a secret stays hidden, as plans go into logs."""
    names = _NAME.findall(path)
    is_pair = len(names) > 1 and names[-1] in ("Value", "DefaultValue")
    return HIDDEN if hidden(names[-2 if is_pair else -1], value) else text(value)


def top(document: Mapping[str, Any]) -> Fields:
    """Return the fields of the definition itself: all but its parameters and steps."""
    return flat({k: v for k, v in document.items() if k not in ("Parameters", "Steps")})


def steps(document: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return every step by its name, in the definition's order, nested ones after their holder."""
    return {step.name: dict(step.document) for step in steps_of(document["Steps"])}


def _inside(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Iterate over (path, leaf) of everything in ``value``."""
    if isinstance(value, dict) and value and not is_expression(value):
        for key, item in value.items():
            yield from _inside(f"{path}.{key}", item)
    elif isinstance(value, list) and value:
        yield from _list(path, value)
    elif isinstance(value, str) and (content := _parse_json(value)) is not None:
        yield from _inside(path, content)
    else:
        yield path, value


def _parse_json(value: str) -> Any:
    """Return the JSON in a string: a non-empty object or list; None for any other string."""
    if not _JSON_STRING.match(value):
        return None
    try:
        return json.loads(value) or None
    except ValueError:
        return None


def _list(path: str, items: list) -> Iterator[tuple[str, Any]]:
    if any(isinstance(item, str) and item.startswith("--") for item in items):
        yield from _flags(path, items)
    elif all(isinstance(item, dict) and not is_expression(item) for item in items):
        for name, item in _name_items(items):
            yield from _inside(f"{path}[{name}]", item)
    else:
        yield path, items


def _name_items(items: list[dict]) -> Iterator[tuple[str, Any]]:
    """Iterate over the items by their names, if all have different ones; else by position."""
    names = [name for item in items if (name := _name(item)) is not None]
    unique = len(set(names)) == len(items)
    for position, item in enumerate(items):
        yield (names[position], _nameless(item)) if unique else (str(position), item)


def _name(item: dict) -> str | None:
    if "ExceptionType" in item:  # a retry policy is named by the failures that it retries
        return ", ".join(kind.rpartition(".")[2] for kind in item["ExceptionType"])
    name = next((item[key] for key in NAMING if key in item), None)
    return name if isinstance(name, str) else None


def _nameless(item: dict) -> Any:
    """Return an item without its name; a tag or a metric definition is then one value.

    The rest of a channel is a structure, and keeps its name: with a second member beside it, it
    would have one, too.
    """
    name = next(key for key in ("ExceptionType", *NAMING) if key in item)
    rest = {key: value for key, value in item.items() if key != name}
    remainder = next(iter(rest.values())) if len(rest) == 1 else rest
    return rest if isinstance(remainder, dict) and not is_expression(remainder) else remainder


def _flags(path: str, items: list) -> Iterator[tuple[str, Any]]:
    """Iterate over ``--flag value``; ``--flag name value`` is named by both, as it may repeat."""
    flags: set[str] = set()
    for position, group in _groups(items):
        name = " ".join(str(item) for item in group[: max(1, len(group) - 1)])
        flag = f"{path} {name}"
        if not name.startswith("--") or flag in flags:
            flag = f"{path}[{position}]"
        flags.add(flag)
        yield from _inside(flag, group[-1] if len(group) > 1 else group[0])


def _groups(items: list) -> Iterator[tuple[int, list]]:
    """Iterate over (position, [flag, values …]); items before the first flag come one by one."""
    start = 0
    for position in range(1, len(items) + 1):
        ends = position == len(items) or str(items[position]).startswith("--")
        if ends or not str(items[start]).startswith("--"):
            yield start, items[start:position]
            start = position


def text(value: Any) -> str:
    """Return a value, or an expression, as text for people."""
    if isinstance(value, str):
        return value or '""'
    if isinstance(value, list):
        return ", ".join(text(item) for item in value) if value else "[]"
    if isinstance(value, dict) and is_expression(value):
        return _expression(value)
    return str(value) if isinstance(value, Unknown) else json.dumps(value)


def _expression(value: dict) -> str:
    if JOIN in value:
        body = value[JOIN]
        return str(body.get("On", "")).join(text(part) for part in body["Values"])
    if GET in value:
        return reference(value[GET])
    body = next(iter(value.values()))
    source = body.get("PropertyFile", {}).get(GET) if "PropertyFile" in body else None
    location = reference(source) if source else text(body.get("S3Uri"))
    return f"{{{location.strip('{}')}: {body.get('Path')}}}"


def reference(get: Any) -> str:
    """Return ``{MaxSteps}``, ``{execution id}``, ``{Shard.train}``, ``{Train.model}``."""
    try:
        target = parse_get(get)
    except ExpressionError:
        return f"{{{get}}}"
    if target.kind == "Parameters":
        return f"{{{target.name}}}"
    if target.kind == "Execution":
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", target.name.removeprefix("Pipeline"))
        return f"{{{words[0].lower()}{words[1:].lower()}}}"
    output = _OUTPUT.fullmatch(target.path)
    path = "model" if target.path == "ModelArtifacts.S3ModelArtifacts" else target.path
    return f"{{{target.name}.{output[1] if output else path}}}"
