"""The log streams of a step's job, one per instance and attempt, and the lines of a stream.

A line's id consists of its time and a digest of its text. With the time, GetLogEvents finds the
line without reading those before it.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from botocore.exceptions import ClientError

from trainyard.aws_clients import read_error_code, service_errors
from trainyard.common.errors import ServiceError
from trainyard.console.account_cache import Account
from trainyard.console.outcomes import sanitize_text
from trainyard.runs.execution import LOG_GROUPS, Step, compute_event_id

MOST = 1_000  # maximum number of streams of a step that are offered
_OWN_NAME = re.compile(r"(pipelines-[^/]*-)[A-Za-z0-9]{8,}$")
_HOST = re.compile(r"(.*?\d+)(?:-(\d{9,}))?$")


@dataclass(frozen=True, slots=True)
class Stream:
    """The log of one instance in one attempt."""

    group: str
    name: str  # name of the stream, ``job/algo-1-1700000000``
    creation_time: int  # time of creation, in milliseconds since the epoch

    @property
    def job(self) -> str:
        """Return the name of the job."""
        return self.name.partition("/")[0]

    @property
    def suffix(self) -> str:
        """Return the part of the name after the job's name, such as ``algo-1-1700000000``."""
        return self.name.partition("/")[2]

    @property
    def host(self) -> str:
        """Return the host, such as ``algo-1``."""
        match = _HOST.match(self.suffix)
        return match[1] if match else self.suffix


def list_step_streams(account: Account, step: Step) -> list[Stream]:
    """Return all streams of the step: the newest attempt first, then by the host's number."""
    seconds = 2.0 if step.ended is None else 60.0
    if step.job is None:
        # A tuning job itself has no log; its training jobs do.
        tuning = str((step.metadata.get("TuningJob") or {}).get("Arn", "")).rpartition("/")[2]
        key = ("streams of a tuning", tuning)
        return (
            account.read_cached(key, lambda: _list_tuning_streams(account, tuning), seconds)
            if tuning
            else []
        )
    kind, job = step.job
    return account.read_cached(
        ("streams", job), lambda: _list_attempt_streams(account, LOG_GROUPS[kind], job), seconds
    )


def list_job_streams(account: Account, group: str, job: str) -> list[Stream]:
    """Return the streams of one job, sorted by the host's number, then the newest first."""

    def read() -> list[Stream]:
        candidates = _list_streams(account, group, f"{job}/")
        return sorted(
            candidates, key=lambda stream: (_make_host_key(stream), -stream.creation_time)
        )

    return account.read_cached(("streams of", group, job), read, max(2.0, account.seconds))


def choose_stream(candidates: Sequence[Stream], host: str, job: str) -> Stream | None:
    """Return the stream of a host in a job, or None if there are no streams.

    ``host`` is ``algo-1``, a stream's own name, or "" for the first host. ``job`` may be "" for the
    newest attempt.
    """
    for stream in candidates:
        if host == stream.name:
            return stream
    of_job = [stream for stream in candidates if stream.job == (job or candidates[0].job)]
    for stream in of_job:
        if host in ("", stream.host, stream.suffix):
            return stream
    if not candidates:
        return None
    hosts = ", ".join(dict.fromkeys(stream.host for stream in candidates[:20]))
    which = f"host {host!r} of job {job or candidates[0].job!r}"
    raise ServiceError(f"there is no log of {which}: expected one of {hosts}")


def label_streams(candidates: Sequence[Stream]) -> list[tuple[Stream, str]]:
    """Return each stream with its label: the host, and the job if there are several jobs."""
    several = len({stream.job for stream in candidates}) > 1
    return [
        (stream, f"{stream.suffix}, {stream.job}" if several else stream.suffix)
        for stream in candidates
    ]


def _list_attempt_streams(account: Account, group: str, job: str) -> list[Stream]:
    """Return the streams of all attempts: jobs whose names differ only in the random part."""
    match = _OWN_NAME.match(job)
    prefix = match[1] if match else f"{job}/"
    of_step = re.compile(re.escape(match[1]) + r"[A-Za-z0-9]+/") if match else re.compile("")
    candidates = [
        stream for stream in _list_streams(account, group, prefix) if of_step.match(stream.name)
    ]
    first_starts = {
        stream.job: min(o.creation_time for o in candidates if o.job == stream.job)
        for stream in candidates
    }
    return sorted(
        candidates,
        key=lambda stream: (
            -first_starts[stream.job],
            stream.job,
            _make_host_key(stream),
            -stream.creation_time,
        ),
    )


