"""The lines of a failed step that say something of its cause."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from trainyard.runs.why.evidence import Line
from trainyard.runs.why.exceptions import Raised, raised, untraced
from trainyard.runs.why.signatures import SIGNATURES, Level, Signature

SURVIVED = 200
"""After so many further lines of its machine an exception, or a text, was not what ended it."""

FAILING = re.compile(
    r"(?i)\b(?:error|fatal|fail(?:ed|ure)|critical|cannot|can't|could not|couldn't"
    r"|unable|denied|invalid|abort(?:ed)?|exception|missing"
    r"|killed|Xid|[A-Z]\w*(?:Error|Exception)|not (?:found|authorized|supported)|refused)\b"
)
"""Words of a line that tells of a failure, and not of what is usual."""

HARMLESS = re.compile(
    r"pip's dependency resolver does not currently|Unable to register cu\w+ factory"
    r"|computation_placer already registered|hostname of the client socket cannot be retrieved"
    r"|failed call to cuInit|cuda drivers on your machine"
    r"|Could not (?:find TensorRT|load dynamic library)|[Ee]rrors?[ =:]+0\b"
    r"|Running pip as the 'root' user|TF-TRT Warning|^SM_\w+=|No GPUs detected"
    r"|NCCL INFO (?:NCCL_\w+ set |Bootstrap ?: ?Using|NET/\w+ ?: (?:Using|dlerror=))"
)
"""What healthy jobs log, too."""

_FRAME = re.compile(r'^\s*File "[^"]*", line \d+')


@dataclass(frozen=True, slots=True)
class Clue:
    """A line that says something of the cause."""

    number: int
    """Of the line among all lines."""

    line: Line
    level: Level
    """Its place in the order of causes."""

    what: tuple[Signature, re.Match[str]] | Raised
    is_exact: bool = True
    """Whether it was known by the very words that a program, or AWS, prints."""

    raised: Raised | None = None
    """The exception on whose line it stands."""

    @property
    def name(self) -> str:
        """Of the signature; else the exception's kind."""
        return self.what.kind if isinstance(self.what, Raised) else self.what[0].name

    @property
    def says(self) -> bool:
        """Whether it tells more than its name: an exception's message, or a signature's groups."""
        return isinstance(self.what, Raised) or any(self.what[1].groups())


def logged(lines: Sequence[Line]) -> list[Clue]:
    """What is known of the lines, but for those that their machine went on long after."""
    left, seen = Counter(line.host for line in lines), Counter[str]()
    fatal = []
    for number, line in enumerate(lines):
        seen[line.host] += 1
        if left[line.host] - seen[line.host] < SURVIVED:
            fatal.append((number, line))
    exceptions = {one.number: one for one in raised(lines)}
    clues = {clue.number: clue for clue in known(fatal, exceptions)}
    numbers = {number for number, _ in fatal}
    for number, one in exceptions.items():
        if number in numbers and number not in clues and not one.is_of_a_launcher:
            clues[number] = Clue(number, one.line, "cause", one, raised=one)
    return [clues[number] for number in sorted(clues)]


def known(
    lines: Sequence[tuple[int, Line]], exceptions: Mapping[int, Raised] = MappingProxyType({})
) -> Iterator[Clue]:
    """The lines that a signature knows; a traceback's frames and code say nothing."""
    frames: set[tuple[str, int | None]] = set()
    for number, line in lines:
        who = (line.host, line.rank)
        is_code = who in frames and line.bare.startswith("    ")
        (frames.add if _FRAME.match(line.bare) else frames.discard)(who)
        if not is_code and who not in frames and not HARMLESS.search(line.text):
            for signature in SIGNATURES:
                if found := signature.search(line.stated):
                    yield _clue(number, line, (signature, found[0]), found[1], exceptions)
                    break


def _clue(
    number: int,
    line: Line,
    what: tuple[Signature, re.Match[str]],
    is_exact: bool,
    exceptions: Mapping[int, Raised],
) -> Clue:
    """What a program logs as information, warns of or tries again, it goes on after."""
    level, one = what[0].level, exceptions.get(number)
    word = one or next(untraced([line]), None)
    tells = line.is_said or word is not None or FAILING.search(line.text) is not None
    is_first = level in ("service", "cause") and tells or level == "hint" and one is not None
    if level in ("service", "cause", "hint") and (line.is_minor or not is_first):
        level = "likely"
    if line.is_tried_again:
        level = "consequence"
    return Clue(number, line, level, what, is_exact, one)
