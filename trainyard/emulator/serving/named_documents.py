"""Documents that clients create, describe, list and delete by name: models, configurations."""

import re
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from trainyard.emulator.api import ApiError, make_arn
from trainyard.emulator.json_documents import read_json, write_json
from trainyard.emulator.paging import ordered, page

NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}")  # the API reference's pattern


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of document. ``api`` as in CreateModel, ``resource`` as in its ARN, ``words`` as in
    messages.
    """

    api: str
    resource: str
    words: str


class Stored:
    """The documents of a kind, one file each below ``root``. Thread-safe.

    Names must differ in more than case, since ARNs have them in lower case.

    Raises ``ValidationException`` as AWS does for a name that is in use, or missing.
    """

    def __init__(self, root: Path, kind: Kind) -> None:
        self._root, self._kind = root, kind
        self._lock = threading.Lock()

    def arn(self, name: str) -> str:
        return make_arn("sagemaker", f"{self._kind.resource}/{name.lower()}")

    def create(self, request: dict) -> str:
        """Store the request; return its ARN."""
        name = request[f"{self._kind.api}Name"]
        arn = self.arn(name)
        if not NAME.fullmatch(name):
            raise ApiError("ValidationException", f"{name!r} must match {NAME.pattern}")
        with self._lock:
            if self._path(name).exists():
                message = f'Cannot create already existing {self._kind.words} "{arn}".'
                raise ApiError("ValidationException", message)
            own = {f"{self._kind.api}Arn": arn, "CreationTime": time.time()}
            write_json(self._path(name), {k: v for k, v in request.items() if k != "Tags"} | own)
        return arn

    def describe(self, name: str) -> dict:
        path = self._path(name)
        if not NAME.fullmatch(name) or not path.exists():
            message = f'Could not find {self._kind.words} "{self.arn(name)}".'
            raise ApiError("ValidationException", message)
        return read_json(path)

    def delete(self, name: str) -> dict:
        with self._lock:
            self.describe(name)
            self._path(name).unlink()
        return {}

    def list_all(self, request: dict) -> dict:
        api = self._kind.api
        after, before = request.get("CreationTimeAfter", 0), request.get("CreationTimeBefore", 1e99)
        found = [
            document
            for document in map(read_json, self._root.glob("*.json"))
            if request.get("NameContains", "").lower() in document[f"{api}Name"].lower()
            and after <= document["CreationTime"] <= before
        ]
        keys = {"Name": f"{api}Name", "CreationTime": "CreationTime"}
        found = ordered(found, request, keys, "CreationTime", "Descending")
        wanted = (f"{api}Name", f"{api}Arn", "CreationTime")
        return page(f"{api}s", found, request, 10, lambda d: {key: d[key] for key in wanted})

    def _path(self, name: str) -> Path:
        return self._root / f"{name.lower()}.json"
