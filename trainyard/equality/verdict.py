"""Say of two definitions: equal, equal but for what does not matter, or different and where.

They are different where their normal forms are. Where these agree, an execution of each is compared
too: a job may still see other files, or end otherwise.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from trainyard.equality.code_contents import Files
from trainyard.equality.observed_run import NotRunError, Observed, Setting, observe
from trainyard.equality.static_comparison import Cause, compare

AFTERWARDS = ("status", "failure reason", "attempts", "result", "output", "object")
"""First words of the facts that a job itself brings about."""
_WHY = "failure reason"
CHANCE = (
    "everything that the job was given is the same: it may not be deterministic; --twice "
    "executes the first definition twice, and leaves out what differs then"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer about two definitions."""

    cause: Cause | None = None
    but_for: tuple[str, ...] = ()
    evidence: str
    """What was executed and compared, or why nothing was."""

    @property
    def verdict(self) -> str:
        if self.cause:
            return "different"
        return "equal but for" if self.but_for else "equal"

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {"verdict": self.verdict, **asdict(self)}


def decide(
    first: Mapping[str, Any],
    second: Mapping[str, Any],
    setting: Setting,
    *,
    static: bool = False,
    twice: bool = False,
) -> Answer:
    """Compare two valid definitions.

    Args:
        static: execute nothing.
        twice: execute the first one twice, to know which jobs are not deterministic.

    Raises:
        DefinitionError: a parameter makes no sense.
        EmulatorError: the emulator cannot start here.
    """
    written = compare(first, second, setting.parameters, Files(setting.files).digest)
    if written.cause:
        why = "not executed: the definitions themselves differ"
        return Answer(cause=written.cause, evidence=why)
    if static:
        why = "not executed (--static): their normal forms are identical"
        return Answer(but_for=written.but_for, evidence=why)
    given = dict(setting.parameters)
    for name, other in written.parameters.items():
        given |= {name: given[other]} if other in given else {}
        given |= {other: given[name]} if name in given else {}
    setting = replace(setting, parameters=given)
    try:
        here, there = observe(first, setting), observe(second, setting, written.names)
        again = observe(first, setting) if twice else here
    except NotRunError as why:
        said = f"not executed: {why}; their normal forms are identical"
        return Answer(but_for=written.but_for, evidence=said)
    chance = {(cause.step, cause.what) for cause in differences(here, again)}
    causes = (one for one in differences(here, there) if (one.step, one.what) not in chance)
    places = sorted(f"{step} {what}".strip() for step, what in chance)
    random = [f"what differs between two runs of the first, too: {place}" for place in places]
    return Answer(
        cause=next(causes, None),
        but_for=(*written.but_for, *random),
        evidence=_evidence(here, there),
    )


def differences(first: Observed, second: Observed) -> Iterator[Cause]:
    """Iterate over the facts that differ, a step's before those of steps that ended later."""
    for step in {**first.facts, **second.facts}:
        was, now = first.facts.get(step), second.facts.get(step)
        if was is None or now is None:
            states = ["ran" if one is not None else "did not run" for one in (was, now)]
            yield Cause(step=step, what="step", first=states[0], second=states[1])
            continue
        for fact in {**was, **now}:
            if was.get(fact) != now.get(fact):
                note = CHANCE if fact.startswith(AFTERWARDS) else ""
                values = was.get(fact), now.get(fact)
                yield Cause(step=step, what=fact, first=values[0], second=values[1], note=note)


def _evidence(first: Observed, second: Observed) -> str:
    facts = [fact for step in first.facts.values() for fact in step]
    kinds = {"request": "values of requests", "file": "files that jobs saw", "output": "outputs"}
    counts = [f"{sum(f.startswith(k) for f in facts)} {title}" for k, title in kinds.items()]
    ends = " and ".join(dict.fromkeys([first.status, second.status]))
    failed = next(
        (name for name, facts in first.facts.items() if facts.get(_WHY, '""') != '""'), ""
    )
    why = f"; {failed} failed: {first.facts[failed][_WHY]}" if failed else ""
    return f"executed here, {ends}: {len(first.facts) - 1} steps, {', '.join(counts)}{why}"
