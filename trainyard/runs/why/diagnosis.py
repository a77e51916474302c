"""Find the first cause in the evidence of a failed step.

The service's own message counts first, where it is the cause itself (no capacity, a spot
interruption, a time limit, a missing permission). Else the earliest line that names a cause, or the
earliest exception: what other ranks and launchers print afterwards follows from it. ``certainty``
says how sure that is. If no cause is found, the result says so.
"""

import re
from dataclasses import dataclass, replace

from trainyard.common.log_lines import STANDS_IN
from trainyard.runs.why.clues import (
    FAILING,
    HARMLESS,
    LIVES_ON,
    SURVIVAL_LINES,
    Certainty,
    Clue,
    certainty,
    find_clues,
    matching_lines,
)
from trainyard.runs.why.known_causes import Level
from trainyard.runs.why.logged_exceptions import (
    LoggedException,
    find_untraced,
    parse_exception,
    tells,
)
from trainyard.runs.why.step_evidence import Evidence, Line

NEARBY = 2
"""Number of lines shown before and after the line that names the cause."""

_SAYS_NOTHING = re.compile(
    r"^$|ExecuteUserScriptError|CalledProcessError|non-zero exit|[Ss]ee (?:job )?logs"
    r"|^(?:Algorithm|Client)Error:?$|^Please |^(?i:framework error|exit code)\b"
    r"|^(?:raise |return |File \"|at |\^+$)|[Cc]heck (?:the )?(?:CloudWatch )?logs"
    r"|^[\w '()\[\]-]{0,60}(?i:errors?|failures?|failed|exceptions?)[\w ]{0,30}:?$"
    r"|^(?:Caused by|Error):$"
    r"|(?i:(?:can't|cannot|unable to) (?:process|complete|handle) (?:your|the|this) request\b)"
    r"|(?i:one or (?:more|multiple) steps failed|^(?:\w+ job|step|execution) (?:has )?failed\W*$)"
)
"""Reasons that only say that something failed, and lines of code in place of one."""

_STATES = re.compile(
    r"(?i)\b(?:could not|couldn't|cannot|can't|unable to|failed to|invalid"
    r"|not (?:found|supported|allowed|permitted|authorized|implemented|defined)|has no attribute"
    r"|no [\w ]{1,40} found|(?:does|do) not exist|is required|is missing|denied|refused|timed out"
    r"|exceed(?:s|ed)|too (?:large|big|long|many|few|small|high|low)|mismatch(?:ed)?|incompatible"
    r"|unsupported|unrecognized|no such"
    r"|only supported|supported only)\b(?! (?:if|when|unless)\b)"
)
"""Words by which a line states what failed, and does not merely mention a failure."""

_PREFIX = re.compile(r"^(?:Algorithm|Client|InternalServer)Error: ?")
"""Prefix that SageMaker writes before the reason of a program or its container."""

_OF_AN_INTERFACE = ("AttributeError", "ImportError", "TypeError")
"""Exceptions that Python raises for a function, or an argument of one, that is not there."""

