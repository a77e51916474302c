"""Run a user's evaluation script on one model, in a separate process.

The script gets what an AWS training job gets: SM_MODEL_DIR, the unpacked archive;
SM_CHANNEL_<NAME>, a folder per channel; SM_OUTPUT_DATA_DIR, where it writes scores; and its
arguments as ``--name value``.
"""

import json
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainyard.common.errors import DataError

LAST = 20
"""Number of a failed script's last lines that its error shows."""
LONGEST = 900
"""Maximum characters of these lines: SageMaker cuts a failure reason at 1,024."""


HERE = Path(__file__).parents[2]
"""Folder of our own code."""


@dataclass(frozen=True, slots=True)
class Request:
    """A sample request: a file in the script's folder, and its MIME types."""

    file: str
    content_type: str
    accept: str


@dataclass(frozen=True, slots=True)
class Script:
    """The script to run: ``entry``, relative to ``folder``, with ``arguments``."""

    folder: Path
    entry: str
    arguments: Sequence[str]
    channels: Mapping[str, Path]

    def run(self, model: Path, output: Path) -> None:
        """Run the script on the model in folder ``model``; it writes below ``output``, which is
        created.

        Raises:
            DataError: the script is missing or failed; contains its last lines.
        """
        if not (self.folder / self.entry).is_file():
            raise DataError(f"evaluate.script: {self.folder} does not contain {self.entry}")
        output.mkdir(parents=True)
        self._run_python(
            self.entry, [self.entry, *self.arguments], self._build_environment(model, output)
        )

    def measure_latency(self, model: Path, request: Request, out: Path) -> dict[str, Any]:
        """Time the inference script of the model in folder ``model``; return the latency, which is
        also written to ``out``.

        Raises:
            DataError: the script is missing or failed; contains its last lines.
        """
        if not (model / "code/inference.py").is_file():
            raise DataError(
                "code/inference.py: is not in the model's archive, and gate.max_latency_p95_ms is "
                "set; set inference.script"
            )
        environment = self._build_environment(model, out.parent)
        # The script's process can import our code, but not the packages installed for our job.
        environment["PYTHONPATH"] = os.pathsep.join((str(HERE), environment["PYTHONPATH"]))
        words = ["-P", str(HERE / "steps/evaluate/served_latency.py"), str(model)]
        words += [request.file, request.content_type, request.accept, str(out)]
        self._run_python("inference.py", words, environment)
        return json.loads(out.read_bytes())

    def _run_python(self, name: str, words: Sequence[str], environment: Mapping[str, str]) -> None:
        """Run Python in the script's folder and print its output; raise DataError if it fails."""
        last: deque[str] = deque(maxlen=LAST)
        with subprocess.Popen(
            [sys.executable, *words],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            assert process.stdout is not None  # stdout=PIPE
            for line in process.stdout:
                print(line, end="", flush=True)
                last.append(line)
        if process.returncode:
            lines = "".join(last).strip()[-LONGEST:] or "it printed nothing"
            raise DataError(
                f"{name}: {_describe_end(process.returncode)}; its last lines:\n{lines}"
            )

    def _build_environment(self, model: Path, output: Path) -> dict[str, str]:
        """Return the environment variables of the script's process."""
        channels = {f"SM_CHANNEL_{name.upper()}": str(path) for name, path in self.channels.items()}
        # The script's folder has the code that reads shards. Packages that were installed only for
        # our job are left out (``steps/container.sh``).
        parts = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        own_packages = os.environ.get("PACKAGES_APART")
        paths = [str(self.folder), *(part for part in parts if part and part != own_packages)]
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONUNBUFFERED": "1",
            "SM_MODEL_DIR": str(model),
            "SM_OUTPUT_DATA_DIR": str(output),
            "SM_CHANNELS": json.dumps(sorted(self.channels)),
            **channels,
        }


def _describe_end(status: int) -> str:
    """Return how the process ended: by an exit status or by a signal."""
    if status > 0:
        return f"ended with exit status {status}"
    name = signal.Signals(-status).name
    more = " (out of memory? a larger evaluate.instance_type has more)" * (name == "SIGKILL")
    return f"was ended by {name}{more}"
