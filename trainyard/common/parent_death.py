"""Make a job's processes end with the job."""

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from multiprocessing.process import BaseProcess

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with_parent() -> None:
    """End this process when its parent ends: an orphan would write what the next run writes, too.

    On Linux the kernel does this, even while a long call into C holds Python's lock.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = multiprocessing.parent_process()
    if parent is not None:
        if not parent.is_alive():  # it died while we were starting
            os._exit(1)
        threading.Thread(target=_end_after, args=(parent,), daemon=True).start()


def _end_after(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)
