"""Two versions of a file as a unified diff, whatever their content."""

import difflib
from collections.abc import Iterator
from dataclasses import dataclass

from trainyard.runs.comparing.archives import LARGEST_TEXT

CONTEXT = 3
MOST_LINES = 4_000
"""Lines of a diff that are shown."""
LONGEST_LINE = 2_000
"""Characters of a line that are shown."""
MOST_PAIRS = 25_000_000
"""Lines of one side times lines of the other that are lined up: difflib's time may grow with it."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a diff."""

    sign: str
    """``+``, ``-``, a space, or ``@`` for a hunk's head."""
    text: str


@dataclass(frozen=True, slots=True)
class Diff:
    """A file's two versions."""

    lines: tuple[Line, ...] = ()
    added: int = 0
    removed: int = 0
    note: str = ""
    """What is not shown, and why."""


def diff(old: bytes | None, new: bytes | None) -> Diff:
    """What changed from ``old`` to ``new``; None: there was no such file."""
    for content in (old, new):
        if content is not None and len(content) > LARGEST_TEXT:
            return Diff(note=f"a version has more than {LARGEST_TEXT:,} bytes")
        if content is not None and is_binary(content):
            return Diff(note="a binary file")
    before, after = _lines(old), _lines(new)
    found = list(_unified(before, after))
    shown = tuple(Line(line.sign, _cut(line.text)) for line in found[:MOST_LINES])
    more = len(found) - len(shown)
    return Diff(
        lines=shown,
        added=sum(line.sign == "+" for line in found),
        removed=sum(line.sign == "-" for line in found),
        note=f"{more:,} further lines of the difference are not shown" if more else "",
    )


def is_binary(content: bytes) -> bool:
    """Whether it is no UTF-8, or has a zero byte."""
    if b"\0" in content:
        return True
    try:
        content.decode()
    except UnicodeDecodeError:
        return True
    return False


def _lines(content: bytes | None) -> list[str]:
    """Its lines with their ends: one that has none, or another one, is another line."""
    return (content or b"").decode().split("\n") if content else []


def _cut(text: str) -> str:
    if len(text) <= LONGEST_LINE:
        return text
    return f"{text[:LONGEST_LINE]} … {len(text) - LONGEST_LINE:,} further characters"


def _unified(old: list[str], new: list[str]) -> Iterator[Line]:
    same = _same_start(old, new)
    end = _same_start(old[same:][::-1], new[same:][::-1])
    if (len(old) - same - end) * (len(new) - same - end) > MOST_PAIRS:
        yield Line("@", "too different to be lined up: all of the old, then all of the new")
        yield from (Line("-", line) for line in old[same : len(old) - end])
        yield from (Line("+", line) for line in new[same : len(new) - end])
        return
    for line in list(difflib.unified_diff(old, new, n=CONTEXT, lineterm=""))[2:]:
        yield Line(line[0], line if line[0] == "@" else line[1:])


def _same_start(one: list[str], other: list[str]) -> int:
    for position, (mine, yours) in enumerate(zip(one, other, strict=False)):
        if mine != yours:
            return position
    return min(len(one), len(other))
