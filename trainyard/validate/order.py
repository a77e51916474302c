"""The order of the steps: DependsOn, and nothing that waits for itself."""

from collections.abc import Iterator
from typing import Any

from trainyard.language.document import Document
from trainyard.language.statuses import TRIGGERS
from trainyard.language.steps import Step
from trainyard.validate.findings import Finding
from trainyard.validate.functions import odd_member
from trainyard.validate.location import REFUSED, Place, brief, suggestion
from trainyard.validate.reach import missing, reachable


def findings(document: Document, steps: dict[str, Step]) -> Iterator[Finding]:
    """What is wrong with DependsOn, and every cycle."""
    for step in document.steps:
        yield from _depends_on(step, steps)
    yield from _cycles(document, steps)


def _depends_on(step: Step, steps: dict[str, Step]) -> Iterator[Finding]:
    entries = step.document.get("DependsOn")
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        place = Place(step.name, step.path).at("DependsOn", index)
        name = entry.get("Step") if isinstance(entry, dict) else entry
        yield from _dependency_form(entry, place)
        if not isinstance(name, str):
            continue
        target = steps.get(name)
        if target is None:
            yield missing(place, "step", name, list(steps))
        elif target.type == "Fail":
            yield place.error(
                "after-fail",
                # AWS's own words, and why
                f"{step.name} can not depends on {name}, a Fail step: nothing runs after it",
                why="a Fail step ends the run",
                fix="depend on the step before it",
                source="SDK 3.27: FailStep is a terminal step",
            )
        else:
            yield from reachable(step, target, place, steps)


def _dependency_form(entry: Any, place: Place) -> Iterator[Finding]:
    if isinstance(entry, str):
        return
    if not isinstance(entry, dict) or not isinstance(entry.get("Step"), str):
        yield place.error(
            "depends-on",
            f"{brief(entry)}: expected a step's name, or Step and Trigger",
            why=REFUSED,
            fix="give the step's name",
            source="SDK 3.27: StepDependency",
        )
        return
    for key in entry:
        if key not in ("Step", "Trigger"):
            yield odd_member(place.at(key), "DependsOn", key, ["Step", "Trigger"])
    if entry.get("Trigger") not in list(TRIGGERS):  # which compares whatever stands there
        yield place.at("Trigger").error(
            "depends-on",
            f"{brief(entry.get('Trigger'))} is no trigger",
            why=REFUSED,
            fix=suggestion(entry.get("Trigger"), list(TRIGGERS)),
            source="SDK 3.27: TriggerCondition",
        )


def _cycles(document: Document, steps: dict[str, Step]) -> Iterator[Finding]:
    waits = waits_for(document)
    done: set[str] = set()
    for name in waits:
        if cycle := _cycle(name, waits, done):
            step = steps[cycle[0]]
            yield Place(step.name, step.path).error(
                "cycle",
                f"the step waits for itself: {' → '.join(cycle)}",
                why=f"{REFUSED}: steps must have an order",
                fix=f"remove the reference or DependsOn from {cycle[-2]!r} to {cycle[0]!r}",
                source="developer guide: Pipelines overview (a directed acyclic graph)",
            )


def waits_for(document: Document) -> dict[str, list[str]]:
    """Step → the steps that must have ended before it starts, its condition among them."""
    waits: dict[str, list[str]] = {step.name: [] for step in document.steps}
    for step in document.steps:
        waits[step.name] += [name for name in step.waits_for if name in waits]
    return waits


def _cycle(start: str, waits: dict[str, list[str]], done: set[str]) -> list[str] | None:
    """The first cycle that is reached from ``start``; without recursion, for long chains."""
    stack = [(start, iter(waits[start]))]
    path = [start]
    if start in done:
        return None
    while stack:
        name, rest = stack[-1]
        other = next((n for n in rest if n not in done), None)
        if other is None:
            done.add(name)
            stack.pop()
            path.pop()
        elif other in path:
            done.update(path)
            return [*path[path.index(other) :], other]
        else:
            stack.append((other, iter(waits[other])))
            path.append(other)
    return None
