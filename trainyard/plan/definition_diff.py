"""Compute the differences between two states of a pipeline: settings, parameters, steps and their
fields, each with human-readable text.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from trainyard.language.definition_document import iter_steps
from trainyard.language.evaluation import Unknown
from trainyard.language.expressions import (
    GET,
    JOIN,
    ExpressionError,
    index_parameters,
    is_expression,
    iter_known_references,
    parse_get,
)
from trainyard.language.step_types import NESTED_KEYS
from trainyard.plan.deployed_pipeline import State
from trainyard.secrets import is_sensitive

# Convert a step of a definition to flat fields, each with a name and a text that people can read.
#
# Items of lists are identified by a field that names them, and not by their position. JSON inside a
# string is parsed. Arguments of a container become one field per flag. References are written like
# ``{Shard.train}``, and not as JSON.

NAMING = ("ChannelName", "InputName", "PropertyFileName", "OutputName", "MetricName", "Name", "Key")
"""Fields that name an item of a list; of several, the first in this order is used."""

CODE = re.compile(r"s3://(?P<bucket>[^/]+)/(?P<key>\S+/code/(?P<hash>[0-9a-f]{32}))/")
"""URI of a folder of code that is named by its content: ``s3://bucket/…/code/<hash>/``."""

_JSON_STRING = re.compile(r"\s*[{\[]")
_OUTPUT = re.compile(r"ProcessingOutputConfig\.Outputs\['([^']+)'\]\.S3Output\.S3Uri")


@dataclass(frozen=True, slots=True)
class Field:
    """A value in a step."""

    raw: Any
    """Value as in the definition, which is compared."""

    text: str
    """Value as human-readable text."""


HIDDEN = "(hidden)"
_NAME = re.compile(r"[^.\[\]']+")

Fields = dict[str, Field]
"""Mapping of a path inside the step, such as ``HyperParameters.learning_rate``, to the field."""


def list_fields(step: Mapping[str, Any]) -> Fields:
    """Return the fields of a step, without its name; of nested steps only their names."""
    outside = {key: value for key, value in step.items() if key not in ("Name", "Arguments")}
    arguments = dict(step.get("Arguments") or {})
    for branch in NESTED_KEYS:
        if branch in arguments:
            arguments[branch] = [inner["Name"] for inner in arguments[branch] or ()]
    return flatten_fields(outside | arguments)


def flatten_fields(values: Mapping[str, Any]) -> Fields:
    """Return the fields of any part of a step, such as its cache key."""
    leaves = (leaf for key, value in values.items() for leaf in _iter_leaves(key, value))
    return {path: Field(value, format_value(path, value)) for path, value in leaves}


def format_value(path: str, value: Any) -> str:
    """Return ``value`` as text; hide it if it looks like a secret, because plans go into logs."""
    names = _NAME.findall(path)
    is_pair = len(names) > 1 and names[-1] in ("Value", "DefaultValue")
    return HIDDEN if is_sensitive(names[-2 if is_pair else -1], value) else render_value(value)


def list_top_fields(document: Mapping[str, Any]) -> Fields:
    """Return the fields of a definition outside its parameters and steps."""
    return flatten_fields({k: v for k, v in document.items() if k not in ("Parameters", "Steps")})


