"""The operations of CloudWatch Logs, JSON in and JSON out, on a :class:`LogStore`."""

import base64
import heapq
import itertools
import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainyard.emulator.logs.log_store import (
    Event,
    LogStore,
    Stream,
    make_group_arn,
    read_backward,
    read_forward,
)
from trainyard.emulator.request_scope import ApiError

_PAGE = 50  # maximum groups or streams per page (AWS's limit and default)
_EVENTS = 10_000  # maximum events per page (AWS's limit and default)
_BYTES = 1 << 20  # maximum bytes of events per page: AWS returns up to 1 MB


class Logs:
    """The operations: ``operations`` maps a name to its method; ``handle`` calls one.

    It raises :class:`ApiError` as AWS would, and ``UnknownOperationException`` for an operation
    that is not implemented.
    """

    def __init__(self, store: LogStore) -> None:
        self._store = store
        self.operations: dict[str, Callable[[dict], dict]] = {
            "CreateLogGroup": self._create_group,
            "CreateLogStream": self._create_stream,
            "DescribeLogGroups": self._describe_groups,
            "DescribeLogStreams": self._describe_streams,
            "DeleteLogGroup": self._delete_group,
            "DeleteLogStream": self._delete_stream,
            "FilterLogEvents": self._filter_events,
            "GetLogEvents": self._get_events,
            "PutLogEvents": self._put_events,
        }

    def handle(self, operation: str, request: dict) -> dict:
        answer = self.operations.get(operation)
        if answer is None:
            message = f"The emulator does not implement logs:{operation}."
            raise ApiError("UnknownOperationException", message)
        return answer(request)

    def _create_group(self, request: dict) -> dict:
        if more := sorted(name for name in request if request[name] and name != "logGroupName"):
            message = f"The emulator does not implement {more[0]} of a log group: leave it out."
            raise ApiError("InvalidParameterException", message)
        self._store.create_group(_read_required_member(request, "logGroupName"))
        return {}

    def _delete_group(self, request: dict) -> dict:
        self._store.delete_group(_read_group_name(request))
        return {}

    def _delete_stream(self, request: dict) -> dict:
        self._store.delete_stream(
            _read_group_name(request), _read_required_member(request, "logStreamName")
        )
        return {}

    def _create_stream(self, request: dict) -> dict:
        self._store.create_stream(
            _read_group_name(request), _read_required_member(request, "logStreamName")
        )
        return {}

    def _put_events(self, request: dict) -> dict:
        events = [
            (e["timestamp"], e["message"]) for e in _read_required_member(request, "logEvents")
        ]
        if any(a[0] > b[0] for a, b in itertools.pairwise(events)):
            message = "Log events in a single PutLogEvents request must be in chronological order."
            raise ApiError("InvalidParameterException", message)
        # Called for its error: the stream must exist.
        self._store.find_stream(
            _read_group_name(request), _read_required_member(request, "logStreamName")
        )
        self._store.put_events(_read_group_name(request), request["logStreamName"], events)
        return {"nextSequenceToken": "0"}

    def _describe_groups(self, request: dict) -> dict:
        if "logGroupNamePrefix" in request and "logGroupNamePattern" in request:
            message = "LogGroup name prefix and LogGroup name pattern are mutually exclusive "
            raise ApiError("InvalidParameterException", message + "parameters.")
        prefix, part = request.get("logGroupNamePrefix", ""), request.get("logGroupNamePattern", "")
        groups = [
            {
                "logGroupName": name,
                "creationTime": creation_time,
                "arn": f"{make_group_arn(name)}:*",
                "logGroupArn": make_group_arn(name),
                "metricFilterCount": 0,
                "storedBytes": 0,
                "logGroupClass": "STANDARD",
            }
            for name, creation_time in self._store.list_groups()
            if name.startswith(prefix) and part.lower() in name.lower()
        ]
        return _make_page(request, "logGroups", groups)

    def _describe_streams(self, request: dict) -> dict:
        prefix, newest_first = request.get("logStreamNamePrefix", ""), request.get("descending")
        streams = self._store.list_streams(_read_group_name(request), prefix)
        if request.get("orderBy") == "LastEventTime":
            if prefix:
                message = "Cannot order by LastEventTime with a logStreamNamePrefix."
                raise ApiError("InvalidParameterException", message)
            descriptions = [_describe_stream(s) for s in streams]
            descriptions.sort(key=lambda s: s.get("lastEventTimestamp", 0))
            return _make_page(
                request, "logStreams", descriptions[::-1] if newest_first else descriptions
            )
        page = _make_page(request, "logStreams", streams[::-1] if newest_first else streams)
        return page | {"logStreams": [_describe_stream(s) for s in page["logStreams"]]}

    def _get_events(self, request: dict) -> dict:
        stream = self._store.find_stream(
            _read_group_name(request), _read_required_member(request, "logStreamName")
        )
        limit = _read_limit(request)
        forward, offset = _parse_token(request)
        if forward and offset is not None:
            page_events = _take_first_events(read_forward(stream.path, offset), request, limit)
            first, last = offset, page_events[-1].stop if page_events else offset
        else:
            latest = next(read_backward(stream.path, offset), None)
            end = offset or 0 if latest is None else latest.stop
            page_events = _take_first_events(read_backward(stream.path, end), request, limit)[::-1]
            first, last = page_events[0].start if page_events else end, end
        return {
            "events": [_convert_event(e) for e in page_events],
            "nextForwardToken": f"f/{last:020d}",
            "nextBackwardToken": f"b/{first:020d}",
        }

    def _filter_events(self, request: dict) -> dict:
        group, pattern = (
            _read_group_name(request),
            Pattern.parse(request.get("filterPattern") or ""),
        )
        names = request.get("logStreamNames")
        if names:
            streams = [self._store.find_stream(group, name) for name in names]
        else:
            streams = self._store.list_streams(group, request.get("logStreamNamePrefix", ""))
        limit = _read_limit(request)
        matches, token = search_streams(streams, pattern, request, limit, _BYTES)
        events = [
            {
                "logStreamName": s.name,
                "eventId": f"{s.creation_time}{e.start:020d}",
                **_convert_event(e),
            }
            for s, e in matches
        ]
        return {"events": events, "searchedLogStreams": []} | (
            {"nextToken": token} if token else {}
        )


