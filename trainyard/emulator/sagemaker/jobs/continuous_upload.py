"""Uploads while a job runs: checkpoints, and processing outputs with S3UploadMode Continuous.

Uploaded files stay when the job fails; that is what checkpoints are for.
"""

import shutil
import threading
from dataclasses import dataclass
from os import fstat, stat_result
from pathlib import Path

from trainyard.emulator.request_scope import Thread
from trainyard.emulator.s3.object_store import ObjectStore
from trainyard.emulator.sagemaker.jobs.job_files import ClientFault, JobFile, JobFolder
from trainyard.emulator.sagemaker.jobs.transfers import put_file

INTERVAL = 1.0  # seconds between checks of the directories
Stamp = tuple[int, int, int]
"""Size in bytes, mtime in ns, inode: a rewritten file differs in at least one of them."""


@dataclass(slots=True)
class _FileState:
    stamp: Stamp
    is_uploaded: bool = False


class ContinuousUpload:
    """Uploads files below ``folders`` (one per node) to ``uri`` while a job runs.

    A file is uploaded when two checks found it unchanged. It is copied aside first, so a half
    written file never becomes an object. As on AWS, deleting a file does not delete its object.
    """

    def __init__(self, objects: ObjectStore, folders: list[JobFolder], uri: str, aside: Path):
        self._objects = objects
        self._folders = folders
        self._uri = uri
        self._aside = aside
        self._states: dict[JobFile, _FileState] = {}
        self._stop = threading.Event()
        self._thread = Thread(target=self._watch, daemon=True)
        for folder in folders:
            for file in folder.files():  # what was downloaded at the start is in S3 already
                self._states[file] = _FileState(_stamp(file.status), is_uploaded=True)

    def __enter__(self) -> "ContinuousUpload":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Upload what is left: the processes are gone, so every file is as final as it gets.

        Raises:
            ClientFault: a file could not be uploaded; all others are.
        """
        self._stop.set()
        self._thread.join()
        self._check_files(final=True)

    def _watch(self) -> None:
        while not self._stop.wait(INTERVAL):
            self._check_files(final=False)

    def _check_files(self, final: bool) -> None:
        faults: list[ClientFault] = []
        for folder in self._folders:
            try:
                files = list(folder.files())
            except ClientFault as fault:
                faults.append(fault)
                continue
            for file in files:
                try:
                    self._consider(file, final)
                except ClientFault as fault:  # the other files still go up
                    faults.append(fault)
                except OSError:  # renamed, deleted or replaced meanwhile: the next check sees it
                    continue
        # Only at the end: until then, the job may still mend what is at fault.
        if final and faults:
            raise faults[0]

    def _consider(self, file: JobFile, final: bool) -> None:
        stamp = _stamp(file.status)
        state = self._states.get(file)
        if state is None or state.stamp != stamp:
            state = self._states[file] = _FileState(stamp)
            if not final:
                return
        if not state.is_uploaded and self._put(file, stamp):
            state.is_uploaded = True

    def _put(self, file: JobFile, stamp: Stamp) -> bool:
        """Upload the file; return False when it changed before it was copied, or meanwhile."""
        with file.open() as source, self._aside.open("wb") as aside:
            shutil.copyfileobj(source, aside)
            if _stamp(fstat(source.fileno())) != stamp:
                return False
        with self._aside.open("rb") as stream:
            put_file(self._objects, self._uri, file.name, stream)
        return True


def _stamp(status: stat_result) -> Stamp:
    return status.st_size, status.st_mtime_ns, status.st_ino
