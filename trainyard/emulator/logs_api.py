"""The CloudWatch Logs operations, JSON in and JSON out, over the store of ``emulator.logs``."""

import heapq
import itertools
import re
import shlex
from collections.abc import Callable, Iterator
from typing import Any

from trainyard.emulator.api import ApiError
from trainyard.emulator.logs import Event, LogStore, Stream, group_arn, read_backward, read_forward

_PAGE = 50  # groups or streams a page, at most (AWS's limit and default)
_EVENTS = 10_000  # events a page, at most (AWS's limit and default)
_BYTES = 1 << 20  # and their size: AWS returns up to 1 MB


class Logs:
    """``OPERATIONS`` maps an operation's name to its method; ``handle`` calls one.

    Raises :class:`ApiError` as AWS would, and ``UnknownOperationException`` for the rest.
    """

    def __init__(self, store: LogStore) -> None:
        self._store = store
        self.operations: dict[str, Callable[[dict], dict]] = {
            "CreateLogGroup": self._create_group,
            "CreateLogStream": self._create_stream,
            "DescribeLogGroups": self._describe_groups,
            "DescribeLogStreams": self._describe_streams,
            "FilterLogEvents": self._filter,
            "GetLogEvents": self._get,
            "PutLogEvents": self._put,
        }

    def handle(self, operation: str, request: dict) -> dict:
        answer = self.operations.get(operation)
        if answer is None:
            message = f"The emulator does not implement logs:{operation}."
            raise ApiError("UnknownOperationException", message)
        return answer(request)

    def _create_group(self, request: dict) -> dict:
        self._store.create_group(_need(request, "logGroupName"))
        return {}

    def _create_stream(self, request: dict) -> dict:
        self._store.create_stream(_group(request), _need(request, "logStreamName"))
        return {}

    def _put(self, request: dict) -> dict:
        events = [(e["timestamp"], e["message"]) for e in _need(request, "logEvents")]
        if any(a[0] > b[0] for a, b in itertools.pairwise(events)):
            message = "Log events in a single PutLogEvents request must be in chronological order."
            raise ApiError("InvalidParameterException", message)
        self._store.stream(_group(request), _need(request, "logStreamName"))
        self._store.put(_group(request), request["logStreamName"], events)
        return {"nextSequenceToken": "0"}

    def _describe_groups(self, request: dict) -> dict:
        prefix, part = request.get("logGroupNamePrefix", ""), request.get("logGroupNamePattern", "")
        groups = [
            {
                "logGroupName": name,
                "creationTime": created,
                "arn": f"{group_arn(name)}:*",
                "logGroupArn": group_arn(name),
                "metricFilterCount": 0,
                "storedBytes": 0,
                "logGroupClass": "STANDARD",
            }
            for name, created in self._store.groups()
            if name.startswith(prefix) and part.lower() in name.lower()
        ]
        return _page(request, "logGroups", groups)

    def _describe_streams(self, request: dict) -> dict:
        prefix = request.get("logStreamNamePrefix", "")
        described = [_describe(s) for s in self._store.streams(_group(request), prefix)]
        if request.get("orderBy") == "LastEventTime":
            if prefix:
                message = "Cannot order by LastEventTime with a logStreamNamePrefix."
                raise ApiError("InvalidParameterException", message)
            described.sort(key=lambda s: s.get("lastEventTimestamp", 0))
        if request.get("descending"):
            described.reverse()
        return _page(request, "logStreams", described)

    def _get(self, request: dict) -> dict:
        stream = self._store.stream(_group(request), _need(request, "logStreamName"))
        limit = min(request.get("limit") or _EVENTS, _EVENTS)
        forward, offset = _start(request)
        if forward and offset is not None:
            found = _take(read_forward(stream.path, offset), request, limit)
            first, last = offset, found[-1].stop if found else offset
        else:
            found = _take(read_backward(stream.path, offset), request, limit)[::-1]
            end = _end(stream) if offset is None else offset
            first, last = found[0].start if found else end, end
        return {
            "events": [_event(e) for e in found],
            "nextForwardToken": f"f/{last:020d}",
            "nextBackwardToken": f"b/{first:020d}",
        }

    def _filter(self, request: dict) -> dict:
        group, matches = _group(request), _pattern(request.get("filterPattern", ""))
        names = request.get("logStreamNames")
        if names:
            streams = [self._store.stream(group, name) for name in names]
        else:
            streams = self._store.streams(group, request.get("logStreamNamePrefix", ""))
        limit, skip = min(request.get("limit") or _EVENTS, _EVENTS), _skip(request)
        events = heapq.merge(*(_tagged(s) for s in streams), key=lambda e: e[1].timestamp)
        chosen = (
            {"logStreamName": s.name, "eventId": f"{s.created}{e.start:020d}", **_event(e)}
            for s, e in events
            if _within(e, request) and matches(e.message)
        )
        page = list(itertools.islice(chosen, skip, skip + limit + 1))
        answer: dict = {"events": page[:limit], "searchedLogStreams": []}
        if len(page) > limit:
            answer["nextToken"] = str(skip + limit)
        return answer


