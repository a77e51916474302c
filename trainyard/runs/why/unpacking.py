"""The lines of a text, also of one that somebody has wrapped: JSON, HTML, a traceback on one line.

What wraps a log keeps its words and loses its lines: a logger writes an object of JSON for each
message, a page escapes it, and a FailureReason has a whole traceback between two spaces.
"""

import html
import json
import re
import textwrap
from collections.abc import Iterator

_ESCAPED = re.compile(r"&(?:quot|lt|gt|amp|apos|#\d{1,4}|#x[0-9a-fA-F]{1,4});|<br ?/?>")
_BREAK = re.compile(r"<br ?/?>")
_ON_ONE_LINE = re.compile(r'Traceback \(most recent call last\):? .*?File "')
_FRAME = re.compile(r'[ \t]+(?=File "[^"\n]{1,300}", line \d+)')
_CODE = re.compile(r'^(File "[^"]*", line \d+(?:, in \S+)?)[ \t]+(?=\S)')
_END = re.compile(
    r"[ \t]+(?=(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt)\b:)"
    r'|"?[ \t]+(?=Command "/)'
    r"|[ \t]+(?=(?:During handling of the above|The above exception was the direct))"
)
"""Where an exception's name, or what joins two of them, stands behind other words."""

_BEFORE = (
    re.compile(r"^\s*>+(?: |$)"),
    re.compile(
        r"^\s*\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?(?:\s|$)"
    ),
)
"""Of a pasted thread, and of a log as CloudWatch and ``kubectl logs --timestamps`` write it."""

LONGEST_OBJECT = 1 << 16
"""Characters of a line that is read as JSON."""

_MESSAGE = (
    *("message", "msg", "log", "@message", "textPayload", "event", "error", "err", "detail"),
    "cause",  # Step Functions
)
_TRACE = ("exc_info", "exception", "stack", "stack_trace", "stacktrace", "stack_info", "traceback")
_LEVEL = ("level", "levelname", "severity", "lvl", "@level", "log_level")


def undressed(text: str) -> str:
    """The text without what stands before each of its lines: a mark of quotation, a time, an
    indentation."""
    for before in _BEFORE:
        found = [row for row in text.splitlines() if row.strip()]
        if len(found) > 1 and all(map(before.match, found)):
            text = "\n".join(before.sub("", row, count=1) for row in text.splitlines())
    return textwrap.dedent(text)


def rows(text: str) -> list[str]:
    """The lines of a text; also where somebody pasted a string's literal, in which they end in
    ``\\n``."""
    found = text.splitlines()
    found = text.replace("\\n", "\n").splitlines() if len(found) == 1 else found
    return [part for row in found for part in _parts(row)]


def _parts(row: str) -> Iterator[str]:
    """What a line is when nothing wraps it."""
    if _ESCAPED.search(row):
        row = html.unescape(_BREAK.sub("\n", row))
    if row.lstrip().startswith("{") and row.rstrip().endswith("}"):
        yield from _logged(row)
    elif _ON_ONE_LINE.search(row):
        yield from _unfolded(row)
    else:
        yield from row.splitlines() or [row]


def _unfolded(row: str) -> Iterator[str]:
    """A traceback of one line, a line for a frame, its code and the exception each."""
    for part in _FRAME.sub("\n", row).split("\n"):
        first, *rest = _END.sub("\n", part).split("\n")
        if framed := _CODE.match(first):
            yield f"  {framed[1]}"
            yield f"    {first[framed.end() :]}"
        else:
            yield f"  {first}" if first.startswith('File "') else first
        yield from rest


def _logged(row: str) -> Iterator[str]:
    """What a logger wrote as an object of JSON: its level, its message, and its traceback."""
    try:
        entry = json.loads(row) if len(row) <= LONGEST_OBJECT else None
    except (ValueError, RecursionError):
        entry = None
    fields = entry if isinstance(entry, dict) else {}
    said = dict.fromkeys(fields[key] for key in _MESSAGE if isinstance(fields.get(key), str))
    traces = [fields[key] for key in _TRACE if isinstance(fields.get(key), str)]
    if not said and not traces:
        yield row
        return
    level = next((str(fields[key]).upper() for key in _LEVEL if key in fields), "")
    yield from ": ".join(filter(None, (level, *said))).splitlines()
    for trace in traces:
        yield from trace.splitlines()
