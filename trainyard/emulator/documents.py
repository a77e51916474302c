"""JSON documents on disk."""

import json
from pathlib import Path
from typing import Any

from trainyard.emulator.files import write_atomic


def write_json(path: Path, document: Any) -> None:
    """Replaces ``path`` atomically. One thread at a time may write a given path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, json.dumps(document, indent=1).encode())


def read_json(path: Path) -> Any:
    return json.loads(path.read_bytes())
