"""The steps of a definition, wherever they stand."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

BRANCHES = ("IfSteps", "ElseSteps")


def every_step(steps: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Each step of a valid definition, those inside a condition's branches after the condition."""
    for step in steps:
        yield step
        for branch in BRANCHES:
            yield from every_step(step.get("Arguments", {}).get(branch, ()))
