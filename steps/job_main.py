"""Run a job: an error of ours ends it with one message where SageMaker looks for it."""

import gc
import logging
import sys
from collections.abc import Callable
from pathlib import Path

from trainyard.common import atomic_file
from trainyard.common.errors import StorageError, TrainyardError


def report(failure: TrainyardError, message_file: Path) -> None:
    """Print the message, and write it."""
    print(f"error: {failure}", flush=True)
    write_message(str(failure), message_file)


def write_message(text: str, message_file: Path) -> None:
    """Write the message atomically: several ranks may write it, and torchrun may end one while it
    does. A full disk, which may be the reason itself, is only printed.

    A job that somebody starts by hand leaves none: that machine has no /opt/ml, or a notebook's,
    which has ``metadata``.
    """
    root = message_file.parents[1]
    if not root.is_dir() or (root / "metadata").exists():
        return
    try:
        with atomic_file.storage_errors(message_file):
            message_file.parent.mkdir(exist_ok=True)
            atomic_file.write(message_file, text)
    except StorageError as full:
        print(f"error: {full}", flush=True)


def run(
    job: Callable[[], None],
    message_file: Path,
    report: Callable[[TrainyardError, Path], None] = report,
) -> None:
    """Run the job; on a TrainyardError write its message, print it, and exit with status 1.

    ``message_file``: /opt/ml/output/failure of a training job, /opt/ml/output/message of a
    processing job; SageMaker shows it as FailureReason. Any other exception is a bug:
    its traceback goes to the log.
    """
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stdout)
    try:
        job()
        return
    except TrainyardError as error:
        failure = type(error)(str(error))
    except OSError as error:  # of a library that wrote; what we write names its own file
        if error.errno not in atomic_file.REMEDIES:
            raise
        logging.exception("a library could not write")
        place = error.filename or message_file.parents[1]
        failure = atomic_file.storage_error(Path(place), error)
    # The error, and with its traceback all that the job held, is released here. Else the threads of
    # a process group outlive the interpreter's shutdown, where one that drops a tensor aborts.
    gc.collect()
    report(failure, message_file)
    sys.exit(1)
