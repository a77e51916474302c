"""SHA-256 of files, of lines and of JSON values, computed in the same way everywhere.

This is a separate module because every package needs it.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

BLOCK = 2**20  # bytes per read


def file_sha256(path: Path, advance: Callable[[int], None] = lambda size: None) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal.

    Args:
        advance: called with the number of bytes that were just read.

    Raises:
        OSError: the file does not exist or cannot be read.
    """
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
            advance(len(block))
    return digest.hexdigest()


def hash_existing_file(path: Path) -> str | None:
    """Return the SHA-256 of a file's content, or None if the file does not exist."""
    try:
        return file_sha256(path)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return None


def lines_sha256(lines: Iterable[str]) -> str:
    """Return the SHA-256 of lines joined by newlines."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def files_sha256(hashes: Mapping[str, str]) -> str:
    """Return one SHA-256 for several files ({name: hash}): that of ``sha256sum``'s output lines."""
    return lines_sha256(f"{digest}  {name}" for name, digest in sorted(hashes.items()))


def json_sha256(value: Any) -> str:
    """Return the SHA-256 of a JSON value. The order of an object's keys does not matter."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
