"""JSON documents on disk."""

import json
from pathlib import Path
from typing import Any

from trainyard.common import whole_file


def write_json(path: Path, document: Any) -> None:
    """Replaces ``path`` atomically. One thread at a time may write a given path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    whole_file.write(path, json.dumps(document, indent=1))


def read_json(path: Path) -> Any:
    return json.loads(path.read_bytes())
