"""An object in S3 as a file in which one can seek: some formats say at their end what they hold."""

import io

from trainyard.console.objects.reading import Beginning

MOST = 8 << 20
"""Bytes that are read of an object beyond its beginning."""


class TooMuch(OSError):
    """More of the object would have to be read than :data:`MOST`."""


class Seekable(io.RawIOBase):
    """Reads what lies in the beginning from there, and asks for the rest.

    Raises:
        TooMuch: on reading, when that is too much.
        ServiceError: on reading, when AWS refuses, or another object lies there now.
    """

    def __init__(self, found: Beginning) -> None:
        self._found, self._at, self._left = found, 0, MOST

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._found.size}[whence]
        if start + offset < 0:
            raise ValueError(f"seeking to {start + offset}")
        self._at = start + offset
        return self._at

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer)  # type: ignore[arg-type]  # typeshed's Buffer is of Python 3.12
        stop = min(self._at + len(view), self._found.size)
        data = self._part(self._at, stop) if stop > self._at else b""
        view[: len(data)] = data
        self._at += len(data)
        return len(data)

    def _part(self, start: int, stop: int) -> bytes:
        if stop <= len(self._found.data) or self._found.further is None:
            return self._found.data[start:stop]
        self._left -= stop - start
        if self._left < 0:
            raise TooMuch(f"more than {MOST >> 20} MiB of {self._found.at.uri} would be read")
        return self._found.further(start, stop)