def _list_tuning_streams(account: Account, tuning: str) -> list[Stream]:
    """Return the streams of a tuning job's training jobs, whose names start with its name."""
    candidates = _list_streams(account, LOG_GROUPS["TrainingJob"], f"{tuning}-")
    return sorted(
        candidates, key=lambda stream: (stream.job, _make_host_key(stream), -stream.creation_time)
    )


def _list_streams(account: Account, group: str, prefix: str) -> list[Stream]:
    """Return the streams whose names start with ``prefix``; none if there is no log group."""
    with service_errors(f"looking for the log streams of {prefix}"):
        pages = account.logs.get_paginator("describe_log_streams").paginate(
            logGroupName=group, logStreamNamePrefix=prefix, PaginationConfig={"MaxItems": MOST}
        )
        try:
            entries = [entry for page in pages for entry in page.get("logStreams", ())]
            return [
                Stream(group, name, entry.get("creationTime", 0))
                for entry in entries
                if (name := entry.get("logStreamName"))
            ]
        except ClientError as error:
            if read_error_code(error) == "ResourceNotFoundException":
                return []
            raise


def _make_host_key(stream: Stream) -> tuple[int, str]:
    """Return a sort key: the number at the end of the host's name, then the name."""
    digits = re.search(r"(\d+)$", stream.host)
    return int(digits[1]) if digits else 0, stream.host


LINE_LIMIT = 500  # lines on a page of a log when it is opened
CUT = 2_000  # maximum characters shown of a line; the rest is behind a link
PAGES = 40  # maximum requests for one page of the console: CloudWatch may answer with empty pages
_ID = re.compile(r"(\d{1,15})-([0-9a-f]{8})")


@dataclass(frozen=True, slots=True)
class Line:
    """An event of the log, as it is shown."""

    timestamp: int  # time in milliseconds since the epoch
    id: str
    text: str  # text as a terminal would show it, at most ``CUT`` characters
    length: int  # number of characters of the whole message

    @classmethod
    def from_event(cls, event: dict[str, Any]) -> "Line":
        """Return the line for an event of CloudWatch Logs."""
        timestamp, message = event.get("timestamp", 0), event.get("message", "")
        # A progress bar writes its line again after each carriage return: the last one counts.
        last = message.rstrip("\r\n").rpartition("\r")[2]
        text = sanitize_text(last[: CUT * 2])[:CUT]
        return cls(timestamp, compute_event_id(event), text, len(message))


@dataclass(frozen=True, slots=True)
class Page:
    """Some lines, sorted by time."""

    lines: tuple[Line, ...]
    has_older: bool
    has_newer: bool
    token: str = ""  # for a page at the log's end: nextForwardToken, with which to continue


def read_beginning(account: Account, stream: Stream, count: int) -> Page:
    """Return the first ``count`` lines."""
    lines, is_more = _read_lines(account, stream, count, forward=True)
    return Page(lines, False, is_more)


def read_end(account: Account, stream: Stream, count: int) -> Page:
    """Return the last ``count`` lines, and the token to read the lines that will follow."""
    request = {"limit": _compute_request_limit(count), "startFromHead": False}
    last = fetch_log_events(account, stream, **request)
    back = last.get("nextBackwardToken", "")
    lines = [Line.from_event(item) for item in reversed(last.get("events", []))]
    # Read one line more than is shown, to know whether there are older ones.
    if len(lines) <= count and back:
        earlier = iter_events(account, stream, **request, nextToken=back)
        lines += map(Line.from_event, islice(earlier, count + 1 - len(lines)))
    token = last.get("nextForwardToken", "")
    return Page(tuple(lines[:count][::-1]), len(lines) > count, False, token)


def read_newer(account: Account, stream: Stream, token: str) -> tuple[list[Line], str]:
    """Return the lines after a token, at most 1 MB, and the token to read those that follow."""
    page = fetch_log_events(account, stream, nextToken=token, startFromHead=True)
    return [Line.from_event(item) for item in page.get("events", [])], page.get(
        "nextForwardToken", token
    )


