"""Faults that nobody chose: at every member of every request that the definitions make.

Of each step type and member once: its name misspelt, and a value of another type; and every
reference misspelt. Left out is what is no mistake: names in maps, and a Lambda's own input.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.trainyard.validate.faults import load
from tests.trainyard.validate.mutations import BASES, Path, mutate, nodes
from trainyard.language.expressions import is_expression
from trainyard.validate import Finding, check

MAPS = {
    "ApplicationConfig",  # of EMR Serverless: no botocore shape with this form
    "CustomerMetadataProperties",
    "Environment",
    "HyperParameters",
    "StaticHyperParameters",
}
FREE = ("Lambda", "Callback")
"""Step types whose Arguments are what the user likes."""


@dataclass(frozen=True, slots=True)
class Generated:
    """One mutation of ``base`` at ``path``; anything that is said there counts as caught."""

    base: str
    kind: str
    path: Path
    rule: str = "any"

    @property
    def name(self) -> str:
        return f"{self.kind} {self.base} {'.'.join(map(str, self.path))}"

    def found(self) -> list[Finding]:
        return check(json.dumps(mutate(self.base, self.kind, self.path)))

    def caught(self) -> bool:
        return any(finding.severity == "error" for finding in self.found())


def generate() -> Iterator[Generated]:
    """Each step type's members once, each reference once a base."""
    seen: set[tuple] = set()
    for base in BASES:
        for path, value in nodes(load(base)):
            for kind in kinds(base, path, value):
                key = (kind, _type(base, path), *(k for k in path if isinstance(k, str)))
                if key not in seen or path[-1] == "Get":
                    seen.add(key)
                    yield Generated(base, kind, path)


def kinds(base: str, path: Path, value: Any) -> Iterator[str]:
    """The kinds of mutation that make a mistake there."""
    if path[0] != "Steps" or "Arguments" not in path:
        return
    if path[-1] == "Get" and not str(value).startswith("ForEach"):
        yield "misspell"
    if _free(base, path) or any(isinstance(k, str) and k.startswith("Std:") for k in path[:-1]):
        return
    holder = next((k for k in reversed(path[:-1]) if isinstance(k, str)), "")
    if isinstance(path[-1], str) and holder not in MAPS and len(path[-1]) > 1:
        yield "rename"
    if path[-1] != "Get" and not is_expression(value) and not MAPS & set(path[:-2]):
        yield "retype"


def _free(base: str, path: Path) -> bool:
    """Inside what the user writes as they like."""
    return "ApplicationConfig" in path or (
        _type(base, path) in FREE and path[-1] not in ("Name", "Type", "Arguments")
    )


def _type(base: str, path: Path) -> str:
    """Type of the innermost step that ``path`` lies in."""
    value: Any = load(base)
    found = ""
    for key in path:
        value = value[key]
        if isinstance(value, dict) and isinstance(value.get("Arguments"), dict):
            found = value["Type"]
    return found


FAULTS = list(generate())
