"""Find exceptions in a log: who raised what, and where."""

import re
import textwrap
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

# Evidence of a failed step: the service's message, and the logs of its machines.

_COMPOSE = re.compile(r"^\S*algo-\d+\S* +\| ?")
"""Prefix that docker compose writes before a line, in the SDK's local mode."""

_REASON = re.compile(r"^(?:Algorithm|Client|Capacity|InternalServer)Error\b|^ResourceLimitExceeded")
"""Beginning of a FailureReason."""

_FAILURE_REASON = re.compile(r"Failed(?:\.|:| with)? ?[Rr]eason:\s*(?P<reason>\S.*)", re.DOTALL)
"""Text that the SDK writes before a FailureReason."""

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_RANK = re.compile(
    r"^\s*(?:\S+:\d+:\d+ )?"  # NCCL's host:pid:thread
    r"\[(?:(?:default|rank|Rank |RANK )?(?P<rank>\d+)|1,(?P<mpi>\d+)(?:<std\w+>)?)\]\s?:?"
    r"|^(?:[\w.,:/+\[\]-]{1,60}\s+){1,3}"  # a time, a stream's name
    r"\[(?:default|rank|Rank |RANK )(?P<later>\d+)\]\s?:?"
)
_BRACKET_RANK = re.compile(r"\[(?:PG [^\]]*?)?Rank (?P<rank>\d+)\]")
_MINOR = re.compile(
    r"^.{0,80}?(?:\b(?:DEBUG|INFO|WARNING|[A-Z]\w*Warning)\b|: [IW] \w|\[[IW]\d{0,4} )"
)
_RETRY = re.compile(r"(?i)\bretrying\b|\bwill (?:retry|try again)\b|\b(?:entering|in) retry\b")
_ERROR = re.compile(
    r"^.{0,80}?\b(?:(?:ERROR|FATAL|CRITICAL|SEVERE)\b|(?:[Ff]atal|[Ee]rror)\b(?= ?[\]:|)]))"
    r"[\]:|) -]+(?P<what>\w.{9,})"
)

LONGEST = 2000
"""Characters of a line that are examined: some programs print megabytes without an end."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a machine's log."""

    host: str
    """Machine, such as ``algo-1``; empty for the service's own words."""

    timestamp: int
    """Milliseconds since 1970; 0 if unknown."""

    text: str
    """Text without a terminal's colours, and cut at ``LONGEST``."""

    event: str = ""
    """ID of the log event that has the line; empty if there is none."""

    @property
    def rank(self) -> int | None:
        """Rank that printed it, if a launcher or torch wrote the rank before the line."""
        if match := _RANK.match(self.text):
            return int(match["rank"] or match["mpi"] or match["later"])
        match = _BRACKET_RANK.search(self.text)
        return int(match["rank"]) if match else None

    @property
    def is_said(self) -> bool:
        """True for the service's own words, which are not from a log."""
        return self.timestamp == 0 and not self.host

    @property
    def is_minor(self) -> bool:
        """True if the program logs it as less than an error."""
        return _MINOR.match(self.text) is not None

    @property
    def is_tried_again(self) -> bool:
        """True if it says that the failed action is tried again."""
        return _RETRY.search(self.text) is not None

    @property
    def error(self) -> str:
        """Message, if it is logged as an error; else empty."""
        match = _ERROR.match(self.text)
        return match["what"].strip() if match else ""

    @property
    def bare(self) -> str:
        """Line without the rank before it."""
        return _RANK.sub("", self.text, count=1) if _RANK.match(self.text) else self.text


def line(host: str, timestamp: int, text: str, event: str = "") -> Line:
    return Line(host, timestamp, _COMPOSE.sub("", _ANSI.sub("", text[:LONGEST])).rstrip(), event)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Evidence of one step."""

    step: str
    reason: str = ""
    """FailureReason of the step, or of its job."""

    status: str = ""
    """SecondaryStatus of the job, or its replacement."""

    lines: Sequence[Line] = field(default=())
    """Lines of all its machines, in the order in which they were logged."""

    @property
    def service_lines(self) -> tuple[Line, ...]:
        """The service's words, one entry per line."""
        rows = filter(None, (self.status, *self.reason.splitlines()))
        return tuple(line("", 0, text) for text in rows)


