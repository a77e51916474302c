"""SHA-256 of files, of lines and of JSON values, computed in the same way everywhere.

This is a separate module because every package needs it.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

BLOCK = 2**20  # bytes per read


def hash_file(path: Path, advance: Callable[[int], None] = lambda size: None) -> str:
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
        return hash_file(path)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return None


def hash_lines(lines: Iterable[str]) -> str:
    """Return the SHA-256 of lines joined by newlines."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def combine_file_hashes(hashes: Mapping[str, str]) -> str:
    """Return one SHA-256 for several files ({name: hash}): that of ``sha256sum``'s output lines."""
    return hash_lines(f"{digest}  {name}" for name, digest in sorted(hashes.items()))


def hash_json(value: Any) -> str:
    """Return the SHA-256 of a JSON value. The order of an object's keys does not matter."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
