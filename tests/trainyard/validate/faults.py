"""How a fault is written: an edit of a valid definition, and the rule that must say so.

A path begins with the definition's name; a number behind it is a step, of which the rest names
something in the arguments: ``gate/1/IfSteps/0`` and ``gate/Steps/1/Arguments/IfSteps/0`` are one.
"""

import copy
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from trainyard.validate import Finding, check_definition

FOLDER = Path(__file__).parent / "definitions"
BASES = sorted(path.stem for path in FOLDER.glob("*.json"))
Keys = tuple[str | int, ...]


class Edit(NamedTuple):
    """A change of the definition ``base``, and where the mistake in it is then to be found."""

    base: str
    change: Callable[[dict], None]
    place: Keys

    def make_definition(self) -> dict:
        """The definition with the change."""
        document = copy.deepcopy(load(self.base))
        self.change(document)
        return document


@dataclass(frozen=True, slots=True)
class Fault:
    """One mistake."""

    rule: str
    edit: Edit
    severity: str = "error"

    @property
    def path(self) -> str:
        return json_path(self.edit.place)

    def find_findings(self) -> list[Finding]:
        """What validation says of the definition with the mistake in it."""
        return check_definition(json.dumps(self.edit.make_definition()))


def seed(rule: str, *edits: Edit) -> list[Fault]:
    return [Fault(rule, edit) for edit in edits]


def make_warnings(rule: str, *edits: Edit) -> list[Fault]:
    return [replace(fault, severity="warning") for fault in seed(rule, *edits)]


def errors(body: str) -> list[Finding]:
    """What validation refuses; the rules table warns of much that is only expensive."""
    return [finding for finding in check_definition(body) if finding.severity == "error"]


@cache
def load(base: str) -> dict:
    return json.loads((FOLDER / f"{base}.json").read_text(encoding="utf-8"))


def keys(path: str) -> Keys:
    """The keys of a path without the definition's name."""
    found = tuple(int(key) if key.isdigit() else key for key in path.split("/") if key)
    return ("Steps", found[0], "Arguments", *found[1:]) if path[:1].isdigit() else found


def json_path(place: Keys) -> str:
    """``("Steps", 0, "a-b")`` → ``$.Steps[0]['a-b']``."""
    parts = (
        f"[{key}]"
        if isinstance(key, int)
        else f".{key}"
        if re.fullmatch(r"\w+", key)
        else f"['{key}']"
        for key in place
    )
    return "$" + "".join(parts)


def inside(document: Any, place: Keys) -> Any:
    for key in place:
        document = document[key]
    return document


def put(path: str, value: Any) -> Edit:
    """Write ``value`` at ``path``."""
    base, _, rest = path.partition("/")
    *before, last = place = keys(rest)

    def change(document: dict) -> None:
        inside(document, before)[last] = copy.deepcopy(value)

    return Edit(base, change, place)


def drop(path: str) -> Edit:
    """Remove what is at ``path``; the mistake is found where it is missing."""
    base, _, rest = path.partition("/")
    *before, last = keys(rest)
    return Edit(base, lambda document: inside(document, before).pop(last), tuple(before))


def rename(path: str, name: str) -> Edit:
    """Give the member at ``path`` another name."""
    base, _, rest = path.partition("/")
    *before, last = keys(rest)

    def change(document: dict) -> None:
        holder = inside(document, before)
        holder[name] = holder.pop(last)

    return Edit(base, change, (*before, name))


def add(path: str, value: Any) -> Edit:
    """Append to the list at ``path``."""
    base, _, rest = path.partition("/")
    *before, last = keys(rest)
    there = inside(load(base), before)[last]
    return put(path, [*there, value])._replace(place=(*before, last, len(there)))


def both(one: Edit, other: Edit) -> Edit:
    """Two edits, of which the second makes the mistake."""

    def change(document: dict) -> None:
        one.change(document)
        other.change(document)

    return other._replace(change=change)


def place_at(path: str, edit: Edit) -> Edit:
    """The edit whose mistake is found at ``path``."""
    return edit._replace(place=keys(path))


def around(edit: Edit) -> Edit:
    """The edit whose mistake is found in the object around."""
    return edit._replace(place=edit.place[:-1])


def place_within(edit: Edit, *further: str | int) -> Edit:
    """The edit whose mistake is found further inside."""
    return edit._replace(place=(*edit.place, *further))


def get(text: str) -> dict:
    return {"Get": text}
