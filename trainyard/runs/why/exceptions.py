"""Exceptions in a log: who raised, what, and where."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from trainyard.runs.why.evidence import Line

_BEGIN = "Traceback (most recent call last)"  # rich draws a box around it, without the colon
_CHAINED = re.compile(
    r"^(?:(?P<implicit>During handling of the above exception)|The above exception was the dir)"
)
_GROUP = re.compile(r"^ +[|+] ")
"""What Python draws before the lines of an ExceptionGroup."""

_WORKER = re.compile(r"^\((?:[^()]{1,60}[ ,])?pid=\d+[^)]{0,80}\)")
"""What Ray writes before the lines of a worker."""

_RAISED = re.compile(
    r"^(?P<kind>(?:[A-Za-z_]\w*\.)*[A-Z]\w*|(?:[A-Za-z_]\w*\.)+(?:error|[gh]\w*error|timeout))"
    r"(?:: ?(?P<message>.*))?$"
)
"""Also ``cv2.error``, ``struct.error``, ``socket.gaierror`` and ``socket.timeout``."""

_PLACE = re.compile(
    r'^\s*File "(?P<file>[^"]+)", line (?P<number>\d+)(?:, in (?P<function>[\w.<>]+))?'
)
_LIBRARY = re.compile(
    r"site-packages|dist-packages|/lib/python3|^<|/torch/distributed/|\.(?:pyx|pxi|pxd)$"
)
"""Also what Cython compiled: its frames name the source, relative to the package's repository."""

_COMMAND = re.compile(r"^\s*sys\.exit\(")
"""The only statement of the command (``torchrun``) that pip writes for a package."""
_WAITING = re.compile(
    r"/torch/multiprocessing/|/torch/distributed/(?:launcher|elastic|run)|/horovod/runner/"
    r"|/accelerate/commands/|/deepspeed/launcher/|/subprocess\.py|/concurrent/futures/"
    r"|/multiprocess(?:ing)?/pool|/joblib/|/ray/_private/|/sagemaker_(?:training|containers)/"
    r"|/(?:papermill|nbclient)/|/sagemaker/(?:session|local)"
)
"""Files of libraries that wait for another process, or machine, and raise what became of it."""

_WRAPPED = re.compile(r"^Caught \w+ in (?:DataLoader worker|pin memory|replica)")
"""torch raises a worker's exception again, with the worker's own traceback below it."""

_EXCEPTIONAL = re.compile(
    r"(?:[Ee]rror|Exception|Exit|Interrupt|Iteration|Warning|Fault|timeout|Expired)$"
)
_OWN_WORD = re.compile(r"^\s*(?:raise|assert)\b")
_IGNORED = re.compile(
    r"Exception ignored (?:in|on)|--- Logging error ---"
    r"|Error in (?:atexit|sys\.excepthook)|Exception in callback\b"
)
"""Python, or its event loop, prints these tracebacks and goes on."""

SURVIVABLE = re.compile(
    r"Exception in thread|(?i:\bretrying\b|\bwill (?:retry|try again)|falling back)"
)
"""What stands before, or in, an exception that a program may live on after."""

_BLOCK_RANK = re.compile(r"^\s*rank\s*: (?P<rank>\d+) \(local_rank")
"""torchrun writes it before the traceback of the rank that failed first."""

_DIGIT = re.compile(r"\d")
GENERIC = frozenset(
    "ArithmeticError AssertionError AttributeError Exception IndexError KeyError LookupError "
    "NameError TypeError ValueError ZeroDivisionError".split()
)
"""Exceptions that any program raises for any reason: their message proves nothing by itself."""

_OF_ANOTHER = re.compile(
    r"(?i)\b(?:process(?:es)?|child(?:ren)?|commands?|subprocess|task|script|bash|sh|python3?"
    r"|rank \d+)\b.{0,80}?"
    r"(?:\bexit(?:ed|s)?\b.{0,12}\b(?:with|code|status)\b|non-?zero|\breturned code\b|return code"
    r"|\bdied with\b|\bterminated (?:with|by) signal\b)"
)
"""What the message of a launcher's exception tells: another process has ended."""

