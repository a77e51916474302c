"""The lines of a failed step that say something of its cause."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from trainyard.runs.why.evidence import Line
from trainyard.runs.why.exceptions import Raised, raised
from trainyard.runs.why.messages import completed
from trainyard.runs.why.signatures import Level, Signature, recognised
from trainyard.runs.why.untraced import NAMED, untraced

SURVIVED = 200
"""After so many further lines of its machine an exception, or a text, was not what ended it."""

AFTERMATH = 2_000
"""Lines of a machine that are looked at, at most: those that tell of a failure are no work."""

_AFTERMATH = re.compile(
    r"^\s*(?:$|[=~^+*\u2500-\u257f-]{3}|frame #\d+|#\d+\s|\[|File |\w+\s+: |Traceback|\s{4}"
    r"|at \S+\(|wandb: |\S+:\d+:\d+ \[\d+\] NCCL INFO )"
)
"""What follows a failure without being work: rules, native frames, torchrun's table."""

FAILING = re.compile(
    r"(?i)\b(?:error|fatal|fail(?:ed|ure)|critical|cannot|can't|could not|couldn't"
    r"|unable|denied|invalid|abort(?:ed)?|exception|missing"
    r"|exceed(?:s|ed|ing)?|too (?:large|big|long|many|few|small|high|low)|timed out|mismatch(?:ed)?"
    r"|has no attribute|no [\w ]{1,40} found|killed|Xid|[A-Z]\w*(?:Error|Exception)"
    r"|not (?:found|authorized|supported)"
    r"|only supported|supported only|(?:does|do) not exist|refused)\b"
)
"""Words of a line that tells of a failure, and not of what is usual."""

HARMLESS = re.compile(
    r"pip's dependency resolver does not currently|Unable to register cu\w+ factory"
    r"|computation_placer already registered|hostname of the client socket cannot be retrieved"
    r"|failed call to cuInit|cuda drivers on your machine"
    r"|Could not (?:find TensorRT|load dynamic library)|[Ee]rrors?[ =:]+0\b"
    r"|resource_tracker: |Running pip as the 'root' user|TF-TRT Warning|^SM_\w+=|No GPUs detected"
    r"|socket\.cpp.{0,200}\(errno: 97 |NCCL INFO NET/OFI Setting "
    r"|NCCL INFO (?:NCCL_\w+ set |Bootstrap ?: ?Using|NET/\w+ ?: (?:Using|dlerror=))"
)
"""What healthy jobs log, too."""

OF_AWS = ("aws/", "kubernetes/")
_AWS = re.compile(
    r"An error occurred \(|\bAWS\b|\bAmazon|[Ss]age[Mm]aker|\bS3\b|s3://|arn:aws|amazonaws|\bEC[2R]\b"
    r"|\b(?:[Bb]oto|com\.amazon|software\.amazon)"
)
_FOREIGN = re.compile(
    r"(?!(?:aio)?boto|sagemaker|s3transfer|awscli|com\.amazon|software\.amazon|kubernetes)[a-z]\w*\."
    r"|(?:Import|ModuleNotFound|FileNotFound|Key|Value|Type|Index|Attribute|Runtime|OS|Overflow)Error$"
)
"""Exceptions of other packages, and Python's own: other services have Throttled, Denied and
InternalServerError, too."""

LIVES_ON = re.compile(
    r"(?i)\b(?:(?:using|with|by|to) (?:the )?defaults?|will be (?:ignored|skipped|initiali[sz]ed)"
    r"|ignor(?:ed|ing)|skipp(?:ed|ing)|left out|falling back|instead|disabled|optional|continuing"
    r"|starting (?:from scratch|fresh)|trying \d|attempt \d+ of)\b"
)
"""Words by which a line says that the program has dealt with it."""

