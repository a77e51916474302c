"""The log groups and streams of CloudWatch Logs: one append-only file of JSON lines per stream.

    <root>/<group>.group/<stream>.jsonl     names percent-encoded

The first line describes the stream, each later one is an event. A token is a byte offset into
the file, so a poll reads only new events. Events come back in the order in which they were
ingested (AWS sorts by timestamp, which differs only when a client back-dates events).
"""

import json
import mmap
import os
import shutil
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote, unquote

from trainyard.common import atomic_file
from trainyard.emulator.request_scope import ApiError, make_arn

_GROUP, _STREAM = ".group", ".jsonl"
_LONGEST = 255  # bytes of a file name


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a log stream."""

    timestamp: int
    """Milliseconds since the epoch, as in every CloudWatch Logs time."""
    message: str
    ingestion: int
    start: int
    """Offset of its line in the stream's file; ``stop`` is the offset after the line."""
    stop: int


@dataclass(frozen=True, slots=True)
class Stream:
    """A log stream and its file."""

    group: str
    name: str
    path: Path
    creation_time: int

    @property
    def arn(self) -> str:
        return f"{make_group_arn(self.group)}:log-stream:{self.name}"


class LogStore:
    """Groups and streams in one directory. The methods are thread-safe.

    They raise :class:`ApiError` (``ResourceNotFoundException``, ...) for what AWS refuses.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._lock = threading.Lock()
        root.mkdir(parents=True, exist_ok=True)

    # Methods that write.

    def append(self, group: str, stream: str, messages: Iterable[str]) -> None:
        """Add one event per message, with the current time; create group and stream if needed."""
        now = _read_clock_ms()
        self.put_events(group, stream, [(now, message) for message in messages], create=True)

    def put_events(
        self, group: str, stream: str, events: list[tuple[int, str]], *, create: bool = False
    ) -> None:
        """Add (timestamp in ms, message) events to a stream.

        If the process dies while it writes, only the first of them may be stored. With ``create``,
        group and stream are created if they do not exist; without it, ``ResourceNotFoundException``
        is raised.
        """
        path, now = self._build_stream_path(group, stream), _read_clock_ms()
        lines = [json.dumps({"t": t, "i": now, "m": m}, ensure_ascii=False) for t, m in events]
        with self._lock:
            if create:
                self._create_stream_file(group, stream)
            elif not path.exists():
                raise _make_missing_error(f"The specified log stream {stream!r} does not exist.")
            with path.open("r+b") as file:
                _remove_incomplete_line(file)
                file.write("".join(f"{line}\n" for line in lines).encode("utf-8", "replace"))

    def create_group(self, group: str) -> None:
        with self._lock:
            folder = self._build_group_folder(group)
            if folder.exists():
                raise ApiError(
                    "ResourceAlreadyExistsException", "The specified log group already exists"
                )
            folder.mkdir(parents=True)

    def delete_group(self, group: str) -> None:
        with self._lock:
            self._check_group(group)
            shutil.rmtree(self._build_group_folder(group))

    def delete_stream(self, group: str, stream: str) -> None:
        path = self.find_stream(group, stream).path
        with self._lock:
            path.unlink(missing_ok=True)

    def create_stream(self, group: str, stream: str) -> None:
        with self._lock:
            self._check_group(group)
            if not self._create_stream_file(group, stream):
                raise ApiError(
                    "ResourceAlreadyExistsException", "The specified log stream already exists"
                )

    # Methods that read.

    def list_groups(self) -> list[tuple[str, int]]:
        """Return (name, creation time in ms) of each group, sorted by name."""
        paths = [p for p in self.root.iterdir() if p.suffix == _GROUP]
        return sorted(
            (unquote(p.name.removesuffix(_GROUP)), _read_change_time_ms(p)) for p in paths
        )

    def list_streams(self, group: str, prefix: str = "") -> list[Stream]:
        """Return the group's streams whose names start with ``prefix``, sorted by name."""
        self._check_group(group)
        start = quote(prefix, safe="")
        names = (
            unquote(name.removesuffix(_STREAM))
            for name in os.listdir(self._build_group_folder(group))
            if name.startswith(start) and name.endswith(_STREAM)
        )
        return [self.find_stream(group, name) for name in sorted(names)]

    def find_stream(self, group: str, stream: str) -> Stream:
        """Return a stream. Raises ``ResourceNotFoundException`` if it does not exist."""
        self._check_group(group)
        path = self._build_stream_path(group, stream)
        if not path.exists():
            raise _make_missing_error("The specified log stream does not exist.")
        with path.open("rb") as file:
            creation_time = _read_creation_time(file.readline(), path)
        return Stream(group, stream, path, creation_time)

    # Internal methods.

    def _create_stream_file(self, group: str, stream: str) -> bool:
        """Create a stream. Return False if it exists already, else True."""
        path = self._build_stream_path(group, stream)
        if path.exists():
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        header = {"group": group, "stream": stream, "created": _read_clock_ms()}
        atomic_file.write_draft(path, json.dumps(header) + "\n").finish(durable=False)
        return True

    def _build_group_folder(self, group: str) -> Path:
        return self.root / _encode_file_name("log group", group, _GROUP)

    def _build_stream_path(self, group: str, stream: str) -> Path:
        return self._build_group_folder(group) / _encode_file_name("log stream", stream, _STREAM)

    def _check_group(self, group: str) -> None:
        if not self._build_group_folder(group).exists():
            raise _make_missing_error("The specified log group does not exist.")


