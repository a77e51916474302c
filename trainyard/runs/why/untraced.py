"""Exceptions that a line names and no traceback leads to: a log's piece, another language's."""

import re
from collections.abc import Iterator, Sequence

from trainyard.runs.why.evidence import Line
from trainyard.runs.why.exceptions import SURVIVABLE, Raised
from trainyard.runs.why.messages import completed

NAMED = re.compile(
    r"(?:^|[\s|\]\"'])(?P<kind>(?:\w+\.)*(?:[A-Z]\w*(?:Errors?|Exceptions?|Expired|Timeout"
    r"|NotFound|Denied|Failure|Exceeded|Refused|Unavailable)|Exception)"
    r"|(?:(?<=^)|(?<=ERROR ))(?:[a-z_]\w*\.)+[A-Z][A-Za-z]*[a-z]\w*)"
    r"(?: \(see above for traceback\))?(?:: {1,2}|(?<=Error):)(?P<message>\S.*)$"
)
_BARE = re.compile(
    r"^(?:(?:Exception|Error)(?: type| class| has occurred)?: +)?"
    r"(?P<kind>(?:\w+\.)*[A-Z]\w*(?:Error|Exception))$"
)
"""An exception's name alone, or as a field of a report."""

_OPENED = re.compile(r"^(?P<kind>(?:\w+\.)*[A-Z]\w*(?:Error|Exception)):$")
"""An exception whose message begins in the next line."""

_CALLED = re.compile(
    r"(?:^|[\s|:])(?P<kind>(?:\w+\.)*[A-Z]\w*(?:Error|Exception))\(['\"](?P<message>[^'\"].*?)['\"]\)?,?\)"
)
"""An exception as ``repr`` writes it."""

_REPORTED = re.compile(r"^(?:Exception )?[Mm]essage: +(?P<message>\S.*)$")
"""The field of a report that follows an exception's name."""

_CAUSED = re.compile(r"^\s*Caused by: (?P<kind>(?:[\w$]+\.)*[A-Z][\w$]*)(?:: ?(?P<message>.*))?$")
_JAVA = re.compile(r"^\s+at \S|^\s*\.\.\. \d+ (?:more|common)|^\s*$|^\s*(?:Driver|Suppressed)\b")
"""Java writes the first cause of an exception last, behind frames that begin so."""

TRACE = 500
"""Lines of one trace of Java that are looked at."""


def untraced(lines: Sequence[Line]) -> Iterator[Raised]:
    """Lines that name an exception where no traceback leads to it: a log's piece, or another
    language's."""
    for number, each in enumerate(lines):
        bare = each.bare
        found = NAMED.search(bare) or _BARE.match(bare.strip()) or _CALLED.search(bare)
        found = found or _OPENED.match(bare.strip())
        if found and not each.is_minor:
            message = found.groupdict().get("message") or _reported(lines, number)
            is_survivable = SURVIVABLE.search(each.text) is not None
            one = Raised(
                number,
                each,
                found["kind"],
                message,
                "",
                is_survivable=is_survivable,
                rank=each.rank,
            )
            if not one.is_of_a_launcher:
                yield completed(one, lines)


def deepest(lines: Sequence[Line], one: Raised) -> Raised:
    """The exception that the last ``Caused by`` of a trace of Java names; else the one given."""
    found = one
    for number in range(one.number + 1, min(one.number + TRACE, len(lines))):
        text = lines[number].bare
        if cause := _CAUSED.match(text):
            message = cause["message"] or ""
            found = Raised(number, lines[number], cause["kind"], message, "", rank=one.rank)
        elif not _JAVA.match(text):
            break
    return found


def _reported(lines: Sequence[Line], number: int) -> str:
    """The message of an exception of which a report has a field for each part."""
    following = lines[number + 1].bare.strip() if number + 1 < len(lines) else ""
    if "has occurred" in lines[number].text:
        return following
    found = _REPORTED.match(following)
    return found["message"] if found else ""
