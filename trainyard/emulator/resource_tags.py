"""Tags on pipelines, executions and jobs."""

import threading
from pathlib import Path

from trainyard.emulator.json_documents import read_json, write_json
from trainyard.emulator.retrying_write import Late


class Tags:
    """Tags by ARN, in one file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.RLock()
        self._keep = Late(self._write, "the tags without those of what is deleted")
        self._tags: dict[str, dict[str, str]] = read_json(path) if path.exists() else {}

    def add(self, request: dict) -> dict:
        with self._lock:
            tags = self._tags.setdefault(request["ResourceArn"], {})
            tags |= {tag["Key"]: tag["Value"] for tag in request["Tags"]}
            write_json(self._path, self._tags)
        return {"Tags": _as_list(tags)}

    def list_tags(self, request: dict) -> dict:
        return {"Tags": _as_list(self._tags.get(request["ResourceArn"], {}))}

    def delete(self, request: dict) -> dict:
        with self._lock:
            tags = self._tags.get(request["ResourceArn"], {})
            for key in request["TagKeys"]:
                tags.pop(key, None)
            write_json(self._path, self._tags)
        return {}

    def forget(self, arn: str) -> None:
        """Forget the tags of a deleted resource: a new one of its name starts without tags."""
        with self._lock:
            if self._tags.pop(arn, None) is not None:
                self._keep()  # its resource is gone, whatever the disk says

    def _write(self) -> None:
        with self._lock:
            write_json(self._path, self._tags)


def _as_list(tags: dict[str, str]) -> list[dict]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]
