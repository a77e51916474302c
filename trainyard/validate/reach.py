"""Whether one step may refer to another: it exists, and it has run by then."""

from collections.abc import Iterator

from trainyard.language.steps import Step
from trainyard.validate.findings import Finding
from trainyard.validate.location import REFUSED, Place, suggestion

DEFINITION = "SDK 3.27: Pipeline.definition"


def missing(place: Place, what: str, name: str, valid: list[str]) -> Finding:
    """A parameter or step that does not exist, with the nearest that does."""
    return place.error(
        f"unknown-{what}",
        f"there is no {what} {name!r}",
        why=f"{REFUSED}: a reference to nothing",
        fix=suggestion(name, valid),
        source=DEFINITION,
    )


def reachable(step: Step, target: Step, place: Place, steps: dict[str, Step]) -> Iterator[Finding]:
    """Whether ``target`` has run whenever ``step`` runs."""
    own = _branches(step, steps)
    for condition, outcome in _branches(target, steps).items():
        if own.get(condition) is (not outcome):
            yield _never_both(step, target, condition, outcome, place)
        elif condition not in own and condition != step.name:  # its own branch: a cycle
            yield _perhaps(step, target, condition, outcome, place)
    if target.loop is not None and target.loop not in (step.loop, step.name):
        yield _inside_loop(target, place)


def _branches(step: Step | None, steps: dict[str, Step]) -> dict[str, bool]:
    """Condition step → the outcome under which ``step`` runs, at every depth of nesting."""
    found: dict[str, bool] = {}
    while step is not None and step.branch is not None and step.branch[0] not in found:
        condition, outcome = step.branch
        found[condition] = outcome
        step = steps.get(condition)
    return found


def _never_both(step: Step, target: Step, condition: str, outcome: bool, place: Place) -> Finding:
    return place.error(
        "other-branch",
        f"step {step.name!r} runs when {condition!r} is {not outcome}, "
        f"step {target.name!r} when it is {outcome}: never both",
        why="the step waits for one that is never run",
        fix="refer to a step before the condition, or move one of them to the same branch",
        source="#3565",
    )


def _perhaps(step: Step, target: Step, condition: str, outcome: bool, place: Place) -> Finding:
    return place.warning(
        "may-not-run",
        f"step {target.name!r} runs only when {condition!r} is {outcome}, "
        f"step {step.name!r} stands outside that branch",
        why="when the other branch is taken, this step is not run either",
        fix=f"move {step.name!r} into the branch if it belongs there",
        source="#3565",
    )


def _inside_loop(target: Step, place: Place) -> Finding:
    return place.error(
        "inside-a-loop",
        f"step {target.name!r} runs once an item of {target.loop!r}: it is many steps",
        why=f"{REFUSED}: outside the loop there is no step of this name",
        fix=f"refer to Steps.{target.loop}.IterationOutputs[0].{target.name}.…, or to Selected",
        source="SDK 3.27: ForEachStep",
    )
