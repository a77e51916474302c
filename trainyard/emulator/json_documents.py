"""JSON documents on disk."""

import json
import logging
import threading
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainyard.common import atomic_file


def write_json(path: Path, document: Any) -> None:
    """Replace ``path`` atomically. Only one thread at a time may write to the same path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_file.write_file(path, json.dumps(document, indent=1))


def read_json(path: Path) -> Any:
    return json.loads(path.read_bytes())


class DocumentStore:
    """Documents by name, each in a file. Only one thread at a time may use a store."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        documents = map(read_json, sorted(folder.glob("*.json")))
        self.all: dict[str, dict[str, Any]] = {document["name"]: document for document in documents}

    def put(self, document: dict[str, Any]) -> None:
        """Store the document under its ``name``, in memory and on disk."""
        json.dumps(document)  # raise an error before anything is changed
        self.all[document["name"]] = document
        write_json(self._build_path(document["name"]), document)

    def drop(self, name: str) -> None:
        del self.all[name]
        self._build_path(name).unlink(missing_ok=True)

    def _build_path(self, name: str) -> Path:
        return self._folder / f"{urllib.parse.quote(name, safe='')}.json"


# A record whose write is repeated until the disk accepts it.

log = logging.getLogger(__name__)

EVERY = 1.0  # seconds between attempts


class RepeatedWrite:
    """A callable that calls ``write``. If that fails, a thread repeats it until it succeeds.

    It is for events that have already happened, such as the end of a job: a full disk must neither
    undo nor hide them. Other records are written before the response to a request is sent, so that
    the request fails if the disk is full.
    """

    def __init__(self, write: Callable[[], None], label: str, every: float = EVERY) -> None:
        self._write, self._label, self._every = write, label, every
        self._lock = threading.Lock()
        self.pending = False
        """Whether the disk still has an older record, or none."""

    def __call__(self) -> None:
        try:
            self._write()
        except OSError as error:
            with self._lock:
                if self.pending:
                    return
                self.pending = True
            log.error("%s cannot be written to disk: %s; retrying", self._label, error)
            threading.Thread(target=self._retry_write, daemon=True).start()

    def _retry_write(self) -> None:
        """Call ``write`` until it succeeds."""
        pause = threading.Event()
        while self.pending:
            pause.wait(self._every)
            try:
                self._write()
            except OSError:
                continue
            self.pending = False
        log.warning("%s was written to disk", self._label)