_FRAME = re.compile(r'^\s*(?:File "[^"]*", line \d+|line \d+, in \w+$)')


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

    is_handled: bool = False
    """Whether another exception was raised while this one was handled."""

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
    fatal = _fatal(lines)
    every = _placed([completed(one, lines) for one in raised(lines)])
    exceptions = {one.number: one for one in every if one.follows is None}
    clues = {clue.number: clue for clue in known(fatal, exceptions)}
    numbers = {number for number, _ in fatal}
    for number, one in exceptions.items():
        if number in numbers and number not in clues and not one.is_of_a_launcher:
            if one.is_opened and (found := _named(one.message)):
                clues[number] = _clue(number, one.line, found, exceptions)
                continue
            level: Level = "likely" if one.is_summary else "cause"
            level = "consequence" if one.is_ignored else level
            clues[number] = Clue(number, one.line, level, one, raised=one)
    for one in every:
        if one.is_handling and one.follows in clues:
            clues[one.follows] = _handled(clues[one.follows], one, clues.get(one.number))
    return [clues[number] for number in sorted(clues)]


def _placed(every: list[Raised]) -> list[Raised]:
    """The exceptions; the first of a chain that has frames of libraries alone with the place of the
    next one that has another, for only that traceback shows who called."""
    calls: dict[int | None, str] = {}
    for one in every:
        if one.place:
            calls.setdefault(one.follows, one.place)
    return [one if one.place else replace(one, place=calls.get(one.number, "")) for one in every]


def _named(message: str) -> tuple[Signature, re.Match[str], bool] | None:
    """What is known of an exception's message, but for what is only told in its own words."""
    found = recognised(message)
    return None if found is None or found[0].name.startswith("unnamed/") else found


def _handled(first: Clue, one: Raised, clue: Clue | None) -> Clue:
    """The first of a chain where its handling raised another one. That one, if it is known and the
    first is not, was the failure; else the first was, and nobody can be certain."""
    if first.raised and first.raised.message and first.raised.message in one.message:
        return first
    is_known = isinstance(first.what, Raised) and clue is not None and clue.is_exact
    is_later = is_known and clue is not None and clue.level in ("service", "cause")
    return replace(first, level="likely" if is_later else first.level, is_handled=True)


def _fatal(lines: Sequence[Line]) -> list[tuple[int, Line]]:
    """The lines after which their machine did little ordinary work any more."""
    work, after = Counter[str](), Counter[str]()
    found = []
    for number in range(len(lines) - 1, -1, -1):
        line = lines[number]
        if work[line.host] < SURVIVED and after[line.host] < AFTERMATH:
            found.append((number, line))
            work[line.host] += is_work(line)
            after[line.host] += 1
    return found[::-1]


def is_work(line: Line) -> bool:
    """Whether it is an ordinary line, and none of those that follow a failure."""
    return not (_AFTERMATH.match(line.bare) or FAILING.search(line.text))


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
            one = exceptions.get(number)
            found = recognised(line.stated, one.within if one else "")
            if found and not _is_foreign(line, found[0], one):
                yield _clue(number, line, found, exceptions)


def _is_foreign(line: Line, signature: Signature, one: Raised | None) -> bool:
    """Whether an exception that is none of AWS's has words by which AWS's are known. What a lost
    file system says is Linux's."""
    is_of_aws = signature.name.startswith(OF_AWS) and signature.name != "aws/file-system"
    if not is_of_aws or _AWS.search(line.text):
        return False
    word = one or next(untraced([line]), None)
    return word is not None and _FOREIGN.match(word.kind) is not None


def _clue(
    number: int,
    line: Line,
    found: tuple[Signature, re.Match[str], bool],
    exceptions: Mapping[int, Raised],
) -> Clue:
    """What a program logs as information, warns of or tries again, it goes on after; of its own
    files, packages and settings healthy programs warn, too."""
    signature, match, is_exact = found
    level, one = signature.level, exceptions.get(number)
    word = one or next(untraced([line]), None)
    tells = line.is_said or word is not None or FAILING.search(line.text) is not None
    is_first = level in ("service", "cause") and tells or level == "hint" and one is not None
    if level in ("service", "cause", "hint") and (line.is_minor or not is_first):
        level = "likely"
    is_usual = line.is_minor and signature.name.startswith("program/")
    if line.is_tried_again or is_usual and not NAMED.search(line.bare):
        level = "consequence"
    return Clue(number, line, level, (signature, match), is_exact, one)
