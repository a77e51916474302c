"""Find the first cause in the evidence of a failed step.

If the service's own message is the cause (no capacity, a spot interruption, a time limit, a missing
permission), that is the result. Else it is the earliest line that names a cause, or the earliest
exception, because what other ranks and launchers print afterwards follows from it.
``certainty`` says how sure that is. If no cause is found, the result says so.

A "clue" is a line that hints at a cause, "work" are lines that a program logs while it runs
normally.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from trainyard.common.log_lines import STANDS_IN
from trainyard.runs.why.logged_exceptions import (
    NAMED_EXCEPTION,
    Evidence,
    Level,
    Line,
    LoggedException,
    Signature,
    find_signature,
    iter_exceptions,
    iter_untraced_exceptions,
    parse_exception,
    states_failure,
)

# Find the lines of a failed step that hint at its cause, and decide how certain the cause is.

Certainty = Literal["certain", "likely", "unknown"]

SURVIVAL_LINES = 200
"""If a machine logged this many lines of work after a line, the line was not about what ended the
program."""

AFTERMATH = 2_000
"""Largest number of a machine's last lines that are examined."""

WORK_AFTER_EXCEPTION = 30
"""Largest number of lines of work, such as summaries and clean-up, that a program may log between
its fatal exception and its end."""

WORK_AFTER_OTHERS = 3
"""Largest number of lines of work that may follow a fatal error message without an exception. It is
smaller than ``WORK_AFTER_EXCEPTION`` because a program can print such a message and continue."""

_AFTERMATH = re.compile(
    r"^\s*(?:$|[=~^+*\u2500-\u257f-]{3}|frame #\d+|#\d+\s|\[|File |\w+\s+: |Traceback|\s{4}"
    r"|wandb: |\S+:\d+:\d+ \[\d+\] NCCL INFO )"
)
"""Match lines that follow a failure and are not work: horizontal rules, native frames, torchrun's
table."""

FAILING = re.compile(
    r"(?i)\b(?:error|fatal|fail(?:ed|ure)|critical|cannot|can't|could not|couldn't"
    r"|unable|denied|invalid|abort(?:ed)?|exception|missing"
    r"|exceed(?:s|ed|ing)?|too (?:large|big|long|many|few|small|high|low)|timed out|mismatch(?:ed)?"
    r"|has no attribute|no [\w ]{1,40} found|killed|Xid|[A-Z]\w*(?:Error|Exception)"
    r"|not (?:found|authorized|supported)"
    r"|only supported|supported only|(?:does|do) not exist|refused)\b"
)
"""Match words of lines that are about a failure."""

HARMLESS = re.compile(
    r"pip's dependency resolver does not currently|Unable to register cu\w+ factory"
    r"|computation_placer already registered|hostname of the client socket cannot be retrieved"
    r"|failed call to cuInit|cuda drivers on your machine"
    r"|Could not (?:find TensorRT|load dynamic library)|[Ee]rrors?[ =:]+0\b"
    r"|resource_tracker: |Running pip as the 'root' user|TF-TRT Warning|^SM_\w+=|No GPUs detected"
    r"|socket\.cpp.{0,200}\(errno: 97 |NCCL INFO NET/OFI Setting "
    r"|NCCL INFO (?:NCCL_\w+ set |Bootstrap ?: ?Using|NET/\w+ ?: (?:Using|dlerror=))"
)
"""Match lines that look like errors, and that healthy jobs also log."""

_OF_AWS = "aws/"
_AWS = re.compile(
    r"An error occurred \(|\bAWS\b|\bAmazon|[Ss]age[Mm]aker|\bS3\b|s3://|arn:aws|amazonaws|\bEC[2R]\b"
    r"|\b[Bb]oto"
)
_FOREIGN = re.compile(
    r"(?!(?:aio)?boto|sagemaker|s3transfer|awscli)[a-z]\w*\."
    r"|(?:Import|ModuleNotFound|FileNotFound|Key|Value|Type|Index|Attribute|Runtime|OS|Overflow)Error$"
)
"""Match exceptions of packages that do not talk to AWS, and Python's own. Their names do not prove
an error of AWS, because other services also have Throttled, Denied and InternalServerError."""

