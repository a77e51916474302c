"""Files that are whole or not there."""

import os
from pathlib import Path


def write_atomic(path: Path, text: str) -> None:
    """Replace ``path`` by ``text`` at once: killed anywhere, it leaves the old or the new."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
