"""How a fault is written: a valid definition, one edit of it, and what validation must say."""

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from trainyard.validate import Finding, check

FOLDER = Path(__file__).parent / "definitions"
Edit = Callable[[dict], None]


@dataclass(frozen=True, slots=True)
class Fault:
    """One mistake. ``path`` is where it must be found; "" where the place is not the point."""

    name: str
    base: str
    """Name of a file in definitions/."""

    edit: Edit
    rule: str
    path: str
    severity: str = "error"

    def found(self) -> list[Finding]:
        """What validation says of the definition with the mistake in it."""
        document = copy.deepcopy(load(self.base))
        self.edit(document)
        return check(json.dumps(document))

    def caught(self) -> bool:
        return any(
            finding.rule == self.rule
            and finding.severity == self.severity
            and self.path in ("", finding.path)
            for finding in self.found()
        )


def errors(body: str) -> list[Finding]:
    """What validation refuses; the rules table warns of much that is only expensive."""
    return [finding for finding in check(body) if finding.severity == "error"]


@cache
def load(base: str) -> dict:
    return json.loads((FOLDER / f"{base}.json").read_text(encoding="utf-8"))


def keys(path: str) -> list[str | int]:
    """``Steps/0/Arguments`` → ``["Steps", 0, "Arguments"]``."""
    return [int(key) if key.isdigit() else key for key in path.split("/")]


def holder(document: Any, path: str) -> tuple[Any, str | int]:
    """The object or list that ``path`` ends in, and its last key."""
    *before, last = keys(path)
    for key in before:
        document = document[key]
    return document, last


def put(path: str, value: Any) -> Edit:
    """Write ``value`` at ``path``."""

    def edit(document: dict) -> None:
        inside, key = holder(document, path)
        inside[key] = copy.deepcopy(value)

    return edit


def drop(path: str) -> Edit:
    """Remove what is at ``path``."""

    def edit(document: dict) -> None:
        inside, key = holder(document, path)
        del inside[key]

    return edit


def rename(path: str, name: str) -> Edit:
    """Give the member at ``path`` another name."""

    def edit(document: dict) -> None:
        inside, key = holder(document, path)
        inside[name] = inside.pop(key)

    return edit


def add(path: str, *values: Any) -> Edit:
    """Append to the list at ``path``."""

    def edit(document: dict) -> None:
        inside, key = holder(document, path)
        inside[key] = [*inside.get(key, []), *copy.deepcopy(list(values))]

    return edit


def both(*edits: Edit) -> Edit:
    def edit(document: dict) -> None:
        for one in edits:
            one(document)

    return edit


def get(text: str) -> dict:
    return {"Get": text}