LIVES_ON = re.compile(
    r"(?i)\b(?:(?:using|with|by|to) (?:the )?defaults?|will be (?:ignored|skipped|initiali[sz]ed)"
    r"|ignor(?:ed|ing)|skipp(?:ed|ing)|left out|falling back|instead|disabled|optional|continuing"
    r"|starting (?:from scratch|fresh)|trying \d|attempt \d+ of)\b"
)
"""Match words by which a line says that the program has dealt with the problem and continues."""

_HEDGES = re.compile(
    r"(?i)\b(?:may|might|maybe|possibl[ey]|perhaps|probably|likely|could be|for example|such as"
    r"|make sure|ensure|either|check (?:if|that|whether))\b"
)
"""Match words after which a message only supposes or advises something."""

_DEATH = ("memory/killed", "ranks/watchdog", "hardware/segfault")
"""Causes that end a process without a message, and may be why another process failed."""

_FATAL = re.compile(
    r"(?i)^\W*(?:\S+ ){0,6}(?:error|fatal|panic)\b|kernel|NVRM|NCCL WARN|An error occurred \("
)
"""Match the beginning of a line that a program prints only when it ends."""

_CONTINUED = re.compile(
    r"(?i)\b(?:training|job|run|script|step|upload|evaluation|pipeline)\b.{0,30}"
    r"\b(?:completed?|finished|succeeded|successful(?:ly)?|done)\b"
    r"|\bsuccessfully\b|Reporting training SUCCESS"
    r"|\b(?:epoch|step|iter(?:ation)?)s?\b\W{0,4}\d+.{0,60}\b(?:loss|acc\w*|lr|perplexity|auc)\b"
    r"|\b\d+%\|.{0,60}it/s"
)
"""Match lines of a program that continues: its progress, or that it has finished its work."""

_FRAME = re.compile(r'^\s*(?:File "[^"]*", line \d+|line \d+, in \w+$)')


@dataclass(frozen=True, slots=True)
class Clue:
    """A line that hints at the cause."""

    number: int
    """Index of the line among all lines."""

    line: Line
    level: Level
    """What the line proves (see ``Signature.level``), which decides its position in the order."""

    origin: tuple[Signature, re.Match[str]] | LoggedException
    """The signature that it matches, with the match; or else the exception that it reports."""

    is_exact: bool = True
    """True if it was recognised by the exact words that a program, or AWS, prints."""

    exception: LoggedException | None = None
    """Exception whose traceback the line ends; None if there is none."""

    is_handled: bool = False
    """True if another exception was raised while this one was handled."""

    @property
    def name(self) -> str:
        """Name of the signature, or else the kind of the exception."""
        return self.origin.kind if isinstance(self.origin, LoggedException) else self.origin[0].name

    @property
    def named_exception(self) -> LoggedException | None:
        """Exception that the line names, with or without a traceback; None if it names none."""
        return self.exception or parse_exception(self.line)


def find_clues(lines: Sequence[Line]) -> list[Clue]:
    """Return the clues in the lines, in the order of the lines.

    Lines after which their machine continued to work for a long time are left out.
    """
    fatal = _find_final_lines(lines)
    every = _complete_frames([*iter_exceptions(lines)])
    exceptions = {exception.number: exception for exception in every if exception.follows is None}
    clues = {clue.number: clue for clue in iter_matching_clues(fatal, exceptions)}
    numbers = {number for number, _ in fatal}
    for number, exception in exceptions.items():
        if number in numbers and number not in clues and not exception.is_from_launcher:
            level: Level = "cause" if states_failure(exception.message) else "likely"
            level = "consequence" if exception.is_ignored else level
            clues[number] = Clue(number, exception.line, level, exception, exception=exception)
    for exception in every:
        if exception.is_handling and exception.follows in clues:
            clues[exception.follows] = _adjust_handled_clue(
                clues[exception.follows], exception, clues.get(exception.number)
            )
    return [clues[number] for number in sorted(clues)]


def _complete_frames(exceptions: list[LoggedException]) -> list[LoggedException]:
    """Return the exceptions with missing frames filled in from their chains.

    If the first exception of a chain has only frames of libraries, it gets the frame of the next
    exception in the chain that has another one, because only that traceback shows the caller.
    """
    calls: dict[int | None, str] = {}
    for exception in exceptions:
        if exception.frame:
            calls.setdefault(exception.follows, exception.frame)
    return [
        exception if exception.frame else replace(exception, frame=calls.get(exception.number, ""))
        for exception in exceptions
    ]