_SUMMARY = re.compile(
    r"(?i)\b(?:an?|unknown|unexpected|internal|unhandled)\s+(?:\w+\s+){0,2}(?:errors?|exceptions?)\b"
    r".{0,30}\b(?:occurred|raised|happened|encountered)\b"
    r"|\b(?:see|check|refer to|inspect|look (?:at|in))\b.{0,60}"
    r"\b(?:above|below|logs?|output|stderr|details|traceback|message)\b"
    r"|\bfailed(?: with| due to| because of) (?:an? |the )?(?:\w+ )?(?:errors?|exceptions?)\b"
    r"|\b(?:was|were) (?:an? )?(?:errors?|exceptions?|failures?) (?:in|during|while)\b"
    r"|^(?:\S+ ){0,4}(?:failed|error|crashed|aborted)\W*$|^The following operation failed in\b"
)
"""What a message says that tells of a failure elsewhere, and not what failed."""

LAUNCHERS = frozenset(
    "BaseExceptionGroup CalledProcessError CheckpointException ChildFailedError ExceptionGroup "
    "ExecuteUserScriptError ProcessExitedException ProcessRaisedException SystemExit".split()
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

    within: str = ""
    """The names of its functions, from the outermost on; in a second line the innermost frame: its
    file and, behind a colon, its line of code."""

    is_of_a_library: bool = False
    """Whether its innermost frame is a library's, which says so in words of its own."""

    is_own_word: bool = False
    """Whether the program's own file raised it by a statement of its own."""

    is_survivable: bool = False
    """Whether what was logged with it says that the program goes on."""

    is_ignored: bool = False
    """Whether Python printed it and went on."""

    is_handed_on: bool = False
    """Whether it was raised by what waits for another process, whose failure came first."""

    is_opened: bool = False
    """Whether the message's first line only opens it, and what it tells stands in the next ones."""

    rank: int | None = None
    follows: int | None = None
    """Number of the chain's first exception; None where it is that."""

    is_handling: bool = False
    """Whether it was raised while the one before was handled, and not because of it."""

    @property
    def is_cut(self) -> bool:
        """Whether the text ends where the message of a kind that says nothing would begin."""
        is_bare = self.kind in {*GENERIC, "RuntimeError", "OSError", "Error"}
        return is_bare and not self.message and self.line.text.rstrip().endswith(f"{self.kind}:")

    @property
    def is_of_nothing(self) -> bool:
        """Whether something was None where a thing should be: what made it so came before."""
        return "'NoneType' object" in self.message

    @property
    def is_summary(self) -> bool:
        """Whether the message only tells that something else has failed."""
        return _SUMMARY.search(self.message) is not None

    @property
    def is_mere_word(self) -> bool:
        """Whether the message is somebody's own wording, and could stand for anything."""
        is_generic = self.kind.rpartition(".")[2] in GENERIC
        return self.is_own_word or (is_generic and not self.is_of_a_library)

    @property
    def is_of_a_launcher(self) -> bool:
        """Also a bare Exception, by which torch.multiprocessing.spawn raises a process's again, and
        whatever says that another process has ended."""
        is_bare = self.kind == "Exception" and not self.message
        is_named = self.kind.rpartition(".")[2] in LAUNCHERS
        return is_bare or is_named or _OF_ANOTHER.search(self.message) is not None


@dataclass(slots=True)
class _Reading:
    """What one rank's (or, without ranks, one machine's) lines have shown so far."""

    place: str | None = None
    """None outside a traceback."""

    is_piece: bool = False
    """Whether the traceback's head is missing."""

    first: int | None = None
    """Number of the last exception that began a chain."""

    joined: re.Match[str] | None = None
    """What joins the next exception to the one before."""

    innermost: str = ""
    """What the innermost frame is of: ``library``, ``own``, or empty where there is none."""

    file: str = ""
    """The innermost frame's."""

    code: str = ""
    """The innermost frame's line of code."""

    functions: list[str] = field(default_factory=list)

    is_waiting: bool = False
    """Whether the innermost frame is of what waits for another process."""

    block: int | None = None
    """The rank that torchrun named before a traceback."""

    before: str = ""
    """What a logger writes before each line."""

    last: str = ""
    """The line before."""

    is_ignored: bool = False
    is_survivable: bool = False

    def without(self, text: str) -> str:
        """The line without what stood before the traceback's first one, times apart."""
        head = text[: len(self.before)]
        is_same = _DIGIT.sub("0", head) == _DIGIT.sub("0", self.before)
        return text[len(self.before) :] if is_same else text


def raised(lines: Sequence[Line]) -> Iterator[Raised]:
    """The exceptions that ended a rank's tracebacks, in the order of the lines. One that followed
    from another ``follows`` it."""
    readings: dict[tuple[str, int | None, str], _Reading] = {}
    for number, each in enumerate(lines):
        bare, rank = each.bare, each.rank
        worker = _WORKER.match(bare) if bare.startswith("(") else None
        who = (each.host, rank, worker[0] if worker else "")
        reading = readings.setdefault(who, _Reading())
        bare = bare[worker.end() :].removeprefix(" ") if worker else bare
        text = reading.without(_GROUP.sub("", bare))
        if block := _BLOCK_RANK.match(text):
            reading.block = int(block["rank"])
        if _BEGIN in text:
            _begin(reading, text)
        elif joined := _CHAINED.match(text.strip()):
            reading.joined = joined
        elif place := _PLACE.match(text):
            reading.is_piece = reading.is_piece or reading.place is None
            reading.place = reading.place or ""
            _enter(reading, place)
        elif reading.place is not None:
            if text.startswith("    "):
                _read_code(reading, text)
            elif (end := _RAISED.match(text.strip())) and _is_end(reading, end["kind"]):
                if not _WRAPPED.match(end["message"] or ""):
                    yield _ended(number, each, end, reading)
                reading.place, reading.joined, reading.is_piece = None, None, False
        reading.last = text


def _begin(reading: _Reading, text: str) -> None:
    """A traceback begins."""
    reading.place = reading.innermost = reading.file = reading.code = ""
    reading.functions = []
    reading.is_piece = False
    reading.before = text[: text.index(_BEGIN)]
    reading.is_ignored = _IGNORED.search(reading.last) is not None
    reading.is_survivable = _is_survivable(reading.last)


def _read_code(reading: _Reading, text: str) -> None:
    """A frame's line of code, or what Python draws below it."""
    reading.code = reading.code or text
    if _COMMAND.match(text) and not reading.file.endswith(".py"):
        reading.place, reading.innermost = "", "library"


def _is_survivable(text: str) -> bool:
    """Whether it tells that the program lives on: it says so, or warns only."""
    return SURVIVABLE.search(text) is not None or Line("", 0, text).is_minor


def _is_end(reading: _Reading, kind: str) -> bool:
    """After a traceback's head any name ends it; after a mere piece of one an exception's does."""
    return not reading.is_piece or _EXCEPTIONAL.search(kind) is not None


def _enter(reading: _Reading, place: re.Match[str]) -> None:
    """One frame deeper."""
    is_library = _LIBRARY.search(place["file"]) is not None
    reading.innermost, reading.code = ("library" if is_library else "own"), ""
    reading.file = place["file"]
    reading.functions.append(place["function"] or "")
    reading.is_waiting = _WAITING.search(place["file"]) is not None
    if not is_library:
        reading.place = f"{place['file'].rpartition('/')[2]}:{place['number']}"


def _ended(number: int, line: Line, end: re.Match[str], reading: _Reading) -> Raised:
    is_own = reading.innermost == "own" and _OWN_WORD.match(reading.code) is not None
    follows = reading.first if reading.joined else None
    reading.first = number if follows is None else follows
    return Raised(
        number,
        line,
        end["kind"],
        end["message"] or "",
        reading.place or "",
        f"{' '.join(reading.functions)}\n{reading.file}: {reading.code.strip()}",
        is_of_a_library=reading.innermost == "library",
        is_own_word=is_own,
        is_handed_on=reading.is_waiting,
        is_ignored=reading.is_ignored,
        is_survivable=reading.is_survivable or SURVIVABLE.search(line.text) is not None,
        rank=reading.block if line.rank is None else line.rank,
        follows=follows,
        is_handling=bool(reading.joined and reading.joined["implicit"]),
    )


def tells(text: str) -> bool:
    """Whether a message tells what failed, and not merely that another process, or a step, has."""
    summary = _SUMMARY.search(text)
    is_more = summary is None or len(text) - summary.end() > 30
    return is_more and _OF_ANOTHER.search(text) is None
