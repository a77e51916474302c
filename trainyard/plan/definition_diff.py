"""The differences between two states of a pipeline, in words: parameters, steps, fields."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from trainyard.language.expressions import known_references
from trainyard.language.parameters import index_parameters
from trainyard.plan.deployed_pipeline import State
from trainyard.plan.step_fields import (
    CODE,
    HIDDEN,
    Field,
    Fields,
    fields,
    steps,
    top,
)
from trainyard.secrets import hidden

Sign = Literal["+", "-", "~"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A value that is added (+), removed (-) or changed (~)."""

    sign: Sign
    path: str
    old: str | None
    new: str | None
    note: str = ""
    """Remark: which files of a code folder, where a parameter is used."""

    steps: tuple[str, ...] = ()
    """Steps that use a parameter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepChange:
    """A step that is added, removed, or changed."""

    sign: Sign
    name: str
    type: str
    changes: tuple[Change, ...]
    """Changes in the step; for a step that is added or removed, all its fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """Differences between two states."""

    pipeline: tuple[Change, ...] = ()
    """Changes of role, description, parallelism, tags, and the definition's own fields."""

    parameters: tuple[Change, ...] = ()
    steps: tuple[StepChange, ...] = ()

    @property
    def changed_steps(self) -> set[str]:
        """Steps in which anything changes, also by a parameter."""
        return {s.name for s in self.steps} | {n for c in self.parameters for n in c.steps}

    def __bool__(self) -> bool:
        return bool(self.pipeline or self.parameters or self.steps)


CodeNote = Callable[[str, str], str]
"""(old URI, new URI of a code folder) → a remark on which files differ."""


def compare(old: State | None, new: State, code_note: CodeNote = lambda old, new: "") -> Diff:
    """Return the changes from ``old`` to ``new``; with no ``old``, everything is added."""
    before = old.document if old else {"Steps": []}
    after = new.document
    diff = Diff(
        pipeline=tuple(_pipeline(old, new, before, after)) if old else (),
        parameters=tuple(_parameters(before, after)),
        steps=tuple(_steps(steps(before), steps(after), code_note)),
    )
    if old and not diff and old.fingerprint != new.fingerprint:
        order = Change(
            sign="~",
            path="Steps",
            old=None,
            new=None,
            note="their order, or spaces inside of JSON texts",
        )
        return Diff(pipeline=(order,))
    return diff


def _pipeline(old: State, new: State, before: dict, after: dict) -> Iterator[Change]:
    def settings(state: State, document: dict) -> Fields:
        plain = {
            "RoleArn": state.role,
            "PipelineDescription": state.description,
            "MaxParallelExecutionSteps": state.max_parallel_steps,
        }
        plain |= {f"Tags[{key}]": value for key, value in sorted(state.tags.items())}
        return {k: Field(v, str(v)) for k, v in plain.items() if v} | top(document)

    yield from compare_fields(settings(old, before), settings(new, after))


def _parameters(before: dict, after: dict) -> Iterator[Change]:
    old, new = index_parameters(before), index_parameters(after)
    uses = _uses(after) if old != new else {}
    for name in [*(n for n in old if n not in new), *new]:
        was, now = old.get(name), new.get(name)
        if was != now:
            sign = _sign(was is not None, now is not None)
            lands = uses.get(name, {})
            yield Change(
                sign=sign,
                path=name,
                old=_format_default(name, was, now),
                new=_format_default(name, now, was),
                note=", ".join(f"in {step} {label(path)}" for step, path in lands.items()),
                steps=tuple(lands),
            )


def _format_default(name: str, entry: dict | None, other: dict | None) -> str | None:
    """Return a parameter's default; its type and values, too, where these changed."""
    if entry is None:
        return None
    default = entry.get("DefaultValue")
    default_text = HIDDEN if hidden(name, default) else str(default)
    words = [default_text if "DefaultValue" in entry else "(no default)"]
    if other and entry.get("Type") != other.get("Type"):
        words.append(f"({entry.get('Type')})")
    if other and entry.get("EnumValues") != other.get("EnumValues"):
        words.append(f"one of {', '.join(map(str, entry.get('EnumValues') or ('any',)))}")
    return " ".join(words)