_QUOTED_MESSAGE = re.compile(r'ErrorMessage\s+"(?P<message>[^"].*?)"?\s*(?:Command|$)', re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """The cause of a step's failure."""

    step: str
    name: str
    """Name of the signature; else ``condition`` (of a Fail step), ``exception``, ``reason``,
    ``error`` or ``unknown``.
    """

    sentence: str
    certainty: Certainty
    fix: str = ""
    source: str = ""
    """Source of the text's meaning; empty for the program's own words."""

    host: str = ""
    rank: int | None = None
    lines: tuple[str, ...] = ()
    """Log lines that show the cause; of a Fail step its conditions."""

    events: tuple[str, ...] = ()
    """ID of each line's event in the log; empty for a line that is not from a log."""


def diagnose(evidence: Evidence) -> Cause:
    """Return the first cause of the step's failure; "unknown" rather than a guess."""
    lines = (*evidence.lines, *evidence.service_lines)
    clues = find_clues(lines)
    service_clues = [*matching_lines([*enumerate(lines)][len(evidence.lines) :])]
    order: list[tuple[list[Clue], tuple[Level, ...]]] = [
        (service_clues, ("service",)),
        (clues, ("service", "cause", "hint")),
        (clues, ("likely",)),
    ]
    for some, levels in order:
        if first := next((clue for clue in some if clue.level in levels), None):
            return _cause(evidence, first, certainty(first, some, lines))
    if reason := _own_reason(evidence.reason):
        return _quote_reason(evidence, reason)
    numbers = {clue.number for clue in clues}
    others = [
        exception for exception in find_untraced(evidence.lines) if exception.number not in numbers
    ]
    if others:
        exception = next((exception for exception in others if tells(exception.message)), None)
        return _exception(evidence, exception or others[0], "likely" if exception else "unknown")
    if clues:
        return _cause(evidence, clues[0], "unknown")
    return _first_error(evidence) or _unknown(evidence)


def _first_error(evidence: Evidence) -> Cause | None:
    """Return the first line that calls itself an error; else the first that states a failure, or at
    least mentions one.
    """
    last = [
        log_line
        for log_line in evidence.lines[-SURVIVAL_LINES:]
        if not HARMLESS.search(log_line.text)
    ]
    if line := next(
        (log_line for log_line in last if log_line.error and tells(log_line.error)), None
    ):
        return _quote_line(
            evidence, line, f"the first error that was logged: {line.error}", "likely"
        )
    words = [
        log_line for log_line in last if FAILING.search(log_line.text) and not log_line.is_minor
    ]
    bare = ((log_line, log_line.bare.strip()) for log_line in words)
    telling = [
        log_line for log_line, text in bare if not _SAYS_NOTHING.search(text) and tells(text)
    ]
    for line in telling:
        if _STATES.search(line.text) and not LIVES_ON.search(line.text):
            sentence = f"the first line that states a failure: {line.bare.strip()}"
            return _quote_line(evidence, line, sentence, "likely")
    sentence = "no known cause; the first line that speaks of a failure"
    if len(evidence.lines) == 1 and not telling:
        sentence, telling = "no known cause; all that is said", [*evidence.lines]
    line = next(iter(telling), None)
    return (
        _quote_line(evidence, line, f"{sentence}: {line.bare.strip()}", "unknown") if line else None
    )


def _quote_line(evidence: Evidence, line: Line, sentence: str, certainty: Certainty) -> Cause:
    """Return a cause with a line's own words, about which no more is known."""
    cause = Cause(
        step=evidence.step,
        name="error",
        sentence=sentence,
        certainty=certainty,
        fix="read its log from there",
        rank=line.rank,
    )
    return _show_line(evidence, line, cause)


def _quote_reason(evidence: Evidence, reason: str) -> Cause:
    """Return a cause with the step's reason.

    A step's own reason (a Fail step's, a callback's) is certain. If the service quotes it, the
    cause may lie deeper, or in an error that was logged before. Lines that only repeat the sentence
    are left out.
    """
    is_quoted = _PREFIX.match(evidence.reason) or _QUOTED_MESSAGE.search(evidence.reason)
    is_later = any(line.error for line in evidence.lines[-SURVIVAL_LINES:])
    return Cause(
        step=evidence.step,
        name="reason",
        sentence=reason,
        certainty="likely" if is_quoted or is_later else "certain",
        lines=tuple(evidence.reason.splitlines()[:5]) if evidence.reason.strip() != reason else (),
    )


def _cause(evidence: Evidence, clue: Clue, certainty: Certainty) -> Cause:
    if isinstance(clue.origin, LoggedException):
        return _exception(evidence, clue.origin, certainty)
    signature, match = clue.origin
    sentence, fix = signature.explain(match)
    if clue.exception and certainty == "likely":
        sentence = f"{_describe_exception(clue.exception)}. This usually means: {sentence}"
    cause = Cause(
        step=evidence.step,
        name=signature.name,
        sentence=sentence,
        certainty=certainty,
        fix=fix,
        source=signature.source,
        rank=clue.exception.rank if clue.exception else clue.line.rank,
    )
    return _show_line(evidence, clue.line, _or_versions(evidence, cause, clue.exception))


def _exception(evidence: Evidence, exception: LoggedException, certainty: Certainty) -> Cause:
    cause = Cause(
        step=evidence.step,
        name="exception",
        sentence=_describe_exception(exception),
        certainty=certainty,
        fix=f"mend {exception.place}, or what it was given" if exception.place else "",
        rank=exception.rank,
    )
    return _show_line(evidence, exception.line, _or_versions(evidence, cause, exception))


def _or_versions(evidence: Evidence, cause: Cause, exception: LoggedException | None) -> Cause:
    """Return the cause with another possible one: packages here are of other versions than those of
    the image, and a library raised the exception, or an interface is not as the program expects.
    """
    texts = (line.text.partition(STANDS_IN)[2] for line in evidence.lines if STANDS_IN in line.text)
    differs = next(texts, "").strip()
    if not (
        exception and differs and (exception.is_of_a_library or exception.kind in _OF_AN_INTERFACE)
    ):
        return cause
    image, _, packages = differs.partition(": ")
    also = f"It may also be a version: unlike {image}, this Python has {packages}"
    fix = "if it is a version, name an interpreter that has the image's: --python PATH"
    return replace(
        cause,
        certainty="likely" if cause.certainty == "certain" else cause.certainty,
        sentence=f"{cause.sentence.rstrip('.')}. {also}",
        fix="; ".join(filter(None, (cause.fix.rstrip("."), fix))),
    )


def _describe_exception(exception: LoggedException) -> str:
    process = "the program" if exception.rank is None else f"rank {exception.rank}"
    host = f" on {exception.line.host}" if exception.line.host else ""
    place = f" at {exception.place}" if exception.place else ""
    message = f"{exception.kind}: {exception.message}" if exception.message else exception.kind
    return f"{process}{host} was the first to raise{place}: {message}"


def _own_reason(reason: str) -> str:
    """Return the reason that the program left, without the text that SageMaker writes around it."""
    if match := _QUOTED_MESSAGE.search(reason):  # the training toolkit: the end of standard error
        rows = [row.strip().strip('"') for row in match["message"].splitlines() if row.strip()]
        errors = [row for row in rows if parse_exception(Line("", 0, row))]
        telling = [row for row in (*errors, *rows[::-1]) if not _SAYS_NOTHING.search(row)]
        return telling[0].lstrip(": ") if telling else ""
    first = next((row.strip() for row in reason.splitlines() if row.strip()), "")
    first = _PREFIX.sub("", first)
    first = re.sub(r"(?i),? ?exit code: ?-?\d+\W*$", "", first).strip()
    return "" if _SAYS_NOTHING.search(first) else first


def _show_line(evidence: Evidence, line: Line, cause: Cause) -> Cause:
    """Return the cause with the line and its neighbours in its machine's log; without neighbours if
    the service said it.
    """
    host_lines = [other for other in evidence.lines if other.host == line.host]
    position = next((n for n, other in enumerate(host_lines) if other is line), None)
    near = (
        [line]
        if position is None
        else host_lines[max(0, position - NEARBY) : position + NEARBY + 1]
    )
    texts, events = (
        tuple(neighbour.text for neighbour in near),
        tuple(neighbour.event for neighbour in near),
    )
    return replace(cause, host=line.host, lines=texts, events=events)


def _unknown(evidence: Evidence) -> Cause:
    failing = [line for line in evidence.lines[-SURVIVAL_LINES:-5] if FAILING.search(line.text)]
    last = [line.text for line in (*failing[-5:], *evidence.lines[-5:])]
    return Cause(
        step=evidence.step,
        name="unknown",
        sentence="nothing that is known here says why",
        certainty="unknown",
        fix="read its log from the end",
        lines=(*evidence.reason.splitlines()[:3], *last),
    )
