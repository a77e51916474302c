"""The steps of a definition, wherever they stand."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from trainyard.language.step_types import NESTED

BRANCHES = {"IfSteps": True, "ElseSteps": False}
"""Argument of a condition → the outcome under which the steps in it run."""


def every_step(steps: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Each step of a valid definition, those that another holds after that one."""
    for step in steps:
        yield step
        arguments = step.get("Arguments") or {}
        for key in NESTED:
            yield from every_step(arguments.get(key) or ())