def _adjust_handled_clue(first: Clue, exception: LoggedException, clue: Clue | None) -> Clue:
    """Return the first clue of a chain, adjusted because handling it raised another exception.

    If the later exception matches a signature and the first does not, the later was the failure,
    so the first clue is lowered to "likely". Else the first one was the failure, but not certainly.

    Args:
        first: clue of the chain's first exception.
        exception: exception that was raised while the first was handled.
        clue: clue of ``exception``, if there is one.
    """
    if first.exception and first.exception.message and first.exception.message in exception.message:
        return first
    is_known = isinstance(first.origin, LoggedException) and clue is not None and clue.is_exact
    is_later = is_known and clue is not None and clue.level in ("service", "cause")
    return replace(first, level="likely" if is_later else first.level, is_handled=True)


def _find_final_lines(lines: Sequence[Line]) -> list[tuple[int, Line]]:
    """Return (index, line) of the lines after which their machine logged little work, so that they
    may be about what ended the program.
    """
    work, after = Counter[str](), Counter[str]()
    fatal_lines = []
    # Read backwards, because the lines after a line show whether its machine continued.
    for number in range(len(lines) - 1, -1, -1):
        line = lines[number]
        if work[line.host] < SURVIVAL_LINES and after[line.host] < AFTERMATH:
            fatal_lines.append((number, line))
            work[line.host] += _is_work(line)
            after[line.host] += 1
    return fatal_lines[::-1]


def _is_work(line: Line) -> bool:
    """Return whether a line is of a program that works normally, and is not about a failure."""
    return not (_AFTERMATH.match(line.unranked_text) or FAILING.search(line.text))


def iter_matching_clues(
    lines: Sequence[tuple[int, Line]],
    exceptions: Mapping[int, LoggedException] = MappingProxyType({}),
) -> Iterator[Clue]:
    """Iterate over the clues of lines that match a signature.

    Frames and code of tracebacks, harmless lines, and AWS's words in exceptions that are not AWS's
    are skipped.

    Args:
        lines: (index, line) of the lines to examine.
        exceptions: mapping of a line's index to the exception whose traceback it ends.
    """
    frames: set[tuple[str, int | None]] = set()
    for number, line in lines:
        process = (line.host, line.rank)
        is_code = process in frames and line.unranked_text.startswith("    ")
        (frames.add if _FRAME.match(line.unranked_text) else frames.discard)(process)
        if not is_code and process not in frames and not HARMLESS.search(line.text):
            recognition = find_signature(line.text)
            if recognition and not _is_foreign(line, recognition[0], exceptions.get(number)):
                yield _make_clue(number, line, recognition, exceptions)


def _is_foreign(line: Line, signature: Signature, exception: LoggedException | None) -> bool:
    """Return whether an AWS signature matched the exception of a package that is not AWS's."""
    if not signature.name.startswith(_OF_AWS) or _AWS.search(line.text):
        return False
    word = exception or parse_exception(line)
    return word is not None and _FOREIGN.match(word.kind) is not None


def _make_clue(
    number: int,
    line: Line,
    recognition: tuple[Signature, re.Match[str], bool],
    exceptions: Mapping[int, LoggedException],
) -> Clue:
    """Return the clue of a line that matches a signature, with its level lowered where needed.

    The level is lowered if the program may have continued after the line: because it logged it
    below an error or will retry, because the line does not report an error, or because it is a
    warning about files, packages and settings, which healthy programs also log.
    """
    signature, match, is_exact = recognition
    level, exception = signature.level, exceptions.get(number)
    is_reported = line.is_service_message or bool(
        exception or parse_exception(line) or FAILING.search(line.text)
    )
    is_first = (
        level in ("service", "cause") and is_reported or level == "hint" and exception is not None
    )
    if level in ("service", "cause", "hint") and (line.is_minor or not is_first):
        level = "likely"
    is_usual = line.is_minor and signature.name.startswith("program/")
    if line.is_retry or is_usual and not NAMED_EXCEPTION.search(line.unranked_text):
        level = "consequence"
    return Clue(number, line, level, (signature, match), is_exact, exception)