def _uses(document: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return parameter → the steps that use it → the field that has it."""
    uses: dict[str, dict[str, str]] = {}
    for name, step in steps(document).items():
        for path, field in fields(step).items():
            for reference in known_references(field.raw):
                if reference.kind == "Parameters":
                    uses.setdefault(reference.name, {}).setdefault(name, path)
    return uses


def _steps(old: dict, new: dict, code_note: CodeNote) -> Iterator[StepChange]:
    for name in [*new, *(name for name in old if name not in new)]:
        was, now = old.get(name), new.get(name)
        if was == now:
            continue
        changes = tuple(compare_fields(fields(was or {}), fields(now or {}), code_note))
        if was is None or now is None or changes:
            sign = _sign(was is not None, now is not None)
            kind = (now or was or {})["Type"]
            yield StepChange(sign=sign, name=name, type=kind, changes=changes)


def compare_fields(
    old: Fields, new: Fields, code_note: CodeNote = lambda old, new: ""
) -> Iterator[Change]:
    """Iterate over the fields that differ, in the order of ``new``, then those that are gone.

    A member of a list that only one side has is one change, not one per field.
    """
    old, new = _gather_members(old, new), _gather_members(new, old)
    for path in [*new, *(path for path in old if path not in new)]:
        was, now = old.get(path), new.get(path)
        if was is None or now is None or was.raw != now.raw:
            yield _change(path, was, now, code_note)


def _gather_members(side: Fields, other: Fields) -> Fields:
    members = {list_member(path) for path in other}
    result: Fields = {}
    for path, field in side.items():
        member = list_member(path)
        if member == path or member in members:
            result[path] = field
        elif member not in result:
            inside = {p: f.text for p, f in side.items() if list_member(p) == member}
            result[member] = Field(inside, _summary(member, inside))
    return result


def list_member(path: str) -> str:
    """Return ``path`` up to the first list's member: ``ProcessingInputs[raw]``."""
    end = path.find("]")
    return path if end < 0 else path[: end + 1]


def _summary(member: str, inside: dict[str, str]) -> str:
    """Return the URI of a channel, an input, an output; else all its fields."""
    uri = next((text for path, text in inside.items() if path.endswith("S3Uri")), None)
    words = (f"{path[len(member) :].lstrip('.')} {text}" for path, text in inside.items())
    return uri or ", ".join(words)


def _change(path: str, was: Field | None, now: Field | None, code_note: CodeNote) -> Change:
    old, new = was.text if was else None, now.text if now else None
    if was and now and old == new != HIDDEN:  # a reference and a text that reads like it, 1 and "1"
        old, new = repr(was.raw), repr(now.raw)
    note = (
        code_note(old, new) if old and new and CODE.fullmatch(old) and CODE.fullmatch(new) else ""
    )
    sign = _sign(was is not None, now is not None)
    return Change(sign=sign, path=path, old=old, new=new, note=note)


def _sign(was: bool, now: bool) -> Sign:
    return "~" if was and now else "+" if now else "-"


_WRAPPERS = re.compile(
    r"^(ProcessingResources\.ClusterConfig|ResourceConfig|AppSpecification|AlgorithmSpecification"
    r"|StoppingCondition|ProcessingOutputConfig|CustomerMetadataProperties)\."
    r"|(?<=\])\.(S3Input|S3Output|DataSource\.S3DataSource|DataSource)(?=\.)"
)
"""Names that only wrap others; botocore's shapes have no two fields that differ by them alone."""


def label(path: str) -> str:
    """Return a path for display: without the wrappers, and a folder of code by its name."""
    return _WRAPPERS.sub("", path)
