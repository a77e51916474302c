"""Definitions of any length: copies of a real one, chained."""

import copy
import json
from typing import Any


def repeated(body: str, times: int) -> str:
    """``body`` with its steps so many times over; each copy refers to its own steps only.

    The first step of a copy waits for the last one of the copy before it.
    """
    document = json.loads(body)
    steps: list[dict[str, Any]] = []
    for number in range(times):
        names = {name: f"{name}{number or ''}" for name in _names(document["Steps"])}
        fresh = [_renamed(step, names) for step in copy.deepcopy(document["Steps"])]
        if steps:
            fresh[0]["DependsOn"] = [steps[-1]["Name"]]
        steps += fresh
    return json.dumps(document | {"Steps": steps}, indent=1)


def _names(steps: list[dict[str, Any]]) -> list[str]:
    nested = [
        step["Arguments"].get(key) or [] for step in steps for key in ("IfSteps", "ElseSteps")
    ]
    return [step["Name"] for step in steps] + [name for inner in nested for name in _names(inner)]


def _renamed(value: Any, names: dict[str, str]) -> Any:
    """Names of steps in ``Name`` of a step, ``DependsOn`` and every ``Get``."""
    if isinstance(value, list):
        return [_renamed(item, names) for item in value]
    if not isinstance(value, dict):
        return value
    found = {key: _renamed(item, names) for key, item in value.items()}
    if "Type" in value and value.get("Name") in names:
        found["Name"] = names[value["Name"]]
    if "DependsOn" in value:
        found["DependsOn"] = [names.get(name, name) for name in value["DependsOn"]]
    if isinstance(get := value.get("Get"), str) and get.startswith("Steps."):
        step, dot, path = get.removeprefix("Steps.").partition(".")
        found["Get"] = f"Steps.{names.get(step, step)}{dot}{path}"
    return found