def read_before(account: Account, stream: Stream, line: str, count: int) -> Page:
    """Return up to ``count`` lines before that line."""
    lines, is_more = _read_lines(account, stream, count, forward=False, line=line)
    return Page(lines, is_more, True)


def read_after(account: Account, stream: Stream, line: str, count: int) -> Page:
    """Return up to ``count`` lines after that line."""
    lines, is_more = _read_lines(account, stream, count, forward=True, line=line)
    return Page(lines, True, is_more)


def read_around(account: Account, stream: Stream, line: str, count: int) -> Page:
    """Return that line with about ``count`` lines around it."""
    marked_line = Line.from_event(find_event(account, stream, line))
    older = read_before(account, stream, line, count // 2)
    newer = read_after(account, stream, line, count - count // 2)
    return Page((*older.lines, marked_line, *newer.lines), older.has_older, newer.has_newer)


def find_event(account: Account, stream: Stream, line: str) -> dict[str, Any]:
    """Return the event of a line, with the whole message."""
    timestamp = _parse_line_time(line)
    # endTime is exclusive, so this is the millisecond of the line.
    for item in iter_events(
        account, stream, startTime=timestamp, endTime=timestamp + 1, startFromHead=True
    ):
        if Line.from_event(item).id == line:
            return item
    raise ServiceError(f"line {line} is not in log stream {stream.name}: it may have expired")


def _read_lines(
    account: Account, stream: Stream, count: int, *, forward: bool, line: str = ""
) -> tuple[tuple[Line, ...], bool]:
    """Return up to ``count`` lines in the log's order, and whether there are more.

    They are read forwards if ``forward``, otherwise backwards: from that line, or from the log's
    start or end if ``line`` is empty.
    """
    timestamp = _parse_line_time(line) if line else 0
    request: dict[str, Any] = {"startFromHead": forward, "limit": _compute_request_limit(count)}
    if line:
        request |= {"startTime": timestamp} if forward else {"endTime": timestamp + 1}
    lines = map(Line.from_event, iter_events(account, stream, **request))
    some = list(islice(_skip_past(lines, line, timestamp) if line else lines, count + 1))
    return tuple(some[:count][:: 1 if forward else -1]), len(some) > count


def _skip_past(lines: Iterable[Line], line: str, timestamp: int) -> Iterator[Line]:
    """Yield the lines that come after that line in the order of reading.

    ``timestamp`` is the line's time. Other lines may have the same time.
    """
    is_past = False
    for log_line in lines:
        if is_past or log_line.timestamp != timestamp:
            is_past = True
            yield log_line
        is_past = is_past or log_line.id == line


def _compute_request_limit(count: int) -> int:
    """Return how many events to request for ``count`` lines."""
    # 50 more, because lines with the same millisecond as the given line may be skipped. 10,000 is
    # CloudWatch's maximum.
    return min(10_000, count + 50)


def iter_events(
    account: Account, stream: Stream, pages: int | None = PAGES, **request: Any
) -> Iterator[dict[str, Any]]:
    """Yield events in the direction of ``startFromHead``, from at most ``pages`` requests.

    ``request`` has further arguments of GetLogEvents; ``pages`` None means no limit. CloudWatch
    marks the end by repeating the token.
    """
    is_forward = request["startFromHead"]
    page_count = 0
    while pages is None or page_count < pages:
        page = fetch_log_events(account, stream, **request)
        items = page.get("events", [])
        yield from items if is_forward else reversed(items)
        following = page.get("nextForwardToken" if is_forward else "nextBackwardToken")
        if not following or following == request.get("nextToken"):
            return
        request["nextToken"], page_count = following, page_count + 1


def fetch_log_events(account: Account, stream: Stream, **request: Any) -> dict[str, Any]:
    """Return the response of GetLogEvents."""
    with service_errors(f"reading log stream {stream.name}"):
        response: dict[str, Any] = account.logs.get_log_events(
            logGroupName=stream.group, logStreamName=stream.name, **request
        )
        return response


def _parse_line_time(line: str) -> int:
    """Return the time in a line's id, in milliseconds since the epoch."""
    if (match := _ID.fullmatch(line)) is None:
        message = f"line={line[:40]!r} is not a line's id"
        raise ServiceError(f"{message}: expected <milliseconds>-<8 hexadecimal digits>")
    return int(match[1])
