"""JSON documents on disk."""

import contextlib
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainyard.common import whole_file

log = logging.getLogger(__name__)


def write_json(path: Path, document: Any) -> None:
    """Replaces ``path`` atomically. One thread at a time may write a given path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    whole_file.write(path, json.dumps(document, indent=1))


def read_json(path: Path) -> Any:
    return json.loads(path.read_bytes())


@contextlib.contextmanager
def log_refusals(what: str) -> Iterator[None]:
    """Around the record of what has happened already: a disk that refuses it is logged."""
    try:
        yield
    except OSError as refused:
        log.error("%s is not on disk: %s", what, refused)
