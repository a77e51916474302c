"""Uploads while a job runs: checkpoints, and processing outputs with S3UploadMode Continuous.

Uploaded files stay when the job fails; that is what checkpoints are for.
"""

import shutil
import threading
from dataclasses import dataclass
from pathlib import Path

from trainyard.emulator.jobs.transfers import files_in, join_key, split_uri
from trainyard.emulator.request_scope import Thread
from trainyard.emulator.storage.object_store import ObjectStore

INTERVAL = 1.0  # seconds between checks of the directories
Stamp = tuple[int, int, int]
"""Size in bytes, mtime in ns, inode: a rewritten file differs in at least one of them."""


@dataclass(slots=True)
class _Seen:
    stamp: Stamp
    uploaded: bool = False


class ContinuousUpload:
    """Uploads files below ``directories`` (one per node) to ``uri`` while a job runs.

    A file is uploaded when two checks found it unchanged. It is copied aside first, so a half
    written file never becomes an object. As on AWS, deleting a file does not delete its object.
    """

    def __init__(self, objects: ObjectStore, directories: list[Path], uri: str, aside: Path):
        self._objects = objects
        self._directories = directories
        self._bucket, self._prefix = split_uri(uri)
        self._aside = aside
        self._seen: dict[Path, _Seen] = {}
        self._stop = threading.Event()
        self._thread = Thread(target=self._watch, daemon=True)
        for path in self._files():  # what was downloaded at the start is in S3 already
            self._seen[path] = _Seen(_stamp(path), uploaded=True)

    def __enter__(self) -> "ContinuousUpload":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Upload what is left: the processes are gone, so every file is as final as it gets."""
        self._stop.set()
        self._thread.join()
        self._look(final=True)

    def _watch(self) -> None:
        while not self._stop.wait(INTERVAL):
            self._look(final=False)

    def _files(self) -> list[Path]:
        return [path for directory in self._directories for path in files_in(directory)]

    def _look(self, final: bool) -> None:
        for path in self._files():
            try:
                self._consider(path, final)
            except FileNotFoundError:
                continue  # renamed or deleted meanwhile: the next check sees the result

    def _consider(self, path: Path, final: bool) -> None:
        stamp = _stamp(path)
        seen = self._seen.get(path)
        if seen is None or seen.stamp != stamp:
            seen = self._seen[path] = _Seen(stamp)
            if not final:
                return
        if not seen.uploaded and self._put(path, stamp):
            seen.uploaded = True

    def _put(self, path: Path, stamp: Stamp) -> bool:
        """Upload the file; return False when it changed while it was copied."""
        shutil.copyfile(path, self._aside)
        if _stamp(path) != stamp:
            return False
        directory = next(d for d in self._directories if path.is_relative_to(d))
        key = join_key(self._prefix, path.relative_to(directory).as_posix())
        self._objects.put_file(self._bucket, key, self._aside)
        return True


def _stamp(path: Path) -> Stamp:
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns, stat.st_ino
