"""Find the exceptions in the logs of a failed step, and match them against known failure texts."""

import re
import textwrap
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

# Evidence of a failed step: the service's message, and the logs of its machines. Two terms: a
# "handed on" exception only passes on the failure of another process, which came first; a
# "consequence" is a text that a program prints because something else has failed before.

_COMPOSE = re.compile(r"^\S*algo-\d+\S* +\| ?")
"""Prefix that docker compose writes before a line, in the SDK's local mode."""

_REASON = re.compile(r"^(?:Algorithm|Client|Capacity|InternalServer)Error\b|^ResourceLimitExceeded")
"""Beginning of a FailureReason."""

_FAILURE_REASON = re.compile(r"Failed(?:\.|:| with)? ?[Rr]eason:\s*(?P<reason>\S.*)", re.DOTALL)
"""Match the text that the SDK writes before a FailureReason, and the reason itself."""

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_RANK = re.compile(
    r"^\s*(?:\S+:\d+:\d+ )?"  # NCCL's host:pid:thread
    r"\[(?:(?:default|rank|Rank |RANK )?(?P<rank>\d+)|1,(?P<mpi>\d+)(?:<std\w+>)?)\]\s?:?"
    r"|^(?:[\w.,:/+\[\]-]{1,60}\s+){1,3}"  # up to three words, such as a time and a stream's name
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
"""Number of characters of a line that are examined: some programs print megabytes without a line
break."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a machine's log."""

    host: str
    """Machine, such as ``algo-1``; empty for a message of the service itself."""

    timestamp: int
    """Milliseconds since 1970; 0 if unknown."""

    text: str
    """Text without terminal colour codes, truncated to ``LONGEST`` characters."""

    event: str = ""
    """ID of the log event that contains the line; empty if there is none."""

    @property
    def rank(self) -> int | None:
        """Rank that printed the line, if a launcher or torch wrote the rank into it; else None."""
        if match := _RANK.match(self.text):
            return int(match["rank"] or match["mpi"] or match["later"])
        match = _BRACKET_RANK.search(self.text)
        return int(match["rank"]) if match else None

    @property
    def is_service_message(self) -> bool:
        """True if the line is from the service's own message, and not from a log."""
        return self.timestamp == 0 and not self.host

    @property
    def is_minor(self) -> bool:
        """True if the program logged the line at a level below an error, such as a warning."""
        return _MINOR.match(self.text) is not None

    @property
    def is_retry(self) -> bool:
        """True if the line says that the failed action will be retried."""
        return _RETRY.search(self.text) is not None

    @property
    def error(self) -> str:
        """Message of the line if it was logged as an error; else an empty string."""
        match = _ERROR.match(self.text)
        return match["what"].strip() if match else ""

    @property
    def unranked_text(self) -> str:
        """Text of the line without the rank at its beginning."""
        return _RANK.sub("", self.text, count=1) if _RANK.match(self.text) else self.text


def make_line(host: str, timestamp: int, text: str, event: str = "") -> Line:
    """Create a ``Line``: truncate the text to ``LONGEST``, remove colours and docker's prefix."""
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
    """Lines of all the step's machines, in the order in which they were logged."""

    @property
    def service_lines(self) -> tuple[Line, ...]:
        """The status and the failure reason, one entry per line of text."""
        rows = filter(None, (self.status, *self.reason.splitlines()))
        return tuple(make_line("", 0, text) for text in rows)


def parse_evidence(text: str) -> Evidence:
    """Return the evidence in ``text``, which is either a failure reason or a log.

    The lines of a log have their line numbers as timestamps, so that they keep their order.
    """
    if match := _FAILURE_REASON.search(text):
        text = match["reason"]
    rows = textwrap.dedent(text).splitlines()
    if rows and _REASON.match(rows[0]):
        return Evidence(step="", reason="\n".join(rows))
    lines = (make_line("", number, row) for number, row in enumerate(rows, 1) if row.strip())
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
"""Match the file names of libraries. Cython's frames name source files (``.pyx`` etc.) relative to
the package's repository."""

_WAITING = re.compile(
    r"/torch/multiprocessing/|/torch/distributed/(?:launcher|elastic|run)|/accelerate/commands/"
    r"|/deepspeed/launcher/|/subprocess\.py|/concurrent/futures/|/multiprocessing/pool"
)
"""Match the files whose code waits for another process and raises its failure."""

_WRAPPER = re.compile(r"^Caught \w+ in (?:DataLoader worker|pin memory|replica)")
"""Match the message with which torch raises a worker's exception again. The worker's own traceback
follows in the message."""

_EXCEPTIONAL = re.compile(r"(?:[Ee]rror|Exception|Exit|Interrupt|Iteration|Warning|timeout)$")
_OWN_WORD = re.compile(r"^\s*(?:raise|assert)\b")
_IGNORABLE = re.compile(
    r"Exception ignored (?:in|on)|--- Logging error ---"
    r"|Error in (?:atexit|sys\.excepthook)|Exception in callback\b"
)
"""Match lines after which Python, or its event loop, prints a traceback and continues."""

_SURVIVABLE = re.compile(
    r"Exception in thread|(?i:\bretrying\b|\bwill (?:retry|try again)|falling back)"
)
"""Match text before, or in, an exception after which the program may continue."""

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
"""Match the message of an exception that says that another process has exited or was killed."""

_SUMMARY = re.compile(
    r"(?i)\b(?:an?|unknown|unexpected|internal|unhandled)\s+(?:\w+\s+){0,2}(?:errors?|exceptions?)\b"
    r".{0,30}\b(?:occurred|raised|happened|encountered)\b"
    r"|\b(?:see|check|refer to)\b.{0,60}\b(?:above|below|logs?|output|stderr|details|traceback)\b"
    r"|\b(?:was|were) (?:an? )?(?:errors?|exceptions?|failures?) (?:in|during|while)\b"
    r"|^(?:\S+ ){0,4}(?:failed|error|crashed|aborted)\W*$|^The following operation failed in\b"
)
"""Match a message that reports that something failed elsewhere, without saying what."""

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
"""Match an exception that a line names without a traceback before it."""


@dataclass(frozen=True, slots=True)
class LoggedException:
    """An exception in a log."""

    number: int
    """Index, among all lines, of the line that ends its traceback."""

    line: Line
    kind: str
    """Name of the exception, such as ``ValueError``, with its module if the traceback has it."""

    message: str
    frame: str = ""
    """Innermost frame outside libraries, such as ``train.py:42``; empty if there is none."""

    is_from_library: bool = False
    """True if its innermost frame is in a library, so that the message is the library's wording."""

    is_handed_on: bool = False
    """True if it was raised by code that waits for another process, which failed first."""

    is_own_word: bool = False
    """True if a ``raise`` or ``assert`` in a file of the program, not of a library, raised it."""

    is_survivable: bool = False
    """True if the log around it says that the program may continue."""

    is_ignored: bool = False
    """True if Python printed it and continued."""

    is_opened: bool = False
    """True if the message's first line only introduces the next line, which was appended to it."""

    rank: int | None = None
    follows: int | None = None
    """``number`` of the first exception in its chain; None if it is the first itself."""

    is_handling: bool = False
    """True if it was raised while the previous exception was handled, without ``from``."""

    @property
    def is_cut(self) -> bool:
        """True if the log ends before the message, and the exception's kind is too generic to
        say what failed.
        """
        is_bare = self.kind in {*_GENERIC, "RuntimeError", "OSError", "Error"}
        return is_bare and not self.message and self.line.text.rstrip().endswith(f"{self.kind}:")

    @property
    def is_vague(self) -> bool:
        """True if it does not say what failed: it reports another failure or a None value, or the
        program may have continued after it.
        """
        is_of_nothing = "'NoneType' object" in self.message
        is_second = self.is_survivable or self.is_opened or self.is_handed_on
        return is_second or is_of_nothing or not states_failure(self.message)

    @property
    def is_program_wording(self) -> bool:
        """True if the message is the program's own wording, which may mean anything."""
        is_generic = self.kind.rpartition(".")[2] in _GENERIC
        return self.is_own_word or (is_generic and not self.is_from_library)

    @property
    def is_from_launcher(self) -> bool:
        """True if the exception reports that another process failed.

        These are the exception classes of launchers, messages about the end of another process, and
        an ``Exception`` without a message: torch.multiprocessing.spawn raises one.
        """
        is_bare = self.kind == "Exception" and not self.message
        is_named = self.kind.rpartition(".")[2] in _LAUNCHERS
        return is_bare or is_named or _OF_ANOTHER.search(self.message) is not None


@dataclass(slots=True)
class _Reading:
    """State of reading the lines of one rank, or of one machine if lines have no rank."""

    is_inside: bool = False
    """True while the lines belong to a traceback."""

    frame: str = ""
    is_piece: bool = False
    """True if the traceback's first line is missing."""

    first: int | None = None
    """Number of the last exception that began a chain."""

    link: re.Match[str] | None = None
    """Match of ``_CHAIN``, if the next exception follows from the previous one."""

    is_waiting: bool = False
    is_library: bool = False
    """True if the innermost frame is in a library."""

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

    def strip_prefix(self, text: str) -> str:
        """Return the line without the logger's prefix of the traceback's first line.

        Digits are ignored in the comparison, because the prefix may contain a time.
        """
        head = text[: len(self.before)]
        is_same = _DIGIT.sub("0", head) == _DIGIT.sub("0", self.before)
        return text[len(self.before) :] if is_same else text


def iter_exceptions(lines: Sequence[Line]) -> Iterator[LoggedException]:
    """Iterate over the exceptions at the ends of tracebacks, in the order of the lines.

    Tracebacks are read separately for each rank, because ranks print concurrently. If an exception
    followed from others, its ``follows`` is the number of the first of them.
    """
    readings: dict[tuple[str, int | None], _Reading] = {}
    for number, line in enumerate(lines):
        reading = readings.setdefault((line.host, line.rank), _Reading())
        text = reading.strip_prefix(line.unranked_text)
        if block := _BLOCK_RANK.match(text):
            reading.block = int(block["rank"])
        if _BEGIN in text:
            _begin_traceback(reading, text)
        elif link := _CHAIN.match(text.strip()):
            reading.link = link
        elif frame := _PLACE.match(text):
            _enter_frame(reading, frame)
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


def _begin_traceback(reading: _Reading, text: str) -> None:
    """Begin a traceback: reset the state; record the prefix and what the previous line says."""
    reading.is_inside, reading.is_piece, reading.is_library = True, False, False
    reading.frame = reading.code = ""
    reading.before = text[: text.index(_BEGIN)]
    reading.is_ignored = _IGNORABLE.search(reading.last) is not None
    is_minor = Line("", 0, reading.last).is_minor
    reading.is_survivable = is_minor or _SURVIVABLE.search(reading.last) is not None


def _enter_frame(reading: _Reading, frame: re.Match[str]) -> None:
    """Record the file and line of the traceback's next frame."""
    # A frame without the traceback's first line is a piece of one: the log was cut inside it.
    if not reading.is_inside:
        reading.is_inside, reading.is_piece, reading.frame = True, True, ""
    reading.is_library = _LIBRARY.search(frame["file"]) is not None
    reading.is_waiting = _WAITING.search(frame["file"]) is not None
    reading.code = ""
    if not reading.is_library:
        reading.frame = f"{frame['file'].rpartition('/')[2]}:{frame['number']}"


def _make_exception(
    number: int, line: Line, end: re.Match[str], reading: _Reading
) -> LoggedException:
    """Create the exception whose last line is ``line``, from what was read of its traceback."""
    follows = reading.first if reading.link else None
    reading.first = number if follows is None else follows
    return LoggedException(
        number,
        line,
        end["kind"],
        end["message"] or "",
        reading.frame,
        is_from_library=reading.is_library,
        is_handed_on=reading.is_waiting,
        is_own_word=not reading.is_library and _OWN_WORD.match(reading.code) is not None,
        is_ignored=reading.is_ignored,
        is_survivable=reading.is_survivable or _SURVIVABLE.search(line.text) is not None,
        rank=reading.block if line.rank is None else line.rank,
        follows=follows,
        is_handling=bool(reading.link and reading.link["implicit"]),
    )


def _complete_message(exception: LoggedException, lines: Sequence[Line]) -> LoggedException:
    """Append the same rank's next line to the message if the exception's own line ends with ":".

    Return the exception unchanged if it is a launcher's, if the next line begins another traceback,
    or if the rank has no line among the next three.
    """
    if exception.is_from_launcher or not exception.line.text.rstrip().endswith(":"):
        return exception
    process = (exception.line.host, exception.line.rank)
    for line in lines[exception.number + 1 : exception.number + 4]:
        text = line.unranked_text.strip()
        if (line.host, line.rank) == process and text and not text.startswith("File "):
            is_next = _BEGIN in text or _CHAIN.match(text)
            message = f"{exception.message} {text}".strip()
            return exception if is_next else replace(exception, message=message, is_opened=True)
    return exception


def parse_exception(line: Line) -> LoggedException | None:
    """Return the exception that the line names without a traceback.

    Return None if there is none, if it is a launcher's, or if the line is logged below an error.
    """
    match = None if line.is_minor else NAMED_EXCEPTION.search(line.unranked_text)
    if match is None:
        return None
    survivable = _SURVIVABLE.search(line.text) is not None
    message = match["message"] or ""
    exception = LoggedException(
        0, line, match["kind"], message, is_survivable=survivable, rank=line.rank
    )
    return None if exception.is_from_launcher else exception


def iter_untraced_exceptions(lines: Sequence[Line]) -> Iterator[LoggedException]:
    """Iterate over the exceptions that lines name without a traceback."""
    for number, line in enumerate(lines):
        if exception := parse_exception(line):
            yield _complete_message(replace(exception, number=number), lines)


def states_failure(text: str) -> bool:
    """Return whether a message says what failed, not only that a process or step failed."""
    summary = _SUMMARY.search(text)
    is_more = summary is None or len(text) - summary.end() > 30
    return is_more and _OF_ANOTHER.search(text) is None


# Known texts of causes of failure, each with its source: ``signatures/*.toml``.
#
# One file is one family of causes; a new cause is a new entry. ``pattern`` matches the exact words
# of a program or of AWS. ``wording`` matches how people and other versions say it: a cause that is
# found by it is never more than likely. ``cause`` and ``fix`` may contain the names of both
# patterns' groups in braces. If a group matched nothing, parentheses around it are removed, and a
# quoted one becomes ``"*"``.

_NOTHING = "\0"
_GROUPS = re.compile(r"(?<!\{)(?:\{\w+\})+")
_NAMES = re.compile(r"ModuleNotFoundError|cannot import name|unrecognized arguments:")
"""Match texts that end in a name that the program chose. Such a name may look like the text of
another cause, so only the signatures of ``program.toml`` are tried on these texts."""

FOLDER = Path(__file__).with_name("signatures")
Level = Literal["service", "cause", "hint", "likely", "consequence"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """A known text in logs or failure reasons, with its cause and fix."""

    name: str
    """Name, such as ``family/name``."""

    level: Level
    """What the text proves. service: AWS's own message about the job. cause: the program that
    printed it failed because of it. A cause that is found at one of these two levels may be
    certain. hint: the program that raised it failed because of it, but what it means is only
    likely. likely: it usually means this, or it follows from another rank's failure. consequence:
    another rank, or a called program, failed before; it is used only if nothing else was found."""

    pattern: re.Pattern[str]
    wording: re.Pattern[str] | None = None
    cause: str
    """Sentence that states the cause."""

    fix: str
    source: str
    """Source of the text: a page, a thread, or the program that prints it."""

    def explain(self, match: re.Match[str]) -> tuple[str, str]:
        """Return the cause and the fix, with the groups of the match filled in."""
        groups = match.groupdict()
        return _fill_groups(self.cause, groups), _fill_groups(self.fix, groups)


def _fill_groups(sentence: str, groups: Mapping[str, str | None]) -> str:
    """Replace each ``{name}`` in the sentence by the group's text.

    Adjacent names are alternatives: their texts are concatenated. See the comment above on groups
    that matched nothing.
    """

    def replace_names(names: re.Match[str]) -> str:
        texts = (groups.get(name) or "" for name in re.findall(r"\w+", names[0]))
        return "".join(texts).strip() or _NOTHING

    text = _GROUPS.sub(replace_names, sentence).replace("{{", "{").replace("}}", "}")
    text = text.replace(f'"{_NOTHING}"', '"*"')
    text = re.sub(rf" \((?:on )?{_NOTHING}[^()]*\)", "", text)
    return re.sub(r"\.\.$", ".", text.replace(_NOTHING, "?"))


def _read_signatures(folder: Path) -> tuple[Signature, ...]:
    """Read all signatures from the TOML files in a folder."""
    return tuple(
        Signature(
            name=f"{path.stem}/{name}",
            level=entry["level"],  # a test checks that each is a Level
            pattern=re.compile(entry["pattern"]),
            wording=re.compile(entry["wording"]) if "wording" in entry else None,
            cause=entry["cause"],
            fix=entry["fix"],
            source=entry["source"],
        )
        for path in sorted(folder.glob("*.toml"))
        for name, entry in tomllib.loads(path.read_text(encoding="utf-8")).items()
    )


SIGNATURES: Iterable[Signature] = _read_signatures(FOLDER)
"""Signatures in the order of the families' names, and of the entries in a family's file."""

_CAUSES = [signature for signature in SIGNATURES if signature.level != "consequence"]
_PROGRAMS = [signature for signature in _CAUSES if signature.name.startswith("program/")]
_CONSEQUENCES = [signature for signature in SIGNATURES if signature.level == "consequence"]


def find_signature(text: str) -> tuple[Signature, re.Match[str], bool] | None:
    """Return the first known signature in the text, its match, and whether its exact words matched.

    Patterns of all signatures are tried first, then their wordings, and last the patterns of
    signatures of level "consequence". Return None if nothing matches.
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
