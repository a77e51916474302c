"""The first cause among all that a failed step left behind.

What the service says of the job counts first, where it is the cause itself (no capacity, a spot
interruption, a time limit, a missing permission). Else the earliest line that names a cause, or the
earliest exception: what other ranks and launchers print afterwards follows from it. Where nothing
is known, that is said.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from trainyard.runs.why.evidence import Evidence, Line
from trainyard.runs.why.exceptions import Raised, raised
from trainyard.runs.why.signatures import SIGNATURES, Level, Signature

NEARBY = 2
"""Lines before and after the one that names the cause that are shown with it."""

SURVIVED = 200
"""After so many further lines of its machine an exception, or a text, was not what ended it."""

Certainty = Literal["certain", "likely", "unknown"]
CERTAINTY: Mapping[Level, Certainty] = {
    "service": "certain",
    "cause": "certain",
    "likely": "likely",
    "consequence": "unknown",
}

_SAYS_NOTHING = re.compile(
    r"^$|ExecuteUserScriptError|CalledProcessError|non-zero exit|See (?:job )?logs"
    r"|^(?:Algorithm|Client)Error:?$|^Please "
)
"""Reasons that only say that something failed."""

_QUOTED = re.compile(r'ErrorMessage "(?P<message>[^"].*?)"?\s*(?:Command|$)', re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why a step failed."""

    step: str
    name: str
    """Of the signature; else ``exception``, ``reason`` or ``unknown``."""

    sentence: str
    certainty: Certainty
    fix: str = ""
    source: str = ""
    """Where the text's meaning is from; empty for what the program itself says."""

    host: str = ""
    rank: int | None = None
    lines: tuple[str, ...] = ()
    """The evidence."""


@dataclass(frozen=True, slots=True)
class _Clue:
    """A line that says something of the cause."""

    number: int
    line: Line
    level: Level
    what: tuple[Signature, re.Match[str]] | Raised


def diagnose(evidence: Evidence) -> Cause:
    """The first cause of the step's failure; "unknown" rather than a guess."""
    said = [*_known(list(enumerate(evidence.said)))]
    logged = sorted(_logged((*evidence.lines, *evidence.said)), key=lambda clue: clue.number)
    order: list[tuple[list[_Clue], tuple[Level, ...]]] = [
        (said, ("service",)),
        (logged, ("service", "cause")),
        (logged, ("likely",)),
    ]
    for clues, levels in order:
        if first := next((clue for clue in clues if clue.level in levels), None):
            return _told(evidence, first)
    if reason := _own_reason(evidence.reason):
        shown = tuple(evidence.reason.splitlines()[:5])
        step = evidence.step
        return Cause(step=step, name="reason", sentence=reason, certainty="certain", lines=shown)
    return _told(evidence, logged[0]) if logged else _unknown(evidence)


def _logged(lines: Sequence[Line]) -> Iterator[_Clue]:
    """The lines that say something, but for what their machine went on after."""
    left, seen = Counter(line.host for line in lines), Counter[str]()
    fatal = []
    for number, line in enumerate(lines):
        seen[line.host] += 1
        if left[line.host] - seen[line.host] < SURVIVED:
            fatal.append((number, line))
    clues = {clue.number: clue for clue in _known(fatal)}
    numbers = {number for number, _ in fatal}
    for one in raised(lines):
        if one.number in numbers and one.number not in clues and not one.is_of_a_launcher:
            clues[one.number] = _Clue(one.number, one.line, "cause", one)
    yield from clues.values()


def _known(lines: Sequence[tuple[int, Line]]) -> Iterator[_Clue]:
    for number, line in lines:
        for signature in SIGNATURES:
            if found := signature.pattern.search(line.text):
                yield _Clue(number, line, signature.level, (signature, found))
                break


def _told(evidence: Evidence, clue: _Clue) -> Cause:
    if isinstance(clue.what, Raised):
        return _exception(evidence, clue.what)
    signature, found = clue.what
    sentence, fix = signature.told(found)
    return Cause(
        step=evidence.step,
        name=signature.name,
        sentence=sentence,
        certainty=CERTAINTY[signature.level],
        fix=fix,
        source=signature.source,
        host=clue.line.host,
        rank=clue.line.rank,
        lines=_around(evidence, clue.line),
    )


def _exception(evidence: Evidence, one: Raised) -> Cause:
    who = "the program" if one.line.rank is None else f"rank {one.line.rank}"
    where = f" on {one.line.host}" if one.line.host else ""
    at = f" at {one.place}" if one.place else ""
    what = f"{one.kind}: {one.message}" if one.message else one.kind
    return Cause(
        step=evidence.step,
        name="exception",
        sentence=f"{who}{where} was the first to raise{at}: {what}",
        certainty="certain",
        fix=f"mend {one.place}, or what it was given" if one.place else "",
        host=one.line.host,
        rank=one.line.rank,
        lines=_around(evidence, one.line),
    )


def _own_reason(reason: str) -> str:
    """What the program left as its reason, without what SageMaker writes around it."""
    if quoted := _QUOTED.search(reason):  # the training toolkit: the end of standard error
        return quoted["message"].strip().splitlines()[-1].strip()
    first = next((row.strip() for row in reason.splitlines() if row.strip()), "")
    first = re.sub(r"^(?:AlgorithmError|ClientError): ?", "", first)
    first = re.sub(r",? exit code: ?\d+$", "", first).strip()
    return "" if _SAYS_NOTHING.search(first) else first


def _around(evidence: Evidence, line: Line) -> tuple[str, ...]:
    """The line with its neighbours in its machine's log; alone where the service said it."""
    mine = [each for each in evidence.lines if each.host == line.host]
    at = next((n for n, each in enumerate(mine) if each is line), None)
    if at is None:
        return (line.text,)
    return tuple(each.text for each in mine[max(0, at - NEARBY) : at + NEARBY + 1])


def _unknown(evidence: Evidence) -> Cause:
    last = [line.text for line in evidence.lines[-5:]]
    return Cause(
        step=evidence.step,
        name="unknown",
        sentence="nothing that is known here says why",
        certainty="unknown",
        fix="read its log from the end",
        lines=(*evidence.reason.splitlines()[:3], *last),
    )
