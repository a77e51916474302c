"""Starts the process that writes this rank's files, and hears from it.

torch has ``dcp.async_save`` with ``AsyncCheckpointerType.PROCESS``, which is not used: its process
imports torch and joins a process group of its own (as many connections again, and a collective's
clock), gathers everybody's plans as pickles at each save, shares each tensor by a file in /dev/shm
that a killed job leaves behind, and its safetensors writer has a file in memory twice.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from trainyard.common.errors import TrainingError

CHECKOUT = Path(__file__).parents[2]
HELD_BACK = (signal.SIGTERM, signal.SIGINT)


class Writer:
    """The process, from its start to ``close``."""

    def __init__(self, image: int, size: int) -> None:
        """``image``: the descriptor of the memory that it writes ``size`` bytes of."""
        places = os.pathsep.join([str(CHECKOUT), *filter(None, [os.environ.get("PYTHONPATH")])])
        command = [sys.executable, "-m", "training.checkpoints.process"]
        # What is started inherits it: a stop of the job must not tear what is being written.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, HELD_BACK)
        try:
            self._process = subprocess.Popen(
                [*command, str(image), str(size), str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=[image],
                env=os.environ | {"PYTHONPATH": places},
                text=True,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def write(self, path: Path, advance: Callable[[], None]) -> str:
        """Have the image written to ``path``; the hash of its blocks' hashes.

        Args:
            advance: called when some of it is written.

        Raises:
            TrainingError: it could not be written, or the process is gone.
        """
        sends, answers = self._process.stdin, self._process.stdout
        assert sends and answers  # noqa: S101
        try:
            sends.write(json.dumps(str(path)) + "\n")
            sends.flush()
            for line in answers:
                said = json.loads(line)
                if "sha256" in said:
                    return said["sha256"]
                if "error" in said:
                    raise TrainingError(said["error"])
                advance()
        except BrokenPipeError:
            pass
        status = self._process.wait()
        raise TrainingError(
            f"{path}: the process that writes it ended with status {status}; was it killed for "
            "want of memory?"
        )

    def close(self) -> None:
        """Let it end, and wait for that."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                pipe.close()
        self._process.wait()