def _read_limit(request: dict) -> int:
    """Return the maximum number of events to return. Raises ``InvalidParameterException``."""
    limit = request.get("limit") or _EVENTS
    if limit > _EVENTS:
        message = (
            f"1 validation error detected: Value '{limit}' at 'limit' failed to satisfy "
            f"constraint: Member must have value less than or equal to {_EVENTS}"
        )
        raise ApiError("InvalidParameterException", message)
    return limit


def _take_first_events(events: Iterator[Event], request: dict, limit: int) -> list[Event]:
    """Return the first events in the time range: at most ``limit``, and ``_BYTES`` bytes."""
    result: list[Event] = []
    size, times = 0, Times.from_request(request)
    for event in events:
        if times.contains(event):
            size += len(event.message) + 26  # AWS counts 26 bytes of overhead per event
            if result and (len(result) == limit or size > _BYTES):
                break
            result.append(event)
    return result


def _parse_token(request: dict) -> tuple[bool, int | None]:
    """Return (whether to read forward, offset or None for the end) from the request's token.

    At the end of a stream the client gets the same token again, as AWS guarantees.
    """
    token = request.get("nextToken")
    if token is None:
        return (True, 0) if request.get("startFromHead") else (False, None)
    match = re.fullmatch(r"([fb])/(\d{1,20})", token)
    if not match:
        raise ApiError("InvalidParameterException", "The specified nextToken is invalid.")
    return match[1] == "f", int(match[2])


def _describe_stream(stream: Stream) -> dict:
    """Return the description of a stream, as DescribeLogStreams has it."""
    description: dict = {
        "logStreamName": stream.name,
        "creationTime": stream.creation_time,
        "arn": stream.arn,
        "storedBytes": 0,  # AWS itself returns 0 for streams since 2019
        "uploadSequenceToken": "0",
    }
    first, last = next(read_forward(stream.path, 0), None), next(read_backward(stream.path), None)
    if first and last:
        description["firstEventTimestamp"] = first.timestamp
        description["lastEventTimestamp"] = last.timestamp
        description["lastIngestionTime"] = last.ingestion
    return description


def _convert_event(event: Event) -> dict:
    return {
        "timestamp": event.timestamp,
        "message": event.message,
        "ingestionTime": event.ingestion,
    }


