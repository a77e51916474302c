"""Run a job: an error of ours ends it with one message where SageMaker looks for it."""

import gc
import logging
import sys
from collections.abc import Callable
from pathlib import Path

from trainyard.common import atomic_file
from trainyard.common.errors import TrainyardError


def report(failure: TrainyardError, message_file: Path) -> None:
    """Write the message, and print it."""
    write_message(str(failure), message_file)
    print(f"error: {failure}", flush=True)


def write_message(text: str, message_file: Path) -> None:
    """Write the message atomically: several ranks may write it, and torchrun may end one while it
    does.
    """
    message_file.parent.mkdir(parents=True, exist_ok=True)
    atomic_file.write(message_file, text)


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
    # The error, and with its traceback all that the job held, is released here. Else the threads of
    # a process group outlive the interpreter's shutdown, where one that drops a tensor aborts.
    gc.collect()
    report(failure, message_file)
    sys.exit(1)