def of_text(text: str) -> Evidence:
    """Return the evidence in a log, or a failure reason, that is given as text."""
    if match := _FAILURE_REASON.search(text):
        text = match["reason"]
    rows = textwrap.dedent(text).splitlines()
    if rows and _REASON.match(rows[0]):
        return Evidence(step="", reason="\n".join(rows))
    lines = (line("", number, row) for number, row in enumerate(rows, 1) if row.strip())
    return Evidence(step="", lines=tuple(lines))


_BEGIN = "Traceback (most recent call last)"  # rich draws a box around it, without the colon
_CHAIN = re.compile(
    r"^(?:(?P<implicit>During handling of the above exception)|The above exception was the dir)"
)
_EXCEPTION = re.compile(
    r"^(?P<kind>(?:[A-Za-z_]\w*\.)*[A-Z]\w*|(?:[A-Za-z_]\w*\.)+(?:error|[gh]\w*error|timeout))"
    r"(?:: ?(?P<message>.*))?$"
)
"""First line of an exception; also ``cv2.error``, ``struct.error``, ``socket.gaierror`` and
``socket.timeout``."""

_PLACE = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<number>\d+)')
_LIBRARY = re.compile(
    r"site-packages|dist-packages|/lib/python3|^<|/torch/distributed/|\.(?:pyx|pxi|pxd)$"
)
"""Files of libraries; for Cython, frames name the source, relative to the package's repository."""

_WAITING = re.compile(
    r"/torch/multiprocessing/|/torch/distributed/(?:launcher|elastic|run)|/accelerate/commands/"
    r"|/deepspeed/launcher/|/subprocess\.py|/concurrent/futures/|/multiprocessing/pool"
)
"""Files that wait for another process, and raise its failure."""

_WRAPPER = re.compile(r"^Caught \w+ in (?:DataLoader worker|pin memory|replica)")
"""torch raises a worker's exception again, with the worker's own traceback below it."""

_EXCEPTIONAL = re.compile(r"(?:[Ee]rror|Exception|Exit|Interrupt|Iteration|Warning|timeout)$")
_OWN_WORD = re.compile(r"^\s*(?:raise|assert)\b")
_IGNORABLE = re.compile(
    r"Exception ignored (?:in|on)|--- Logging error ---"
    r"|Error in (?:atexit|sys\.excepthook)|Exception in callback\b"
)
"""Python, or its event loop, prints these tracebacks and continues."""

_SURVIVABLE = re.compile(
    r"Exception in thread|(?i:\bretrying\b|\bwill (?:retry|try again)|falling back)"
)
"""Text before, or in, an exception that a program may survive."""

_BLOCK_RANK = re.compile(r"^\s*rank\s*: (?P<rank>\d+) \(local_rank")
"""Line that torchrun writes before the traceback of the rank that failed first."""

