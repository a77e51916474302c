"""Run a contender in a process of its own, which takes commands of the benchmark."""

import json
import subprocess
import sys
import tempfile
from typing import Any

from benchmarks.harness import CHECKOUT
from benchmarks.shards.contenders import Entry


class ContenderFailed(Exception):
    """A contender's process ended, or what it read is not what was written."""

    def __init__(self, entry: Entry, reason: str) -> None:
        super().__init__(f"{entry.label}: {reason}")
        self.entry = entry


class Process:
    """A contender in a process of its own, which executes one command after the other."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.shards.worker", entry.module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=CHECKOUT,
            text=True,
        )

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Send a command; return its answer.

        Raises:
            ContenderFailed: with the last line that the process wrote to stderr.
        """
        command = json.dumps({"do": do} | arguments, default=str)
        try:
            self._process.stdin.write(command + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._make_failure(do) from None
        answer = self._process.stdout.readline()
        if not answer:
            raise self._make_failure(do)
        return json.loads(answer)

    def close(self) -> None:
        """End the process; kill it if a library's thread does not end."""
        self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.close()

    def _make_failure(self, do: str) -> ContenderFailed:
        status = self._process.wait()
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        last = lines[-1] if lines else f"exit status {status}"
        return ContenderFailed(self.entry, f"{do}: {last}")