def read_forward(path: Path, start: int) -> Iterator[Event]:
    """Iterate over complete events from byte offset ``start`` on. Omit a line that is still being
    written.
    """
    with path.open("rb") as file:
        if start == 0:
            start = len(file.readline())
        file.seek(start)
        for line in file:
            end = start + len(line)
            if not line.endswith(b"\n"):
                return
            yield _parse_event(line, start)
            start = end


def read_backward(path: Path, stop: int | None = None) -> Iterator[Event]:
    """Iterate over complete events before byte offset ``stop`` (default: end), latest first."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        first = data.find(b"\n") + 1
        position = data.rfind(b"\n") + 1 if stop is None else min(stop, len(data))
        while position > first:
            start = data.rfind(b"\n", 0, position - 1) + 1
            yield _parse_event(data[start:position], start)
            position = start


def make_group_arn(group: str) -> str:
    return make_arn("logs", f"log-group:{group}")


def _read_creation_time(header: bytes, path: Path) -> int:
    """Return the creation time in a stream's first line; the file's, if that line is damaged."""
    try:
        return int(json.loads(header)["created"])
    except (ValueError, KeyError, TypeError):
        return _read_change_time_ms(path)


def _parse_event(line: bytes, start: int) -> Event:
    """Return the event in a line; for a damaged line, an event that shows it."""
    try:
        fields: dict[str, Any] = json.loads(line)
        fields["t"], fields["m"], fields["i"]
    except (ValueError, KeyError, TypeError):
        fields = {"t": 0, "i": 0, "m": f"[emulator] a damaged line: {line!r}"}
    return Event(fields["t"], fields["m"], fields["i"], start, start + len(line))


def _remove_incomplete_line(file: BinaryIO) -> None:
    """Move to the end of the file, and cut off a last line that has no newline.

    Such a line is left by a process that was killed while it wrote.
    """
    size = file.seek(0, 2)
    while size:
        step = min(size, 4096)
        file.seek(size - step)
        end = file.read(step).rfind(b"\n")
        if end >= 0:
            file.seek(size - step + end + 1)
            file.truncate()
            return
        size -= step


def _encode_file_name(subject: str, name: str, suffix: str) -> str:
    """Return the name of the file for a group or stream. Raises ApiError for a bad name."""
    file_name = quote(name, safe="") + suffix
    if not name or len(file_name) > _LONGEST:
        message = f"The {subject} name must have 1 to {_LONGEST} bytes: {name[:60]!r}"
        raise ApiError("InvalidParameterException", message)
    return file_name


def _read_change_time_ms(path: Path) -> int:
    return int(path.stat().st_ctime * 1000)


def _make_missing_error(message: str) -> ApiError:
    return ApiError("ResourceNotFoundException", message)


def _read_clock_ms() -> int:
    return int(time.time() * 1000)
