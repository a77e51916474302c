"""JSON documents on disk."""

import json
import logging
import urllib.parse
from pathlib import Path
from typing import Any

from trainyard.common import atomic_file


def write_json(path: Path, document: Any) -> None:
    """Replace ``path`` atomically. Only one thread at a time may write a given path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_file.write(path, json.dumps(document, indent=1))


def read_json(path: Path) -> Any:
    return json.loads(path.read_bytes())


log = logging.getLogger(__name__)


class Kept:
    """Documents by name, each in a file. Only one thread at a time may call it.

    An unreadable file is logged and set aside; the other documents remain usable.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.all: dict[str, dict[str, Any]] = {}
        for path in sorted(folder.glob("*.json")):
            try:
                document = read_json(path)
                self.all[document["name"]] = document
            except (ValueError, KeyError, TypeError) as error:
                path.replace(path.with_suffix(".damaged"))
                log.warning("%s cannot be read (%s): it is kept as .damaged", path, error)

    def put(self, document: dict[str, Any]) -> None:
        """Keep the document under its ``name``."""
        json.dumps(document)  # before anything is changed
        self.all[document["name"]] = document
        write_json(self._path(document["name"]), document)

    def drop(self, name: str) -> None:
        del self.all[name]
        self._path(name).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self._folder / f"{urllib.parse.quote(name, safe='')}.json"
