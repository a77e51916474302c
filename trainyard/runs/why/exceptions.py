"""Exceptions in a log: who raised, what, and where."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainyard.runs.why.evidence import Line

_BEGIN = "Traceback (most recent call last)"  # rich draws a box around it, without the colon
_CHAINED = re.compile(
    r"^(?:During handling of the above exception|The above exception was the dir)"
)
_RAISED = re.compile(r"^(?P<kind>(?:[A-Za-z_]\w*\.)*[A-Z]\w*)(?:: ?(?P<message>.*))?$")
_PLACE = re.compile(r'^\s+File "(?P<file>[^"]+)", line (?P<number>\d+)')
_LIBRARY = re.compile(r"site-packages|dist-packages|/lib/python3|^<|/torch/distributed/")
LAUNCHERS = frozenset(
    ("ChildFailedError", "CalledProcessError", "ExecuteUserScriptError", "SystemExit")
)
"""Exceptions of what started the program that failed."""


@dataclass(frozen=True, slots=True)
class Raised:
    """The first exception of a chain of them."""

    number: int
    """Of its last line among all lines."""

    line: Line
    kind: str
    """``ValueError``, with its module where the traceback has one."""

    message: str
    place: str
    """``train.py:42``, the innermost line that is no library's; empty where there is none."""

    @property
    def is_of_a_launcher(self) -> bool:
        return self.kind.rpartition(".")[2] in LAUNCHERS


@dataclass(slots=True)
class _Reading:
    """What one rank's (or, without ranks, one machine's) lines have shown so far."""

    place: str | None = None
    """None outside a traceback."""

    chained: bool = False


def raised(lines: Sequence[Line]) -> Iterator[Raised]:
    """The exceptions that ended a rank's traceback, but for those that followed from another."""
    readings: dict[tuple[str, int | None], _Reading] = {}
    for number, each in enumerate(lines):
        reading = readings.setdefault((each.host, each.rank), _Reading())
        text = each.bare
        if _BEGIN in text:
            reading.place = ""
        elif _CHAINED.match(text.strip()):
            reading.chained = True
        elif reading.place is not None:
            place = _PLACE.match(text)
            if place and not _LIBRARY.search(place["file"]):
                reading.place = f"{place['file'].rpartition('/')[2]}:{place['number']}"
            elif not place and not text.startswith("    "):
                end = _RAISED.match(text.strip())
                if end and not reading.chained:
                    yield Raised(number, each, end["kind"], end["message"] or "", reading.place)
                if end:
                    reading.place, reading.chained = None, False
