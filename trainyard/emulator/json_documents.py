"""JSON documents on disk."""

import json
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


class DocumentStore:
    """Documents by name, each in a file. Only one thread at a time may call it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        documents = map(read_json, sorted(folder.glob("*.json")))
        self.all: dict[str, dict[str, Any]] = {document["name"]: document for document in documents}

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
