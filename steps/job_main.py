"""Run a job; if it raises a TrainyardError, write the message to the file that SageMaker reads."""

import gc
import logging
import sys
from collections.abc import Callable
from pathlib import Path

from trainyard.common import atomic_file
from trainyard.common.errors import StorageError, TrainyardError


def report_failure(failure: TrainyardError, message_file: Path) -> None:
    """Print the failure's message, and write it to ``message_file``."""
    print(f"error: {failure}", flush=True)
    write_message(str(failure), message_file)


def write_message(text: str, message_file: Path) -> None:
    """Write the message atomically, because several ranks may write it, and torchrun may end one of
    them while it writes. If the disk is full, which may be the failure itself, only print that.

    Write nothing if the job was started by hand: such a machine has no /opt/ml, or that of a
    notebook, which has ``metadata``.
    """
    root = message_file.parents[1]
    if not root.is_dir() or (root / "metadata").exists():
        return
    try:
        with atomic_file.storage_errors(message_file):
            message_file.parent.mkdir(exist_ok=True)
            atomic_file.write_file(message_file, text)
    except StorageError as full:
        print(f"error: {full}", flush=True)


def run(
    job: Callable[[], None],
    message_file: Path,
    report: Callable[[TrainyardError, Path], None] = report_failure,
) -> None:
    """Run the job; on a TrainyardError, write its message, print it, and exit with status 1.

    ``message_file``: /opt/ml/output/failure for a training job, /opt/ml/output/message for a
    processing job; SageMaker shows it as FailureReason. Any other exception is a bug, and its
    traceback is in the log.
    """
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stdout)
    try:
        job()
        return
    except TrainyardError as error:
        failure = type(error)(str(error))
    except OSError as error:  # raised by a library; our own writes raise a StorageError
        if error.errno not in atomic_file.REMEDIES:
            raise
        logging.exception("a library could not write")
        path = error.filename or message_file.parents[1]
        failure = atomic_file.make_storage_error(Path(path), error)
    # The error was copied, so that the original, and with its traceback everything that the job
    # held, is released here. Otherwise the threads of a process group would outlive the
    # interpreter's shutdown, during which a thread that drops a tensor aborts the process.
    gc.collect()
    report(failure, message_file)
    sys.exit(1)