def assess_certainty(first: Clue, clues: Sequence[Clue], lines: Sequence[Line]) -> Certainty:
    """Return how certain it is that ``first`` is the cause.

    It is certain if three conditions hold: it is *specific*, which means that the exact words of
    AWS's reason, or of the exception that ended the program, name it; it is the *first*, which
    means that no error before it is unexplained and no other clue may be a cause; and it *ended*
    the program.

    Args:
        first: the clue that is the cause, if any is.
        clues: all clues.
        lines: all lines, into which the clues' numbers are indices.
    """
    if (
        first.level == "consequence"
        or isinstance(first.origin, LoggedException)
        and first.origin.is_cut
    ):
        return "unknown"
    sure = _is_specific(first) and not _has_rival_clue(first, clues)
    if first.line.is_service_message:
        # A message of level "service" is AWS's (or a watch rule's) own reason, and needs no
        # evidence in the log. Other messages of the service may only quote what the program said.
        is_own = first.level == "service"
        is_quoted = any(
            line.is_service_message and line.text.startswith("AlgorithmError") for line in lines
        )
        is_behind = first.exception is not None or is_quoted
        if is_behind and (first.name.startswith(_OF_AWS) or not is_own):
            return "likely"
        if is_own:
            return "certain" if sure else "likely"
    sure = sure and not _has_earlier_error(first, lines) and _has_ended(first, lines)
    return "certain" if sure else "likely"


def _is_specific(first: Clue) -> bool:
    """Return whether the clue's words say exactly what failed."""
    if isinstance(first.origin, LoggedException):  # no signature: the exception's own words count
        return not (first.origin.is_vague or first.is_handled)
    line, word = first.line, first.named_exception
    if _HEDGES.search(line.text[: first.origin[1].start()]) or LIVES_ON.search(line.text):
        return False
    if word is None and not (line.is_service_message or line.error or _FATAL.search(line.text)):
        return False
    is_own = word is not None and (word.is_program_wording or word.is_survivable or word.is_opened)
    return (
        first.level in ("service", "cause") and first.is_exact and not (is_own or first.is_handled)
    )


def _has_rival_clue(first: Clue, clues: Sequence[Clue]) -> bool:
    """Return whether another clue may also be the cause, or another process ended without a
    message.
    """
    others = [clue for clue in clues if clue.name != first.name]
    # The end of the failed process itself shows in the lines that follow at once.
    near = range(first.number, first.number + WORK_AFTER_OTHERS)
    died = any(clue.name in _DEATH and clue.number not in near for clue in others)
    return died or any(clue.level in ("service", "cause", "hint") for clue in others)


def _has_earlier_error(first: Clue, lines: Sequence[Line]) -> bool:
    """Return whether there is an error before the clue that does not repeat it."""
    before = [line for line in lines[: first.number] if not line.is_service_message][
        -SURVIVAL_LINES:
    ]
    errors = [
        line
        for line in before
        if (line.error or parse_exception(line))
        and not line.unranked_text.startswith("    ")
        and not HARMLESS.search(line.text)
    ]
    word = first.named_exception
    return any(word is None or not _is_repetition(line, word) for line in errors)


def _is_repetition(line: Line, exception: LoggedException) -> bool:
    """Return whether the line repeats the exception, or says that it came from a worker."""
    message = exception.message[:40]
    is_quoted = not message or message in line.text or "Caught " in line.text
    return is_quoted and exception.kind.rpartition(".")[2] in line.text


def _has_ended(first: Clue, lines: Sequence[Line]) -> bool:
    """Return whether the clue's process logged at most a few lines of work after the clue."""
    after = [line for line in lines[first.number + 1 :] if line.host == first.line.host]
    rank = first.line.rank
    own_lines = [line for line in after if rank is None or line.rank in (None, rank)]
    if any(_CONTINUED.search(line.text) for line in own_lines[:SURVIVAL_LINES]):
        return False
    work = [line for line in own_lines if _is_work(line)]
    return len(work) <= (WORK_AFTER_EXCEPTION if first.named_exception else WORK_AFTER_OTHERS)


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
"""Match failure reasons that only say that something failed, and lines of code instead of one."""

