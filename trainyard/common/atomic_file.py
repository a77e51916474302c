"""Files that are complete under their name, or not there.

Content is written to a draft: a file beside the target, with a name of its own. Once flushed to the
disk it is renamed. A writer killed at any point leaves the old file or the new one, and perhaps a
draft.
"""

import os
import secrets
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

LONGEST = 240  # characters of the target's name in the draft's: file systems take 255 bytes


class Draft:
    """A file that has no name yet: write ``file``, then ``finish`` or ``discard``.

    A ``with`` block yields ``file``; the block's end finishes it, an error discards it. The
    temporary name is unique: a process that was believed dead may still write the same target.
    """

    def __init__(self, path: Path, mode: int = 0o666) -> None:
        """Begin a draft of ``path``, whose folder must be there; the umask narrows ``mode``."""
        self.path = path
        self.temporary = path.with_name(f".{path.name[:LONGEST]}.{secrets.token_hex(4)}.tmp")
        descriptor = os.open(self.temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        self.file: BinaryIO = open(descriptor, "wb")  # noqa: SIM115 - finish closes it

    def finish(self, *, durable: bool = True) -> None:
        """Give the file its name; another thread than the writer's may do so.

        Args:
            durable: True if the content, and then the name, must survive a power cut.
        """
        try:
            self.file.close()
            if durable:  # by name: a library that was given the name may have replaced the file
                sync(self.temporary)
            self.temporary.replace(self.path)
        except BaseException:
            self.discard()
            raise
        if durable:
            sync(self.path.parent)

    def discard(self) -> None:
        """Remove the draft."""
        with suppress(OSError):  # closing flushes again, and fails again
            self.file.close()
        self.temporary.unlink(missing_ok=True)

    def __enter__(self) -> BinaryIO:
        return self.file

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.finish()
        else:
            self.discard()


def begin(path: Path, *parts: str | bytes | memoryview) -> Draft:
    """Write a draft of all parts; ``finish`` waits for the disk and gives it its name."""
    draft = Draft(path)
    try:
        for part in parts:
            draft.file.write(part.encode() if isinstance(part, str) else part)
        draft.file.flush()
    except BaseException:
        draft.discard()
        raise
    return draft


def write(path: Path, *parts: str | bytes | memoryview) -> None:
    """Replace ``path`` by the parts (text as UTF-8); its folder must be there."""
    begin(path, *parts).finish()


def sync(path: Path) -> None:
    """Make a file's content, or the names in a folder, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