def _make_page(request: dict, name: str, items: list) -> dict:
    """Return one page of ``items`` as a response; the token is the position in the list."""
    token = request.get("nextToken") or "0"
    if not token.isdecimal():
        raise ApiError("InvalidParameterException", "The specified nextToken is invalid.")
    skip, limit = int(token), min(request.get("limit") or _PAGE, _PAGE)
    answer: dict = {name: items[skip : skip + limit]}
    if len(items) > skip + limit:
        answer["nextToken"] = str(skip + limit)
    return answer


def _read_group_name(request: dict) -> str:
    """Return the group's name, from its name, or from its ARN as newer clients send it."""
    members = ("logGroupName", "logGroupIdentifier")
    group = next((request[name] for name in members if request.get(name)), None)
    if not group:
        raise ApiError("InvalidParameterException", "logGroupName is missing.")
    return re.sub(r"^arn:[^:]*:logs:[^:]*:\d+:log-group:", "", group).removesuffix(":*")


def _read_required_member(request: dict, name: str) -> Any:
    """Return a member of the request. Raises ``InvalidParameterException`` if it is missing."""
    if not request.get(name):
        raise ApiError("InvalidParameterException", f"{name} is missing.")
    return request[name]


# FilterLogEvents: the matching events of several streams, in the order of time.


@dataclass(frozen=True, slots=True)
class Pattern:
    """A filter of terms, ``"quoted terms"``, ``-excluded`` and ``?optional`` terms.

    JSON and field patterns are not supported.
    """

    required_terms: tuple[str, ...]
    excluded_terms: tuple[str, ...]
    optional_terms: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> "Pattern":
        """Parse a filter pattern. Raises ``InvalidParameterException`` for unsupported syntax."""
        if text.lstrip().startswith(("{", "[", "%")):
            message = f"The emulator filters by terms only, not by {text[:40]!r}."
            raise ApiError("InvalidParameterException", message)
        try:
            terms = shlex.split(text)
        except ValueError as wrong:
            raise ApiError(
                "InvalidParameterException", f"Invalid filter pattern: {wrong}"
            ) from None
        return cls(
            tuple(t for t in terms if t[:1] not in "-?"),
            tuple(t[1:] for t in terms if t[:1] == "-"),
            tuple(t[1:] for t in terms if t[:1] == "?"),
        )

    def matches(self, message: str) -> bool:
        """Return whether a message matches; optional terms count only if none is required."""
        return (
            all(t in message for t in self.required_terms)
            and not any(t in message for t in self.excluded_terms)
            and (
                not self.optional_terms
                or bool(self.required_terms)
                or any(t in message for t in self.optional_terms)
            )
        )


@dataclass(frozen=True, slots=True)
class Times:
    """Times from ``start`` up to, but not including, ``end``, in ms; None for no limit."""

    start: int | None
    end: int | None

    @classmethod
    def from_request(cls, request: Mapping) -> "Times":
        return cls(request.get("startTime"), request.get("endTime"))

    def contains(self, event: Event) -> bool:
        return (self.start is None or event.timestamp >= self.start) and (
            self.end is None or event.timestamp < self.end
        )


def search_streams(
    streams: Sequence[Stream], pattern: Pattern, request: Mapping, limit: int, size: int
) -> tuple[list[tuple[Stream, Event]], str | None]:
    """Return the matching events in the order of time, and a token to continue.

    The token is None if all was searched. At most ``limit`` events and about ``size`` characters of
    them are returned.
    """
    times, offsets = Times.from_request(request), _decode_token(request.get("nextToken"))
    matches: list[tuple[Stream, Event]] = []
    readers = [
        zip(itertools.repeat(stream), read_forward(stream.path, offsets.setdefault(stream.name, 0)))
        for stream in streams
    ]
    for stream, event in heapq.merge(*readers, key=lambda pair: pair[1].timestamp):
        if not (times.contains(event) and pattern.matches(event.message)):
            continue
        if len(matches) == limit or size <= 0:
            # The token contains the offset at which each stream continues.
            return matches, base64.urlsafe_b64encode(json.dumps(offsets).encode()).decode()
        offsets[stream.name] = event.stop
        matches.append((stream, event))
        size -= len(event.message)
    return matches, None


def _decode_token(token: str | None) -> dict[str, int]:
    """Return the offset of each stream, by name, in a token. Return {} without a token."""
    if not token:
        return {}
    try:
        document = json.loads(base64.urlsafe_b64decode(token))
        return {str(name): int(offset) for name, offset in document.items()}
    except (ValueError, AttributeError, TypeError):
        message = "The specified nextToken is invalid."
        raise ApiError("InvalidParameterException", message) from None
