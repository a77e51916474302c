"""What the gate leaves behind is whole, or not there."""

import os
from pathlib import Path


def write(path: Path, text: str) -> None:
    """Under a temporary name, flushed, renamed; the folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