_DIGIT = re.compile(r"\d")
_GENERIC = frozenset(
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
"""Message of a launcher's exception, by which another process has ended."""

_SUMMARY = re.compile(
    r"(?i)\b(?:an?|unknown|unexpected|internal|unhandled)\s+(?:\w+\s+){0,2}(?:errors?|exceptions?)\b"
    r".{0,30}\b(?:occurred|raised|happened|encountered)\b"
    r"|\b(?:see|check|refer to)\b.{0,60}\b(?:above|below|logs?|output|stderr|details|traceback)\b"
    r"|\b(?:was|were) (?:an? )?(?:errors?|exceptions?|failures?) (?:in|during|while)\b"
    r"|^(?:\S+ ){0,4}(?:failed|error|crashed|aborted)\W*$|^The following operation failed in\b"
)
"""Message that reports a failure elsewhere, and not what failed."""

_LAUNCHERS = frozenset(
    "BaseExceptionGroup CalledProcessError CheckpointException ChildFailedError ExceptionGroup "
    "ExecuteUserScriptError ProcessExitedException ProcessRaisedException SystemExit".split()
)
"""Exceptions of programs that started the failed program."""

NAMED_EXCEPTION = re.compile(
    r"(?:^|[\s|\]\"'])(?P<kind>(?:\w+\.)*(?:[A-Z]\w*(?:Errors?|Exceptions?|Expired|Timeout"
    r"|NotFound|Denied|Failure|Exceeded|Refused|Unavailable)|Exception)"
    r"|(?:(?<=^)|(?<=ERROR ))(?:[a-z_]\w*\.)+[A-Z][A-Za-z]*[a-z]\w*)"
    r"(?:: {1,2}(?P<message>\S.*)|:)$"
)
"""An exception that a line names without a traceback before it."""


@dataclass(frozen=True, slots=True)
class LoggedException:
    """An exception in a log."""

    number: int
    """Number of its last line among all lines."""

    line: Line
    kind: str
    """Name of the exception, such as ``ValueError``, with its module if the traceback has it."""

    message: str
    place: str = ""
    """Innermost line outside libraries, such as ``train.py:42``; empty if there is none."""

    is_of_a_library: bool = False
    """True if its innermost frame is a library's, which has words of its own for it."""

    is_handed_on: bool = False
    """True if it was raised by code that waits for another process, whose failure came first."""

    is_own_word: bool = False
    """True if the program's own file raised it by a statement of its own."""

    is_survivable: bool = False
    """True if the log around it says that the program continues."""

    is_ignored: bool = False
    """True if Python printed it and continued."""

    is_opened: bool = False
    """True if the message's first line only introduces the text in the next one."""

    rank: int | None = None
    follows: int | None = None
    """Number of the chain's first exception; None for the first itself."""

    is_handling: bool = False
    """True if it was raised while the previous one was handled, and not because of it."""

    @property
    def is_cut(self) -> bool:
        """True if the text ends before the message, and the kind alone says nothing."""
        is_bare = self.kind in {*_GENERIC, "RuntimeError", "OSError", "Error"}
        return is_bare and not self.message and self.line.text.rstrip().endswith(f"{self.kind}:")

    @property
    def is_vague(self) -> bool:
        """True if it only says that something else has failed, was None, or is survived."""
        is_of_nothing = "'NoneType' object" in self.message
        is_second = self.is_survivable or self.is_opened or self.is_handed_on
        return is_second or is_of_nothing or not tells(self.message)

    @property
    def is_mere_word(self) -> bool:
        """True if the message is the program's own wording, and could mean anything."""
        is_generic = self.kind.rpartition(".")[2] in _GENERIC
        return self.is_own_word or (is_generic and not self.is_of_a_library)

    @property
    def is_of_a_launcher(self) -> bool:
        """True for a launcher's exception, a bare Exception, by which torch.multiprocessing.spawn
        raises a process's again, and any other that says that another process has ended.
        """
        is_bare = self.kind == "Exception" and not self.message
        is_named = self.kind.rpartition(".")[2] in _LAUNCHERS
        return is_bare or is_named or _OF_ANOTHER.search(self.message) is not None


@dataclass(slots=True)
class _Reading:
    """State of reading one rank's (or, without ranks, one machine's) lines."""

    is_inside: bool = False
    place: str = ""
    is_piece: bool = False
    """True if the traceback's head is missing."""

    first: int | None = None
    """Number of the last exception that began a chain."""

    link: re.Match[str] | None = None
    """Match that joins the next exception to the previous one."""

    is_waiting: bool = False
    is_library: bool = False
    """True if the innermost frame is a library's."""

    code: str = ""
    """Line of code of the innermost frame."""

    block: int | None = None
    """Rank that torchrun named before a traceback."""

    before: str = ""
    """Prefix that a logger writes before each line."""

    last: str = ""
    """Previous line."""

    is_ignored: bool = False
    is_survivable: bool = False

    def without(self, text: str) -> str:
        """Return the line without the prefix of the traceback's first line, whatever its times."""
        head = text[: len(self.before)]
        is_same = _DIGIT.sub("0", head) == _DIGIT.sub("0", self.before)
        return text[len(self.before) :] if is_same else text


def read_exceptions(lines: Sequence[Line]) -> Iterator[LoggedException]:
    """Iterate over the exceptions that ended a rank's tracebacks, in the order of the lines. One
    that followed from another ``follows`` it.
    """
    readings: dict[tuple[str, int | None], _Reading] = {}
    for number, line in enumerate(lines):
        reading = readings.setdefault((line.host, line.rank), _Reading())
        text = reading.without(line.bare)
        if block := _BLOCK_RANK.match(text):
            reading.block = int(block["rank"])
        if _BEGIN in text:
            _begin(reading, text)
        elif link := _CHAIN.match(text.strip()):
            reading.link = link
        elif place := _PLACE.match(text):
            _enter(reading, place)
        elif reading.is_inside and text.startswith("    "):
            reading.code = reading.code or text
        elif (
            reading.is_inside
            and (end := _EXCEPTION.match(text.strip()))
            and (not reading.is_piece or _EXCEPTIONAL.search(end["kind"]))
        ):
            if not _WRAPPER.match(end["message"] or ""):
                yield _complete_message(_make_exception(number, line, end, reading), lines)
            reading.is_inside, reading.link, reading.is_piece = False, None, False
        reading.last = text


def _begin(reading: _Reading, text: str) -> None:
    """Begin a traceback."""
    reading.is_inside, reading.is_piece, reading.is_library = True, False, False
    reading.place = reading.code = ""
    reading.before = text[: text.index(_BEGIN)]
    reading.is_ignored = _IGNORABLE.search(reading.last) is not None
    is_minor = Line("", 0, reading.last).is_minor
    reading.is_survivable = is_minor or _SURVIVABLE.search(reading.last) is not None


def _enter(reading: _Reading, place: re.Match[str]) -> None:
    """Enter the next frame."""
    # A frame without a traceback's head is a piece of one: the log was cut within it.
    if not reading.is_inside:
        reading.is_inside, reading.is_piece, reading.place = True, True, ""
    reading.is_library = _LIBRARY.search(place["file"]) is not None
    reading.is_waiting = _WAITING.search(place["file"]) is not None
    reading.code = ""
    if not reading.is_library:
        reading.place = f"{place['file'].rpartition('/')[2]}:{place['number']}"


def _make_exception(
    number: int, line: Line, end: re.Match[str], reading: _Reading
) -> LoggedException:
    follows = reading.first if reading.link else None
    reading.first = number if follows is None else follows
    return LoggedException(
        number,
        line,
        end["kind"],
        end["message"] or "",
        reading.place,
        is_of_a_library=reading.is_library,
        is_handed_on=reading.is_waiting,
        is_own_word=not reading.is_library and _OWN_WORD.match(reading.code) is not None,
        is_ignored=reading.is_ignored,
        is_survivable=reading.is_survivable or _SURVIVABLE.search(line.text) is not None,
        rank=reading.block if line.rank is None else line.rank,
        follows=follows,
        is_handling=bool(reading.link and reading.link["implicit"]),
    )


def _complete_message(exception: LoggedException, lines: Sequence[Line]) -> LoggedException:
    """Return the exception with its rank's next line, if its own only introduces the message."""
    if exception.is_of_a_launcher or not exception.line.text.rstrip().endswith(":"):
        return exception
    process = (exception.line.host, exception.line.rank)
    for line in lines[exception.number + 1 : exception.number + 4]:
        text = line.bare.strip()
        if (line.host, line.rank) == process and text and not text.startswith("File "):
            is_next = _BEGIN in text or _CHAIN.match(text)
            message = f"{exception.message} {text}".strip()
            return exception if is_next else replace(exception, message=message, is_opened=True)
    return exception


def parse_exception(line: Line) -> LoggedException | None:
    """Return the exception that the line names without a traceback; None if there is none."""
    match = None if line.is_minor else NAMED_EXCEPTION.search(line.bare)
    if match is None:
        return None
    survivable = _SURVIVABLE.search(line.text) is not None
    message = match["message"] or ""
    exception = LoggedException(
        0, line, match["kind"], message, is_survivable=survivable, rank=line.rank
    )
    return None if exception.is_of_a_launcher else exception


def find_untraced(lines: Sequence[Line]) -> Iterator[LoggedException]:
    """Iterate over exceptions that a line names without a traceback, usually in part of a log."""
    for number, line in enumerate(lines):
        if exception := parse_exception(line):
            yield _complete_message(replace(exception, number=number), lines)


def tells(text: str) -> bool:
    """Return whether a message says what failed, not only that a process or step has."""
    summary = _SUMMARY.search(text)
    is_more = summary is None or len(text) - summary.end() > 30
    return is_more and _OF_ANOTHER.search(text) is None


# Known texts of causes of failure, each with its source: ``signatures/*.toml``.
#
# One file is one family; a new cause is a new entry. ``pattern`` matches the words of a program or
# AWS, ``wording`` those of people and other versions: a cause found by it is never more than
# likely.
# ``cause`` and ``fix`` may name the groups of both in braces. Brackets around a group that found
# nothing are removed; in JSON it becomes ``*``.

_NOTHING = "\0"
_GROUPS = re.compile(r"(?<!\{)(?:\{\w+\})+")
_NAMES = re.compile(r"ModuleNotFoundError|cannot import name|unrecognized arguments:")
"""Texts before names that a program gave, which may be those of any cause."""

FOLDER = Path(__file__).with_name("signatures")
Level = Literal["service", "cause", "hint", "likely", "consequence"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """A known text."""

    name: str
    """Name, such as ``family/name``."""

    level: Level
    """Meaning of the text. service: AWS's own message about the job. cause: the program that prints
    it has failed by it; both may be certain. hint: the program that raises it has failed by it, but
    its meaning is only likely. likely: it usually means this, or follows from another rank.
    consequence: another rank, or a called program, has failed before; it counts if nothing else was
    found."""

    pattern: re.Pattern[str]
    wording: re.Pattern[str] | None = None
    cause: str
    """Sentence that states the cause."""

    fix: str
    source: str
    """Source of the text: a page, a thread, or the program that prints it."""

    def explain(self, match: re.Match[str]) -> tuple[str, str]:
        """Return cause and fix, with the groups of the match filled in."""
        groups = match.groupdict()
        return _fill_groups(self.cause, groups), _fill_groups(self.fix, groups)


def _fill_groups(sentence: str, groups: Mapping[str, str | None]) -> str:
    """Return the sentence with the groups filled in. Groups side by side are alternatives."""

    def replace_names(names: re.Match[str]) -> str:
        texts = (groups.get(name) or "" for name in re.findall(r"\w+", names[0]))
        return "".join(texts).strip() or _NOTHING

    text = _GROUPS.sub(replace_names, sentence).replace("{{", "{").replace("}}", "}")
    text = text.replace(f'"{_NOTHING}"', '"*"')
    text = re.sub(rf" \((?:on )?{_NOTHING}[^()]*\)", "", text)
    return re.sub(r"\.\.$", ".", text.replace(_NOTHING, "?"))


def _read(folder: Path) -> tuple[Signature, ...]:
    return tuple(
        Signature(
            name=f"{path.stem}/{name}",
            level=entry["level"],  # a test checks each
            pattern=re.compile(entry["pattern"]),
            wording=re.compile(entry["wording"]) if "wording" in entry else None,
            cause=entry["cause"],
            fix=entry["fix"],
            source=entry["source"],
        )
        for path in sorted(folder.glob("*.toml"))
        for name, entry in tomllib.loads(path.read_text(encoding="utf-8")).items()
    )


SIGNATURES: Iterable[Signature] = _read(FOLDER)
"""Signatures in the order of the families' names, and of the entries in a family's file."""

_CAUSES = [signature for signature in SIGNATURES if signature.level != "consequence"]
_PROGRAMS = [signature for signature in _CAUSES if signature.name.startswith("program/")]
_CONSEQUENCES = [signature for signature in SIGNATURES if signature.level == "consequence"]


def find_signature(text: str) -> tuple[Signature, re.Match[str], bool] | None:
    """Return the first known signature in the text, and whether its exact words matched.

    The pattern of one signature counts more than the wording of another, and either more than a
    consequence of a cause.
    """
    causes = _PROGRAMS if _NAMES.search(text) else _CAUSES
    for signature in causes:
        if match := signature.pattern.search(text):
            return signature, match, True
    for signature in causes:
        if signature.wording and (match := signature.wording.search(text)):
            return signature, match, False
    for signature in _CONSEQUENCES:
        if match := signature.pattern.search(text):
            return signature, match, True
    return None
