"""Check the order of the steps: DependsOn is valid, and no step waits for itself."""

from collections.abc import Iterator
from typing import Any

from trainyard.language.definition_document import TRIGGERS, Document, Step
from trainyard.validate.expression_checks import make_unknown_member_finding
from trainyard.validate.location import (
    KINDER,
    REFUSAL,
    Finding,
    Location,
    shorten_repr,
    suggest_name,
)


def check_dependencies(document: Document, steps: dict[str, Step]) -> Iterator[Finding]:
    """Iterate over the findings in DependsOn, and a finding for each cycle."""
    for step in document.steps:
        yield from _check_depends_on(step, steps)
        for name in dict.fromkeys(step.reads):
            if name in steps and steps[name].type == "Fail":
                yield Location(step.name, step.path).make_error(
                    "after-fail",
                    f"{step.name} refers to {name}, a Fail step: nothing runs after it",
                    reason="a Fail step ends the run and has no properties",
                    fix="refer to the step before it",
                    source="developer guide: Limitations for using FailStep",
                )
    waits = map_predecessors(document)
    acyclic: set[str] = set()
    for name in waits:
        if cycle := _find_cycle(name, waits, acyclic):
            step = steps[cycle[0]]
            yield Location(step.name, step.path).make_error(
                "cycle",
                f"the step waits for itself: {' → '.join(cycle)}",
                reason=f"{REFUSAL}: steps must have an order",
                fix=f"remove the reference or DependsOn from {cycle[-2]!r} to {cycle[0]!r}",
                source="developer guide: Pipelines overview (a directed acyclic graph)",
            )


def _check_depends_on(step: Step, steps: dict[str, Step]) -> Iterator[Finding]:
    """Check the entries of the step's DependsOn."""
    entries = step.document.get("DependsOn")
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        location = Location(step.name, step.path).join("DependsOn", index)
        name = entry.get("Step") if isinstance(entry, dict) else entry
        yield from _check_dependency_form(entry, location)
        if not isinstance(name, str):
            continue
        target = steps.get(name)
        if target is None:
            yield make_missing_finding(location, "step", name, list(steps))
        elif target.type == "Fail":
            yield location.make_error(
                "after-fail",
                # The first words are AWS's own, grammar mistake included: people search for them.
                f"{step.name} can not depends on {name}, a Fail step: nothing runs after it",
                reason="a Fail step ends the run",
                fix="depend on the step before it",
                source="SDK 3.27: FailStep is a terminal step",
            )
        else:
            if target.type == "Condition":
                yield location.make_warning(
                    "waits-for-condition",
                    f"{step.name} waits for the condition {name!r}",
                    reason=KINDER,
                    fix=f"put {step.name!r} into its branches, or wait for the steps before it",
                    source="#3565; SDK 3.27 takes any step in depends_on",
                )
            yield from check_reachability(step, target, location, steps)


def _check_dependency_form(entry: Any, location: Location) -> Iterator[Finding]:
    """Check that an entry of DependsOn is a step's name, or an object with Step and Trigger."""
    if isinstance(entry, str):
        return
    if not isinstance(entry, dict) or not isinstance(entry.get("Step"), str):
        yield location.make_error(
            "depends-on",
            f"{shorten_repr(entry)}: expected a step's name, or Step and Trigger",
            reason=REFUSAL,
            fix="give the step's name",
            source="SDK 3.27: StepDependency",
        )
        return
    for key in entry:
        if key not in ("Step", "Trigger"):
            yield make_unknown_member_finding(
                location.join(key), "DependsOn", key, ["Step", "Trigger"]
            )
    # In a list, not a dict, because the value may not be hashable.
    if entry.get("Trigger") not in list(TRIGGERS):
        yield location.join("Trigger").make_error(
            "depends-on",
            f"{shorten_repr(entry.get('Trigger'))} is not a trigger",
            reason=REFUSAL,
            fix=suggest_name(entry.get("Trigger"), list(TRIGGERS)),
            source="SDK 3.27: TriggerCondition",
        )


def map_predecessors(document: Document) -> dict[str, list[str]]:
    """Return a mapping of each step to the steps that must have ended before it starts.

    The condition step whose branch contains a step is one of them.
    """
    waits: dict[str, list[str]] = {step.name: [] for step in document.steps}
    for step in document.steps:
        waits[step.name] += [name for name in step.waits_for if name in waits]
    return waits


def _find_cycle(start: str, waits: dict[str, list[str]], acyclic: set[str]) -> list[str] | None:
    """Return the first cycle that is reached from ``start``, as names; None if there is none.

    Steps that are on no cycle, or on a reported one, are added to ``acyclic``.
    """
    # A stack instead of recursion, because a chain of steps may be deeper than Python's stack.
    stack = [(start, iter(waits[start]))]
    path = [start]
    if start in acyclic:
        return None
    while stack:
        name, rest = stack[-1]
        other = next((n for n in rest if n not in acyclic), None)
        if other is None:
            acyclic.add(name)
            stack.pop()
            path.pop()
        elif other in path:
            # Report the cycle once, and not for each step that leads to it.
            acyclic.update(path)
            return [*path[path.index(other) :], other]
        else:
            stack.append((other, iter(waits[other])))
            path.append(other)
    return None


DEFINITION = "SDK 3.27: Pipeline.definition"


def make_missing_finding(location: Location, kind: str, name: str, valid: list[str]) -> Finding:
    """Return a finding that a parameter or step does not exist; it suggests a valid name."""
    return location.make_error(
        f"unknown-{kind}",
        f"there is no {kind} {name!r}",
        reason=f"{REFUSAL}: the reference has no target",
        fix=suggest_name(name, valid),
        source=DEFINITION,
    )


def check_reachability(
    step: Step, target: Step, location: Location, steps: dict[str, Step]
) -> Iterator[Finding]:
    """Check that ``target`` runs whenever ``step`` runs."""
    branches = _find_branches(step, steps)
    for condition, outcome in _find_branches(target, steps).items():
        if branches.get(condition) is (not outcome):
            yield location.make_error(
                "other-branch",
                f"step {step.name!r} runs when {condition!r} is {not outcome}, "
                f"step {target.name!r} when it is {outcome}: never both",
                reason="the step waits for a step that is never run",
                fix="refer to a step before the condition, or move one of them to the same branch",
                source="#3565",
            )
        # A condition that refers to a step in its own branch is a cycle, and is reported as one.
        elif condition not in branches and condition != step.name:
            yield location.make_warning(
                "may-not-run",
                f"step {target.name!r} runs only when {condition!r} is {outcome}, "
                f"step {step.name!r} is outside that branch",
                reason="when the other branch is taken, this step is not run either",
                fix=f"move {step.name!r} into the branch if it belongs there",
                source="#3565",
            )
    if target.loop is not None and target.loop not in (step.loop, step.name):
        yield location.make_error(
            "inside-a-loop",
            f"step {target.name!r} runs once per item of {target.loop!r}, as several steps",
            reason=f"{REFUSAL}: outside the loop no step has that name, as each item has its own",
            fix=f"refer to Steps.{target.loop}.IterationOutputs[0].{target.name}.…, or to Selected",
            source="SDK 3.27: ForEachStep",
        )


def _find_branches(step: Step | None, steps: dict[str, Step]) -> dict[str, bool]:
    """Return a mapping of condition step to the outcome with which ``step`` runs.

    It contains the conditions at all depths of nesting.
    """
    branches: dict[str, bool] = {}
    while step is not None and step.branch is not None and step.branch[0] not in branches:
        condition, outcome = step.branch
        branches[condition] = outcome
        step = steps.get(condition)
    return branches
