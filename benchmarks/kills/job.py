"""The sharding job as a process of its own, over a folder of raw data."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from steps.shard.shard_plan import SPLITS

CHECKOUT = Path(__file__).resolve().parents[2]
SETTINGS = {"context_length": 64, "layers": 1, "heads": 1, "dim": 8}
SHARD_MB = 0.03  # many small shards: many moments to be killed at
TIMEOUT = 120  # seconds that no job takes


@dataclass(frozen=True)
class Job:
    """Where a job reads and writes, and with how many processes."""

    raw: Path
    folder: Path
    processes: int

    @property
    def output(self) -> Path:
        return self.folder / "output"

    @property
    def command(self) -> list[str]:
        return [
            *(sys.executable, "-m", "steps.shard.job"),
            *("--workload", "language_model", "--workload_config", json.dumps(SETTINGS)),
            *("--key", "key", "--validation_share", "0.2", "--test_share", "0.2"),
            *("--shard_mb", str(SHARD_MB), "--max_bad_share", "0.01"),
            *("--processes", str(self.processes), "--input", str(self.raw)),
            *("--output", str(self.output), "--root", str(self.folder / "root")),
        ]

    def start(self, prefix: Sequence[str] = ()) -> subprocess.Popen:
        """In a process group of its own; its output goes to a new file, which no kill can block."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "log").open("wb") as log:
            return subprocess.Popen(
                [*prefix, *self.command],
                cwd=CHECKOUT,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
                start_new_session=True,
            )

    def run(self) -> tuple[int, float]:
        """(exit status, seconds) of an undisturbed run."""
        started = time.monotonic()
        status = self.start().wait(TIMEOUT)
        return status, time.monotonic() - started

    def log(self) -> str:
        path = self.folder / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def files(self) -> list[Path]:
        """Everything in the output folder that is there under its final name."""
        folders = [self.output / name for name in (*SPLITS, "quarantine", "progress", "scratch")]
        paths = [path for folder in folders if folder.is_dir() for path in folder.rglob("*")]
        return [path for path in paths if not path.name.startswith(".") and path.is_file()]


def workers(job: subprocess.Popen) -> list[psutil.Process]:
    """The job's worker processes that are alive."""
    found = []
    try:
        for child in psutil.Process(job.pid).children():
            if any("spawn_main" in word for word in child.cmdline()):
                found.append(child)
    except psutil.NoSuchProcess:  # it ended while we looked
        pass
    return found
