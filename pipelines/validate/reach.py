"""Whether one step may refer to another: it exists, and it has run by then."""

from collections.abc import Iterator

from pipelines.validate.document import Step
from pipelines.validate.findings import Finding
from pipelines.validate.place import REFUSED, Place, suggestion

DEFINITION = "SDK 3.27: Pipeline.definition"


def missing(place: Place, what: str, name: str, valid: list[str]) -> Finding:
    return place.error(
        f"unknown-{what}",
        f"there is no {what} {name!r}",
        why=f"{REFUSED}: a reference to nothing",
        fix=suggestion(name, valid),
        source=DEFINITION,
    )


def reachable(step: Step, target: Step, place: Place) -> Iterator[Finding]:
    """Whether ``target`` has run whenever ``step`` runs."""
    if target.branch is None or step.branch == target.branch:
        return
    condition, outcome = target.branch
    if step.branch and step.branch[0] == condition:
        yield place.error(
            "other-branch",
            f"step {step.name!r} runs when {condition!r} is {not outcome}, "
            f"step {target.name!r} when it is {outcome}: never both",
            why="the step waits for one that is never run",
            fix="refer to a step before the condition, or move one of them to the same branch",
            source="#3565; developer guide: Condition step",
        )
    elif step.name != condition:  # a condition that waits for its own branch: a cycle
        yield place.warning(
            "may-not-run",
            f"step {target.name!r} runs only when {condition!r} is {outcome}, "
            f"step {step.name!r} stands outside that branch",
            why="when the other branch is taken, this step is not run either",
            fix=f"move {step.name!r} into the branch if it belongs there",
            source="#3565",
        )
