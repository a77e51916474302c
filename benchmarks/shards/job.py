"""The shard job as it runs in its container: a command, its time, the memory of its processes."""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.shards.process import CHECKOUT

INTERVAL = 0.02
"""Seconds between two looks at the memory."""


class JobFailed(Exception):
    """The shard job ended with an error."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the job."""

    seconds: float
    """From the start of the interpreter to its end."""
    peak_bytes: int
    """Largest sum of the resident memory of all its processes; 0 if nobody looked. Pages that
    two processes share (libraries) count twice."""
    output_bytes: int


def run(source: Path, output: Path, arguments: Sequence[str], *, watch_memory: bool = False) -> Run:
    """Shard ``source`` into ``output``, which is emptied before.

    Raises:
        JobFailed: with the last line that it printed.
    """
    shutil.rmtree(output, ignore_errors=True)
    root = output / "root"
    root.mkdir(parents=True)
    places = ["--input", str(source), "--output", str(output / "dataset"), "--root", str(root)]
    command = [sys.executable, "-m", "steps.shard.job", *arguments, *places]
    with tempfile.TemporaryFile() as log:
        began = time.perf_counter()
        process = subprocess.Popen(command, cwd=CHECKOUT, stdout=log, stderr=log)
        peak = _watch(process) if watch_memory else 0
        status = process.wait()
        seconds = time.perf_counter() - began
        if status:
            log.seek(0)
            lines = log.read().decode(errors="replace").strip().splitlines() or [f"status {status}"]
            raise JobFailed(lines[-1])
    return Run(seconds, peak, sum(f.stat().st_size for f in output.rglob("*.npy")))


def language_model(tokenizer: Path | None) -> list[str]:
    """Arguments for text, packed into samples of 2,049 tokens."""
    config = {"context_length": 2048, "tokenizer": "file" if tokenizer else "bytes"}
    arguments = ["--workload", "language_model", "--workload_config", json.dumps(config)]
    return arguments + (["--tokenizer", str(tokenizer)] if tokenizer else [])


def _watch(process: subprocess.Popen) -> int:
    """Bytes at the peak. Ends with the process."""
    peak, tree = 0, psutil.Process(process.pid)
    while process.poll() is None:
        peak = max(peak, sum(_resident(one) for one in [tree, *_children(tree)]))
        time.sleep(INTERVAL)
    return peak


def _children(tree: psutil.Process) -> list[psutil.Process]:
    try:
        return tree.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _resident(process: psutil.Process) -> int:
    try:
        return process.memory_info().rss
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return 0  # it ended between the two looks