def _take(events: Iterator[Event], request: dict, limit: int) -> list[Event]:
    found: list[Event] = []
    size = 0
    for event in events:
        if _within(event, request):
            size += len(event.message) + 26  # AWS counts 26 bytes of overhead per event
            if found and (len(found) == limit or size > _BYTES):
                break
            found.append(event)
    return found


def _within(event: Event, request: dict) -> bool:
    start, end = request.get("startTime"), request.get("endTime")
    return (start is None or event.timestamp >= start) and (end is None or event.timestamp < end)


def _start(request: dict) -> tuple[bool, int | None]:
    """(forward?, offset): at the end of a stream the same token comes back, as AWS promises."""
    token = request.get("nextToken")
    if token is None:
        return (True, 0) if request.get("startFromHead") else (False, None)
    match = re.fullmatch(r"([fb])/(\d{1,20})", token)
    if not match:
        raise ApiError(
            "InvalidParameterException", f"The specified nextToken {token!r} is invalid."
        )
    return match[1] == "f", int(match[2])


def _end(stream: Stream) -> int:
    last = next(read_backward(stream.path), None)
    return last.stop if last else 0


def _describe(stream: Stream) -> dict:
    described: dict = {
        "logStreamName": stream.name,
        "creationTime": stream.created,
        "arn": stream.arn,
        "storedBytes": 0,  # AWS itself answers 0 for streams since 2019
        "uploadSequenceToken": "0",
    }
    first, last = next(read_forward(stream.path, 0), None), next(read_backward(stream.path), None)
    if first and last:
        described["firstEventTimestamp"] = first.timestamp
        described["lastEventTimestamp"] = last.timestamp
        described["lastIngestionTime"] = last.ingestion
    return described


def _event(event: Event) -> dict:
    return {
        "timestamp": event.timestamp,
        "message": event.message,
        "ingestionTime": event.ingestion,
    }


def _tagged(stream: Stream) -> Iterator[tuple[Stream, Event]]:
    return ((stream, event) for event in read_forward(stream.path, 0))


def _pattern(pattern: str) -> Callable[[str], bool]:
    """Terms, ``"quoted terms"``, ``-excluded``, ``?optional``; no JSON or field patterns."""
    if pattern.lstrip().startswith(("{", "[", "%")):
        message = f"The emulator filters by terms only, not by {pattern[:40]!r}."
        raise ApiError("InvalidParameterException", message)
    try:
        terms = shlex.split(pattern)
    except ValueError as wrong:
        raise ApiError("InvalidParameterException", f"Invalid filter pattern: {wrong}") from wrong
    without = [t[1:] for t in terms if t.startswith("-")]
    either = [t[1:] for t in terms if t.startswith("?")]
    every = [t for t in terms if t[0] not in "-?"]

    def matches(message: str) -> bool:
        return (
            all(t in message for t in every)
            and not any(t in message for t in without)
            and (not either or bool(every) or any(t in message for t in either))
        )

    return matches


def _page(request: dict, name: str, items: list[dict]) -> dict:
    skip, limit = _skip(request), min(request.get("limit") or _PAGE, _PAGE)
    answer: dict = {name: items[skip : skip + limit]}
    if len(items) > skip + limit:
        answer["nextToken"] = str(skip + limit)
    return answer


def _skip(request: dict) -> int:
    token = request.get("nextToken") or "0"
    if not token.isdecimal():
        raise ApiError(
            "InvalidParameterException", f"The specified nextToken {token!r} is invalid."
        )
    return int(token)


def _group(request: dict) -> str:
    """By name, or by ARN as newer clients send it."""
    named = request.get("logGroupName") or request.get("logGroupIdentifier")
    if not named:
        raise ApiError("InvalidParameterException", "logGroupName is missing.")
    return re.sub(r"^arn:aws:logs:[^:]*:\d+:log-group:", "", named).removesuffix(":*")


def _need(request: dict, name: str) -> Any:
    if not request.get(name):
        raise ApiError("InvalidParameterException", f"{name} is missing.")
    return request[name]