_STATES = re.compile(
    r"(?i)\b(?:could not|couldn't|cannot|can't|unable to|failed to|invalid"
    r"|not (?:found|supported|allowed|permitted|authorized|implemented|defined)|has no attribute"
    r"|no [\w ]{1,40} found|(?:does|do) not exist|is required|is missing|denied|refused|timed out"
    r"|exceed(?:s|ed)|too (?:large|big|long|many|few|small|high|low)|mismatch(?:ed)?|incompatible"
    r"|unsupported|unrecognized|no such"
    r"|only supported|supported only)\b(?! (?:if|when|unless)\b)"
)
"""Match words by which a line states what failed, and does not merely mention a failure."""

_PREFIX = re.compile(r"^(?:Algorithm|Client|InternalServer)Error: ?")
"""Match the prefix that SageMaker writes before the reason of a program or its container."""

_OF_AN_INTERFACE = ("AttributeError", "ImportError", "TypeError")
"""Exceptions that Python raises if a function, or an argument of one, does not exist."""

_QUOTED_MESSAGE = re.compile(r'ErrorMessage\s+"(?P<message>[^"].*?)"?\s*(?:Command|$)', re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """The cause of a step's failure."""

    step: str
    name: str
    """Name of the signature. If none matched, ``condition`` (of a Fail step), ``exception``,
    ``reason``, ``error`` or ``unknown``.
    """

    sentence: str
    certainty: Certainty
    fix: str = ""
    source: str = ""
    """Source of what the text means; empty if the sentence only quotes the program."""

    host: str = ""
    rank: int | None = None
    lines: tuple[str, ...] = ()
    """Log lines that show the cause; for a Fail step its conditions."""

    events: tuple[str, ...] = ()
    """For each line, the ID of its log event; an empty string for a line that is not from a log."""


def diagnose_failure(evidence: Evidence) -> Cause:
    """Return the first cause of the step's failure; its certainty is "unknown" if nothing shows it.

    Tried in this order: messages of the service, clues in the log, the reason of the step or the
    program, exceptions without tracebacks, consequences, and the first line about an error.
    """
    lines = (*evidence.lines, *evidence.service_lines)
    clues = find_clues(lines)
    service_clues = [*iter_matching_clues([*enumerate(lines)][len(evidence.lines) :])]
    # Likely clues come last, even if they are before a surer one in the log.
    order: list[tuple[list[Clue], tuple[Level, ...]]] = [
        (service_clues, ("service",)),
        (clues, ("service", "cause", "hint")),
        (clues, ("likely",)),
    ]
    for some, levels in order:
        if first := next((clue for clue in some if clue.level in levels), None):
            return _make_cause(evidence, first, assess_certainty(first, some, lines))
    if reason := _extract_own_reason(evidence.reason):
        return _quote_reason(evidence, reason)
    numbers = {clue.number for clue in clues}
    others = [
        exception
        for exception in iter_untraced_exceptions(evidence.lines)
        if exception.number not in numbers
    ]
    if others:
        exception = next(
            (exception for exception in others if states_failure(exception.message)), None
        )
        return _make_exception_cause(
            evidence, exception or others[0], "likely" if exception else "unknown"
        )
    if clues:
        return _make_cause(evidence, clues[0], "unknown")
    return _find_first_error(evidence) or _make_unknown_cause(evidence)


def _find_first_error(evidence: Evidence) -> Cause | None:
    """Return as a cause the first line that was logged as an error; else the first that states a
    failure, or that mentions one. Return None if there is none.
    """
    last = [
        log_line
        for log_line in evidence.lines[-SURVIVAL_LINES:]
        if not HARMLESS.search(log_line.text)
    ]
    if line := next(
        (log_line for log_line in last if log_line.error and states_failure(log_line.error)), None
    ):
        return _quote_line(
            evidence, line, f"the first error that was logged: {line.error}", "likely"
        )
    words = [
        log_line for log_line in last if FAILING.search(log_line.text) and not log_line.is_minor
    ]
    bare = ((log_line, log_line.unranked_text.strip()) for log_line in words)
    telling = [
        log_line
        for log_line, text in bare
        if not _SAYS_NOTHING.search(text) and states_failure(text)
    ]
    for line in telling:
        if _STATES.search(line.text) and not LIVES_ON.search(line.text):
            sentence = f"the first line that states a failure: {line.unranked_text.strip()}"
            return _quote_line(evidence, line, sentence, "likely")
    sentence = "no known cause; the first line that speaks of a failure"
    if len(evidence.lines) == 1 and not telling:
        sentence, telling = "no known cause; all that is said", [*evidence.lines]
    line = next(iter(telling), None)
    return (
        _quote_line(evidence, line, f"{sentence}: {line.unranked_text.strip()}", "unknown")
        if line
        else None
    )


def _quote_line(evidence: Evidence, line: Line, sentence: str, certainty: Certainty) -> Cause:
    """Return a cause that only quotes a line, because nothing more is known about it."""
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
    """Return a cause that consists of the step's reason.

    The reason is certain if the step itself gave it, such as a Fail or callback step. It is likely
    if the service quotes a program, or if an error was logged before: the cause may then be
    another. The reason's lines are left out if they only repeat the sentence.
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


def _make_cause(evidence: Evidence, clue: Clue, certainty: Certainty) -> Cause:
    """Return the cause that a clue shows, in the words of its signature or exception."""
    if isinstance(clue.origin, LoggedException):
        return _make_exception_cause(evidence, clue.origin, certainty)
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
    return _show_line(evidence, clue.line, _add_version_suspicion(evidence, cause, clue.exception))


def _make_exception_cause(
    evidence: Evidence, exception: LoggedException, certainty: Certainty
) -> Cause:
    """Return a cause that quotes an exception of the program."""
    cause = Cause(
        step=evidence.step,
        name="exception",
        sentence=_describe_exception(exception),
        certainty=certainty,
        fix=f"mend {exception.frame}, or what it was given" if exception.frame else "",
        rank=exception.rank,
    )
    return _show_line(evidence, exception.line, _add_version_suspicion(evidence, cause, exception))


def _add_version_suspicion(
    evidence: Evidence, cause: Cause, exception: LoggedException | None
) -> Cause:
    """Return the cause, adding that a version of a package may be the cause, if that is possible.

    It is possible if the log says that packages here have other versions than in the job's image,
    and either a library raised the exception, or it means that a function or argument is missing.
    """
    texts = (line.text.partition(STANDS_IN)[2] for line in evidence.lines if STANDS_IN in line.text)
    differs = next(texts, "").strip()
    if not (
        exception and differs and (exception.is_from_library or exception.kind in _OF_AN_INTERFACE)
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
    """Return a sentence that says which process raised the exception, where, and its message."""
    process = "the program" if exception.rank is None else f"rank {exception.rank}"
    host = f" on {exception.line.host}" if exception.line.host else ""
    frame_suffix = f" at {exception.frame}" if exception.frame else ""
    message = f"{exception.kind}: {exception.message}" if exception.message else exception.kind
    return f"{process}{host} was the first to raise{frame_suffix}: {message}"


def _extract_own_reason(reason: str) -> str:
    """Return the program's own words in a failure reason, without the text that SageMaker adds.

    Return an empty string if they only say that something failed.
    """
    # The training toolkit quotes the end of standard error.
    if match := _QUOTED_MESSAGE.search(reason):
        rows = [row.strip().strip('"') for row in match["message"].splitlines() if row.strip()]
        errors = [row for row in rows if parse_exception(Line("", 0, row))]
        # Without an exception the last row is used, because the quotation is the output's end.
        telling = [row for row in (*errors, *rows[::-1]) if not _SAYS_NOTHING.search(row)]
        return telling[0].lstrip(": ") if telling else ""
    first = next((row.strip() for row in reason.splitlines() if row.strip()), "")
    first = _PREFIX.sub("", first)
    first = re.sub(r"(?i),? ?exit code: ?-?\d+\W*$", "", first).strip()
    return "" if _SAYS_NOTHING.search(first) else first


def _show_line(evidence: Evidence, line: Line, cause: Cause) -> Cause:
    """Return the cause with the line and its neighbours in the log of its machine.

    A message of the service has no neighbours.
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


def _make_unknown_cause(evidence: Evidence) -> Cause:
    """Return a cause that says that none was found, with the reason and the log's last lines."""
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
