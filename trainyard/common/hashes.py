"""SHA-256 of files, of lines and of JSON values, in one way wherever it is compared."""

import hashlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

BLOCK = 2**20  # bytes at a time


def file_sha256(path: Path, advance: Callable[[int], None] = lambda size: None) -> str:
    """SHA-256 of a file's content, in hexadecimal.

    Args:
        advance: called with the number of bytes that were just read.

    Raises:
        OSError: the file is not there, or cannot be read.
    """
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
            advance(len(block))
    return digest.hexdigest()


def file_sha256_or_none(path: Path) -> str | None:
    """SHA-256 of a file's content; None when there is no such file."""
    try:
        return file_sha256(path)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return None


def lines_sha256(lines: Iterable[str]) -> str:
    """SHA-256 of lines, with a newline between two of them: one hash for several."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def json_sha256(value: Any) -> str:
    """SHA-256 of a JSON value, in which the order of an object's keys does not count."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