def index_steps(document: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return a mapping of a name to a step, in the definition's order.

    Nested steps follow the step that contains them.
    """
    return {step.name: dict(step.document) for step in iter_steps(document["Steps"])}


def _iter_leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Iterate over (path, leaf value) of everything in ``value``, which is at ``path``."""
    if isinstance(value, dict) and value and not is_expression(value):
        for key, item in value.items():
            yield from _iter_leaves(f"{path}.{key}", item)
    elif isinstance(value, list) and value:
        yield from _iter_list_leaves(path, value)
    elif isinstance(value, str) and (content := _parse_json(value)) is not None:
        yield from _iter_leaves(path, content)
    else:
        yield path, value


def _parse_json(value: str) -> Any:
    """Return the non-empty JSON object or list in a string; None for any other string."""
    if not _JSON_STRING.match(value):
        return None
    try:
        return json.loads(value) or None
    except ValueError:
        return None


def _iter_list_leaves(path: str, items: list) -> Iterator[tuple[str, Any]]:
    """Iterate over (path, leaf value) of everything in a list, which is at ``path``."""
    if any(isinstance(item, str) and item.startswith("--") for item in items):
        yield from _iter_flags(path, items)
    elif all(isinstance(item, dict) and not is_expression(item) for item in items):
        for name, item in _name_items(items):
            yield from _iter_leaves(f"{path}[{name}]", item)
    else:
        yield path, items


def _name_items(items: list[dict]) -> Iterator[tuple[str, Any]]:
    """Iterate over (name, item without its name) if all items have different names; else over
    (position, item).
    """
    names = [name for item in items if (name := _find_item_name(item)) is not None]
    unique = len(set(names)) == len(items)
    for position, item in enumerate(items):
        yield (names[position], _remove_name(item)) if unique else (str(position), item)


def _find_item_name(item: dict) -> str | None:
    """Return the name by which a list item is identified; None if it has none."""
    # A retry policy has no name, and is identified by the exceptions that it retries.
    if "ExceptionType" in item:
        return ", ".join(kind.rpartition(".")[2] for kind in item["ExceptionType"])
    name = next((item[key] for key in NAMING if key in item), None)
    return name if isinstance(name, str) else None


def _remove_name(item: dict) -> Any:
    """Return an item without the field that names it. If one other field is left, as in a tag or a
    metric definition, return its value, unless that is an object.
    """
    name = next(key for key in ("ExceptionType", *NAMING) if key in item)
    rest = {key: value for key, value in item.items() if key != name}
    remainder = next(iter(rest.values())) if len(rest) == 1 else rest
    # An object, as in a channel, keeps its field's name in the path, so that the path is the same
    # if the item gets a second field.
    return rest if isinstance(remainder, dict) and not is_expression(remainder) else remainder


def _iter_flags(path: str, items: list) -> Iterator[tuple[str, Any]]:
    """Iterate over (path, value) of command-line arguments, with the flag in the path.

    For ``--flag name value`` the path has the flag and the name, because the flag may be repeated.
    """
    flags: set[str] = set()
    for position, group in _group_flags(items):
        name = " ".join(str(item) for item in group[: max(1, len(group) - 1)])
        flag = f"{path} {name}"
        if not name.startswith("--") or flag in flags:
            flag = f"{path}[{position}]"
        flags.add(flag)
        yield from _iter_leaves(flag, group[-1] if len(group) > 1 else group[0])


def _group_flags(items: list) -> Iterator[tuple[int, list]]:
    """Iterate over (position, [flag, values …]); each item before the first flag is a group."""
    start = 0
    for position in range(1, len(items) + 1):
        ends = position == len(items) or str(items[position]).startswith("--")
        if ends or not str(items[start]).startswith("--"):
            yield start, items[start:position]
            start = position


def render_value(value: Any) -> str:
    """Return a value or an expression as human-readable text."""
    if isinstance(value, str):
        return value or '""'
    if isinstance(value, list):
        return ", ".join(render_value(item) for item in value) if value else "[]"
    if isinstance(value, dict) and is_expression(value):
        return _render_expression(value)
    return str(value) if isinstance(value, Unknown) else json.dumps(value)


def _render_expression(value: dict) -> str:
    """Return a Join, Get or JsonGet as human-readable text."""
    if JOIN in value:
        body = value[JOIN]
        return str(body.get("On", "")).join(render_value(part) for part in body["Values"])
    if GET in value:
        return format_reference(value[GET])
    body = next(iter(value.values()))
    source = body.get("PropertyFile", {}).get(GET) if "PropertyFile" in body else None
    location = format_reference(source) if source else render_value(body.get("S3Uri"))
    return f"{{{location.strip('{}')}: {body.get('Path')}}}"


def format_reference(get: Any) -> str:
    """Return the text for a reference, such as ``{MaxSteps}``, ``{execution id}``,
    ``{Shard.train}`` or ``{Train.model}``.
    """
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


Sign = Literal["+", "-", "~"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A field or parameter that is added (+), removed (-) or changed (~)."""

    sign: Sign
    path: str
    old: str | None
    new: str | None
    note: str = ""
    """Remark, such as which files of a folder of code differ, or where a parameter is used."""

    steps: tuple[str, ...] = ()
    """For a parameter, the names of the steps that use it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepChange:
    """A step that is added, removed or changed."""

    sign: Sign
    name: str
    type: str
    changes: tuple[Change, ...]
    """Changes in the step; for a step that is added or removed, all its fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """The differences between two states of a pipeline."""

    pipeline: tuple[Change, ...] = ()
    """Changes of role, description, parallelism, tags, and top-level fields of the definition."""

    parameters: tuple[Change, ...] = ()
    steps: tuple[StepChange, ...] = ()

    @property
    def changed_steps(self) -> set[str]:
        """Names of the steps in which anything changes, including by a parameter's default."""
        return {s.name for s in self.steps} | {n for c in self.parameters for n in c.steps}

    def __bool__(self) -> bool:
        return bool(self.pipeline or self.parameters or self.steps)


CodeNote = Callable[[str, str], str]
"""Function of the old and the new URI of a folder of code that returns a remark on which files
differ."""


def diff_definitions(
    old: State | None, new: State, code_note: CodeNote = lambda old, new: ""
) -> Diff:
    """Return the changes from ``old`` to ``new``; if ``old`` is None, everything is added."""
    before = old.document if old else {"Steps": []}
    after = new.document
    diff = Diff(
        pipeline=tuple(_iter_pipeline_changes(old, new, before, after)) if old else (),
        parameters=tuple(_iter_parameter_changes(before, after)),
        steps=tuple(_iter_step_changes(index_steps(before), index_steps(after), code_note)),
    )
    # The fields do not show the order of steps and spaces inside JSON texts, which an upsert sets.
    if old and not diff and old.fingerprint != new.fingerprint:
        order = Change(
            sign="~",
            path="Steps",
            old=None,
            new=None,
            note="their order, or white space inside JSON strings",
        )
        return Diff(pipeline=(order,))
    return diff


def _iter_pipeline_changes(old: State, new: State, before: dict, after: dict) -> Iterator[Change]:
    """Iterate over changes of settings, tags and top-level fields of the definition."""

    def collect_settings(state: State, document: dict) -> Fields:
        plain = {
            "RoleArn": state.role,
            "PipelineDescription": state.description,
            "MaxParallelExecutionSteps": state.max_parallel_steps,
        }
        plain |= {f"Tags[{key}]": value for key, value in sorted(state.tags.items())}
        return {k: Field(v, str(v)) for k, v in plain.items() if v} | list_top_fields(document)

    yield from iter_field_changes(collect_settings(old, before), collect_settings(new, after))


def _iter_parameter_changes(before: dict, after: dict) -> Iterator[Change]:
    """Iterate over changes of parameters, with the steps that use each."""
    old, new = index_parameters(before), index_parameters(after)
    uses = _find_uses(after) if old != new else {}
    for name in [*(n for n in old if n not in new), *new]:
        was, now = old.get(name), new.get(name)
        if was != now:
            sign = _choose_sign(was is not None, now is not None)
            lands = uses.get(name, {})
            yield Change(
                sign=sign,
                path=name,
                old=_format_default(name, was, now),
                new=_format_default(name, now, was),
                note=", ".join(f"in {step} {format_path(path)}" for step, path in lands.items()),
                steps=tuple(lands),
            )


def _format_default(name: str, entry: dict | None, other: dict | None) -> str | None:
    """Return a parameter's default as text, with its type and permitted values if they changed.

    ``entry`` is its declaration, ``other`` the one that it is compared with. Return None if
    ``entry`` is None.
    """
    if entry is None:
        return None
    default = entry.get("DefaultValue")
    default_text = HIDDEN if is_sensitive(name, default) else str(default)
    words = [default_text if "DefaultValue" in entry else "(no default)"]
    if other and entry.get("Type") != other.get("Type"):
        words.append(f"({entry.get('Type')})")
    if other and entry.get("EnumValues") != other.get("EnumValues"):
        words.append(f"one of {', '.join(map(str, entry.get('EnumValues') or ('any',)))}")
    return " ".join(words)


def _find_uses(document: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return where parameters are used: a mapping of a parameter to a mapping of a step that uses
    it to the path of the first such field.
    """
    uses: dict[str, dict[str, str]] = {}
    for name, step in index_steps(document).items():
        for path, field in list_fields(step).items():
            for reference in iter_known_references(field.raw):
                if reference.kind == "Parameters":
                    uses.setdefault(reference.name, {}).setdefault(name, path)
    return uses


def _iter_step_changes(old: dict, new: dict, code_note: CodeNote) -> Iterator[StepChange]:
    """Iterate over added, changed and removed steps, with their changed fields."""
    for name in [*new, *(name for name in old if name not in new)]:
        was, now = old.get(name), new.get(name)
        if was == now:
            continue
        changes = tuple(
            iter_field_changes(list_fields(was or {}), list_fields(now or {}), code_note)
        )
        if was is None or now is None or changes:
            sign = _choose_sign(was is not None, now is not None)
            kind = (now or was or {})["Type"]
            yield StepChange(sign=sign, name=name, type=kind, changes=changes)


def iter_field_changes(
    old: Fields, new: Fields, code_note: CodeNote = lambda old, new: ""
) -> Iterator[Change]:
    """Iterate over the fields that differ, in the order of ``new``, then those that are removed.

    An item of a list that only one side has is one change, and not one per field.
    """
    old, new = _gather_members(old, new), _gather_members(new, old)
    for path in [*new, *(path for path in old if path not in new)]:
        was, now = old.get(path), new.get(path)
        if was and now and was.raw == now.raw:
            continue
        old_text, new_text = was.text if was else None, now.text if now else None
        # The values differ but have the same text, such as a reference and a string that looks
        # like it, or 1 and "1": show them as Python writes them.
        if was and now and old_text == new_text != HIDDEN:
            old_text, new_text = repr(was.raw), repr(now.raw)
        is_code = old_text and new_text and CODE.fullmatch(old_text) and CODE.fullmatch(new_text)
        note = code_note(old_text, new_text) if old_text and new_text and is_code else ""
        sign = _choose_sign(was is not None, now is not None)
        yield Change(sign=sign, path=path, old=old_text, new=new_text, note=note)


def _gather_members(side: Fields, other: Fields) -> Fields:
    """Return the fields of ``side``, with the fields of each list item that ``other`` does not have
    joined into one.
    """
    members = {truncate_to_list_item(path) for path in other}
    result: Fields = {}
    for path, field in side.items():
        member = truncate_to_list_item(path)
        if member == path or member in members:
            result[path] = field
        elif member not in result:
            inside = {p: f.text for p, f in side.items() if truncate_to_list_item(p) == member}
            # A channel, an input or an output is shown as its URI, any other item as all its
            # fields.
            uri = next((text for p, text in inside.items() if p.endswith("S3Uri")), None)
            words = (f"{p[len(member) :].lstrip('.')} {text}" for p, text in inside.items())
            result[member] = Field(inside, uri or ", ".join(words))
    return result


def truncate_to_list_item(path: str) -> str:
    """Return ``path`` up to its first list item, such as ``ProcessingInputs[raw]``; the whole path
    if it has none.
    """
    end = path.find("]")
    return path if end < 0 else path[: end + 1]


def _choose_sign(was: bool, now: bool) -> Sign:
    return "~" if was and now else "+" if now else "-"


_WRAPPERS = re.compile(
    r"^(ProcessingResources\.ClusterConfig|ResourceConfig|AppSpecification|AlgorithmSpecification"
    r"|StoppingCondition|ProcessingOutputConfig|CustomerMetadataProperties)\."
    r"|(?<=\])\.(S3Input|S3Output|DataSource\.S3DataSource|DataSource)(?=\.)"
)
"""Match the parts of paths that only wrap others and can be left out: no two fields in botocore's
shapes differ by them alone."""


def format_path(path: str) -> str:
    """Return a path for display, without the parts that only wrap others."""
    return _WRAPPERS.sub("", path)
