"""The edge of every job: an error of ours ends it with one message where SageMaker looks for it."""

import gc
import logging
import sys
from collections.abc import Callable
from pathlib import Path

from errors import LostRankError, TrainyardError
from training.restart import Attempt


def run(job: Callable[[], None], message_file: Path) -> None:
    """Run the job; on a TrainyardError write its message, print it, and exit with status 1.

    ``message_file``: /opt/ml/output/failure of a training job, /opt/ml/output/message of a
    processing job; SageMaker makes the FailureReason of it. Anything else that is raised is a bug:
    its traceback goes to the log.
    """
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stdout)
    try:
        job()
        return
    except TrainyardError as error:
        failure = type(error)(str(error))
    # The error is gone here, and with its traceback all that the job held. Else the threads of a
    # process group live on into the interpreter's end, where one that drops a tensor aborts.
    gc.collect()
    report(failure, message_file)
    sys.exit(1)


def report(failure: TrainyardError, message_file: Path) -> None:
    """Print the message; write it, too, unless the ranks are started again after it."""
    attempt, message = Attempt.read(), str(failure)
    lost = isinstance(failure, LostRankError)
    if lost and attempt.most and not attempt.another:
        message += f"; restarted {attempt.most} times already (train.max_restarts)"
    if not (lost and attempt.another):
        message_file.parent.mkdir(parents=True, exist_ok=True)
        message_file.write_text(message, encoding="utf-8")
    print(f"error: {message}", flush=True)
