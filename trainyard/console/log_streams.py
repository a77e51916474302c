"""The log streams of a step's job, one per instance and attempt, and the end of a stream, followed.

Of a tuning job these are its trainings' streams. New events are read once, for all readers.
"""

import re
import secrets
import threading
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from trainyard.aws_clients import error_code, service_errors
from trainyard.common.errors import ServiceError
from trainyard.console.account_cache import Account
from trainyard.console.log_lines import Line, fetch
from trainyard.runs.execution import LOG_GROUPS, Step

MOST = 1_000
"""Most streams of a step that are offered."""

_OWN_NAME = re.compile(r"(pipelines-[^/]*-)[A-Za-z0-9]{8,}$")
_HOST = re.compile(r"(.*?\d+)(?:-(\d{9,}))?$")


@dataclass(frozen=True, slots=True)
class Stream:
    """The log of one instance in one attempt."""

    group: str
    name: str
    """Name of the stream, ``job/algo-1-1700000000``."""
    created: int
    """Time of creation, in milliseconds since the epoch."""

    @property
    def job(self) -> str:
        """Name of the job."""
        return self.name.partition("/")[0]

    @property
    def own(self) -> str:
        """Part of the name after the job's: ``algo-1-1700000000``."""
        return self.name.partition("/")[2]

    @property
    def host(self) -> str:
        """Host, ``algo-1``."""
        match = _HOST.match(self.own)
        return match[1] if match else self.own


def streams(account: Account, step: Step) -> list[Stream]:
    """Return all streams of the step, the newest attempt first, then by the host's number.

    Raises:
        ServiceError: CloudWatch refuses.
    """
    seconds = 2.0 if step.ended is None else 60.0
    if step.job is None:
        tuning = tuning_of(step)
        key = ("streams of a tuning", tuning)
        return (
            account.lately(key, lambda: _of_trainings(account, tuning), seconds) if tuning else []
        )
    kind, job = step.job
    return account.lately(
        ("streams", job), lambda: _streams(account, LOG_GROUPS[kind], job), seconds
    )


def tuning_of(step: Step) -> str:
    """Return the name of the step's tuning job, whose logs are those of its trainings; else
    empty.
    """
    return str((step.metadata.get("TuningJob") or {}).get("Arn", "")).rpartition("/")[2]


def of_job(account: Account, group: str, job: str) -> list[Stream]:
    """Return the streams of one job, by the host's number, then the newest first.

    Raises:
        ServiceError: CloudWatch refuses.
    """

    def read() -> list[Stream]:
        found = [_stream(group, one) for one in _described(account, group, f"{job}/")]
        return sorted(found, key=lambda one: (_number(one), -one.created))

    return account.lately(("streams of", group, job), read, max(2.0, account.seconds))


def chosen(found: Sequence[Stream], host: str, job: str) -> Stream | None:
    """Return the stream of that job (empty: the newest attempt) and host: ``algo-1``, or its own
    name.

    Raises:
        ServiceError: there are streams, but not of that host and job.
    """
    for one in found:
        if host == one.name:
            return one
    of_job = [one for one in found if one.job == (job or found[0].job)]
    for one in of_job:
        if host in ("", one.host, one.own):
            return one
    if not found:
        return None
    known = ", ".join(dict.fromkeys(one.host for one in found[:20]))
    which = f"host {host!r} of job {job or found[0].job!r}"
    raise ServiceError(f"there is no log of {which}: expected one of {known}")


def labels(found: Sequence[Stream], tuning: str = "") -> list[tuple[Stream, str]]:
    """Return each stream with its label: its host, the attempt if there are several, the training
    of a tuning job.
    """
    if tuning:
        return [(one, f"{one.job.removeprefix(tuning)[1:]}, {one.own}") for one in found]
    jobs = list(dict.fromkeys(one.job for one in found))[::-1]
    several = Counter((one.job, one.host) for one in found)
    return [
        (
            one,
            one.host
            + (f", attempt {jobs.index(one.job) + 1} of {len(jobs)}" if len(jobs) > 1 else "")
            + (f", {one.own}" if several[one.job, one.host] > 1 else ""),
        )
        for one in found
    ]


def _streams(account: Account, group: str, job: str) -> list[Stream]:
    """Return the streams of all attempts, which are jobs whose names differ in the random part."""
    match = _OWN_NAME.match(job)
    prefix = match[1] if match else f"{job}/"
    of_step = re.compile(re.escape(match[1]) + r"[A-Za-z0-9]+/") if match else re.compile("")
    found = [
        _stream(group, one)
        for one in _described(account, group, prefix)
        if of_step.match(one.get("logStreamName", ""))
    ]
    begun = {one.job: min(o.created for o in found if o.job == one.job) for one in found}
    return sorted(found, key=lambda one: (-begun[one.job], one.job, _number(one), -one.created))


