"""When a cause is certain, and not merely likely.

All of three have to hold. It is *specific*: named by the very words that AWS gives as its reason,
or that the exception has which ended the program, and these words are no wording of somebody's own,
nor another service's where AWS is meant.
It is the *first*: no error stands before it that it does not explain, and nothing else after it
claims to be a cause. And it *ended* the program: what printed it did not go on as before.
"""

import re
from collections.abc import Sequence
from typing import Literal

from trainyard.runs.why.clues import HARMLESS, LIVES_ON, OF_AWS, SURVIVED, Clue, is_work
from trainyard.runs.why.evidence import Line
from trainyard.runs.why.exceptions import Raised
from trainyard.runs.why.untraced import untraced

Certainty = Literal["certain", "likely", "unknown"]

AFTERWARDS = 30
"""Ordinary lines that may follow the exception of a program that ends: summaries, clean-up."""

AT_ONCE = 3
"""Those that may follow a mere line of error, which a program can print and go on."""

_CLAIMS = ("service", "cause", "hint")
_HEDGED = re.compile(
    r"(?i)\b(?:may|might|maybe|possibl[ey]|perhaps|probably|likely|could be|for example|such as"
    r"|make sure|ensure|either|check (?:if|that|whether))\b"
)
"""Words after which a message supposes, or advises, and states no longer."""

_DEATH = ("memory/killed", "ranks/watchdog", "hardware/segfault")
"""What ends a process without a word of its own, and may be why another one failed."""

_FATAL = re.compile(
    r"(?i)^\W*(?:\S+ ){0,6}(?:error|fatal|panic)\b|kernel|NVRM|NCCL WARN|An error occurred \("
)
"""How a line begins that a program prints when it ends, and none that lives."""

_WENT_ON = re.compile(
    r"(?i)\b(?:training|job|run|script|step|upload|evaluation|pipeline)\b.{0,30}"
    r"\b(?:completed?|finished|succeeded|successful(?:ly)?|done)\b"
    r"|\bsuccessfully\b|Reporting training SUCCESS|\bexit(?:ed)?(?: with)?(?: code| status)?:? 0\b"
    r"|\b(?:epoch|step|iter(?:ation)?)s?\b\W{0,4}\d+.{0,60}\b(?:loss|acc\w*|lr|perplexity|auc)\b"
    r"|\b\d+%\|.{0,60}it/s"
)
"""What a program writes that lives: its progress, and that it has done what it was to do."""


def certainty(first: Clue, clues: Sequence[Clue], lines: Sequence[Line]) -> Certainty:
    """Of the first of the ``clues`` in ``lines``, by whose numbers they go."""
    if first.level == "consequence" or isinstance(first.what, Raised) and first.what.is_cut:
        return "unknown"
    sure = _is_specific(first) and not _rivals(first, clues)
    if first.line.is_said:
        is_own = first.level == "service"  # AWS names its own reason, a watch rule its own
        if (first.name.startswith(OF_AWS) or not is_own) and _is_left_behind(first, lines):
            return "likely"
        if is_own:
            return "certain" if sure else "likely"
    sure = sure and not _earlier(first, lines) and _ended(first, lines)
    return "certain" if sure else "likely"


def _is_left_behind(first: Clue, lines: Sequence[Line]) -> bool:
    """Whether the service quotes the end of what one process wrote, which may have followed from
    another's."""
    said = (line.text for line in lines if line.is_said)
    return first.raised is not None or any(text.startswith("AlgorithmError") for text in said)


def _is_specific(first: Clue) -> bool:
    if isinstance(first.what, Raised):  # told in its own words
        one = first.what
        is_vague = one.is_survivable or one.is_handed_on or one.is_summary or one.is_opened
        return not (is_vague or one.is_of_nothing or first.is_handled)
    line = first.line
    if _HEDGED.search(line.text[: first.what[1].start()]) or LIVES_ON.search(line.text):
        return False
    word = first.raised or next(untraced([line]), None)
    if word is None and not (line.is_said or line.error or _FATAL.search(line.text)):
        return False
    is_own = word is not None and (word.is_mere_word or word.is_survivable or word.is_opened)
    is_vague = is_own or first.is_handled
    return first.level in ("service", "cause") and first.is_exact and not is_vague


def _rivals(first: Clue, clues: Sequence[Clue]) -> bool:
    """Whether something else claims to be the cause, too, or a process died without a word: of
    the program's own death the lines follow at once."""
    others = [one for one in clues if one.name != first.name]
    near = range(first.number, first.number + AT_ONCE)
    died = any(one.name in _DEATH and one.number not in near for one in others)
    return died or any(one.level in _CLAIMS for one in others)


def _earlier(first: Clue, lines: Sequence[Line]) -> bool:
    """Whether an error stands before it that it does not explain."""
    before = [line for line in lines[: first.number] if not line.is_said][-SURVIVED:]
    errors = [line for line in before if _is_error(line) and not HARMLESS.search(line.text)]
    word = first.raised or next(untraced([first.line]), None)
    return any(word is None or not _is_same(line, word) for line in errors)


def _is_error(line: Line) -> bool:
    is_told = bool(line.error) or next(untraced([line]), None) is not None
    return is_told and not line.bare.startswith("    ")


def _is_same(line: Line, word: Raised) -> bool:
    """Whether it is the exception once more, or that it came from a worker."""
    return f"{word.kind.rpartition('.')[2]}" in line.text and (
        not word.message or word.message[:40] in line.text or "Caught " in line.text
    )


def _ended(first: Clue, lines: Sequence[Line]) -> bool:
    """Whether what printed it did no ordinary work afterwards."""
    after = [line for line in lines[first.number + 1 :] if line.host == first.line.host]
    rank = first.line.rank
    mine = [line for line in after if rank is None or line.rank in (None, rank)]
    if any(_WENT_ON.search(line.text) for line in mine[:SURVIVED]):
        return False
    work = [line for line in mine if is_work(line)]
    is_exception = first.raised or next(untraced([first.line]), None)
    return len(work) <= (AFTERWARDS if is_exception else AT_ONCE)
