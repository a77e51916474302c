"""Say of two definitions: equal, equal but for what does not matter, or different and where.

They are different where their normal forms are. Where these agree, an execution of each is compared
too: a job may still see other files, or end otherwise.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from trainyard.equality.code_contents import Files
from trainyard.equality.observed_run import NotRunError, Observation, Setting, observe
from trainyard.equality.static_comparison import Cause, compare

AFTERWARDS = ("status", "failure reason", "attempts", "result", "output", "object")
"""First words of the facts that a job itself brings about."""
_REASON = "failure reason"
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
    comparison = compare(first, second, setting.parameters, Files(setting.files).digest)
    if comparison.cause:
        reason = "not executed: the definitions themselves differ"
        return Answer(cause=comparison.cause, evidence=reason)
    if static:
        reason = "not executed (--static): their normal forms are identical"
        return Answer(but_for=comparison.but_for, evidence=reason)
    parameters = dict(setting.parameters)
    for name, other in comparison.parameters.items():
        parameters |= {name: parameters[other]} if other in parameters else {}
        parameters |= {other: parameters[name]} if name in parameters else {}
    setting = replace(setting, parameters=parameters)
    try:
        first_run, second_run = observe(first, setting), observe(second, setting, comparison.names)
        repeat_run = observe(first, setting) if twice else first_run
    except NotRunError as reason:
        evidence = f"not executed: {reason}; their normal forms are identical"
        return Answer(but_for=comparison.but_for, evidence=evidence)
    chance = {(cause.step, cause.what) for cause in differences(first_run, repeat_run)}
    causes = (
        cause
        for cause in differences(first_run, second_run)
        if (cause.step, cause.what) not in chance
    )
    places = sorted(f"{step} {fact}".strip() for step, fact in chance)
    random = [f"what differs between two runs of the first, too: {place}" for place in places]
    return Answer(
        cause=next(causes, None),
        but_for=(*comparison.but_for, *random),
        evidence=_evidence(first_run, second_run),
    )


def differences(first: Observation, second: Observation) -> Iterator[Cause]:
    """Iterate over the facts that differ, a step's before those of steps that ended later."""
    for step in {**first.facts, **second.facts}:
        was, now = first.facts.get(step), second.facts.get(step)
        if was is None or now is None:
            states = ["ran" if facts is not None else "did not run" for facts in (was, now)]
            yield Cause(step=step, what="step", first=states[0], second=states[1])
            continue
        for fact in {**was, **now}:
            if was.get(fact) != now.get(fact):
                note = CHANCE if fact.startswith(AFTERWARDS) else ""
                values = was.get(fact), now.get(fact)
                yield Cause(step=step, what=fact, first=values[0], second=values[1], note=note)


def _evidence(first: Observation, second: Observation) -> str:
    facts = [fact for step in first.facts.values() for fact in step]
    kinds = {"request": "values of requests", "file": "files that jobs saw", "output": "outputs"}
    counts = [f"{sum(f.startswith(k) for f in facts)} {title}" for k, title in kinds.items()]
    ends = " and ".join(dict.fromkeys([first.status, second.status]))
    failed_step = next(
        (name for name, facts in first.facts.items() if facts.get(_REASON, '""') != '""'), ""
    )
    reason = f"; {failed_step} failed: {first.facts[failed_step][_REASON]}" if failed_step else ""
    return f"executed here, {ends}: {len(first.facts) - 1} steps, {', '.join(counts)}{reason}"