def _of_trainings(account: Account, tuning: str) -> list[Stream]:
    """Return the streams of a tuning job's trainings, whose names start with its own, in order."""
    group = LOG_GROUPS["TrainingJob"]
    found = [_stream(group, one) for one in _described(account, group, f"{tuning}-")]
    return sorted(found, key=lambda one: (one.job, _number(one), -one.created))


def _stream(group: str, one: dict[str, Any]) -> Stream:
    return Stream(group, one.get("logStreamName", ""), one.get("creationTime", 0))


def _described(account: Account, group: str, prefix: str) -> list[dict[str, Any]]:
    with service_errors(f"looking for the log streams of {prefix}"):
        pages = account.logs.get_paginator("describe_log_streams").paginate(
            logGroupName=group, logStreamNamePrefix=prefix, PaginationConfig={"MaxItems": MOST}
        )
        try:
            found = [one for page in pages for one in page.get("logStreams", ())]
            return [one for one in found if one.get("logStreamName")]
        except ClientError as error:
            if error_code(error) == "ResourceNotFoundException":
                return []
            raise


def _number(one: Stream) -> tuple[int, str]:
    digits = re.search(r"(\d+)$", one.host)
    return int(digits[1]) if digits else 0, one.host


KEPT = 500
"""Lines on a page when it is opened."""

BEHIND = 5
"""Pages (of at most 1 MB) read at once; if a log grows faster, the events between are left out."""

HOUR = 3_600.0


class Tail:
    """The last lines of a stream, numbered in the log's order since the first request.

    Numbers have a gap where lines were left out.
    """

    def __init__(self, account: Account, stream: Stream) -> None:
        self.epoch = secrets.token_hex(4)
        """Id that differs for another numbering of the same stream."""
        self._account, self._stream = account, stream
        self._lines: deque[tuple[int, Line]] = deque(maxlen=KEPT)
        self._next, self._token = 1, ""
        self._lock = threading.Lock()
        self._is_whole = False
        self._begin()

    @property
    def lines(self) -> list[tuple[int, Line]]:
        """(number, line) of each line, the newest last."""
        with self._lock:
            return list(self._lines)

    @property
    def has_older(self) -> bool:
        """True if there are lines before these."""
        with self._lock:
            return bool(self._lines) and (not self._is_whole or self._lines[0][0] > 1)

    def poll(self) -> int:
        """Read new events; return the number of the next line.

        Raises:
            ServiceError: CloudWatch refuses.
        """
        with self._lock:
            if not self._token:  # the service has not given a token to continue
                return self._next
            for _ in range(BEHIND):
                page = fetch(self._account, self._stream, nextToken=self._token, startFromHead=True)
                self._add(page.get("events", []))
                token = page.get("nextForwardToken", self._token)
                if token == self._token:
                    return self._next
                self._token = token
                if not page.get("events"):
                    return self._next
            self._next += 1
            self._begin()
            return self._next

    def _begin(self) -> None:
        """Read the last lines; a page with a few long lines is not enough for a browser."""
        page = fetch(self._account, self._stream, limit=KEPT, startFromHead=False)
        self._token = page.get("nextForwardToken", "")
        events, back = page.get("events", []), page.get("nextBackwardToken")
        for _ in range(BEHIND):
            if len(events) >= KEPT or not back:
                break
            how = {"limit": KEPT - len(events), "nextToken": back, "startFromHead": False}
            page = fetch(self._account, self._stream, **how)
            events = page.get("events", []) + events
            self._is_whole = page.get("nextBackwardToken") == back
            if self._is_whole:
                break
            back = page.get("nextBackwardToken")
        self._add(events)

    def _add(self, events: list[dict]) -> None:
        for event in events:
            self._lines.append((self._next, Line.of(event)))
            self._next += 1


def tail(account: Account, stream: Stream) -> Tail:
    """Return the stream's end as known; ``polled`` reads more."""
    return account.lately(
        ("tail", stream.group, stream.name), lambda: Tail(account, stream), 24 * HOUR
    )


def polled(account: Account, stream: Stream) -> int:
    """Read new events, once for all readers; return the number of the next line."""
    one = tail(account, stream)
    return account.lately(("polled", stream.name, one.epoch), one.poll)
