"""Run the tests at each instruction set that this processor has: do they hold on others?

python -m benchmarks.processors [--all] [--select tests/training] [--log FOLDER]

    --all      every combination of the settings below, instead of one for each instruction set
    --select   what pytest runs: files, folders, or one test; repeat it for several

The processor decides which kernels PyTorch, oneDNN and MKL take, and so the last digits of what
they compute. The jobs that the tests start are held to the same: the emulator hands these
variables on. Exits with 1 when a test fails, or when two runs do not pass the same number.
"""

import itertools
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.harness import show_table

KERNELS = ("default", "avx2", "avx512")
"""Levels of ATEN_CPU_CAPABILITY on x86-64, the lowest first."""
LIBRARIES = {
    "default": {"ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_CBWR": "COMPATIBLE"},
    "avx2": {"ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_CBWR": "AVX2"},
    "avx512": {},
}
"""What holds oneDNN and MKL to the same level; nothing where they may use all there is."""
CAPABILITY = "import torch; print(torch.backends.cpu.get_cpu_capability())"


def main(
    every: Annotated[bool, typer.Option("--all")] = False,
    select: Annotated[list[str], typer.Option()] = ["tests"],  # noqa: B006  typer copies it
    log: Path = Path("processors"),
) -> None:
    log.mkdir(parents=True, exist_ok=True)
    rows, results = [], set()
    for kernels, libraries, threads in _settings(every):
        settings = LIBRARIES[libraries] | {
            "ATEN_CPU_CAPABILITY": kernels,
            "OMP_NUM_THREADS": str(threads),
        }
        began = time.perf_counter()
        name = f"{kernels}-{libraries}-{threads}.log"
        passed, failed = _run(select, settings, log / name)
        results.add((passed, failed))
        seconds = f"{time.perf_counter() - began:.0f}"
        rows.append((kernels, libraries, threads, passed, failed, seconds))
        print(f"{name}: {passed} passed, {failed} failed, {seconds} s", flush=True)
    show_table(("kernels", "oneDNN, MKL", "threads", "passed", "failed", "seconds"), rows)
    raise typer.Exit(len(results) != 1 or results.pop()[1] != 0)


def _settings(every: bool) -> Iterator[tuple[str, str, int]]:
    """Kernels, libraries and threads of each run."""
    there = [level for level in KERNELS if _reached(level)]
    if every:
        return itertools.product(there, there, (1, 2))
    return ((level, level, 1 + number % 2) for number, level in enumerate(there))


def _reached(level: str) -> bool:
    """Return whether this processor has the instructions: torch falls back silently."""
    found = subprocess.run(
        [sys.executable, "-c", CAPABILITY],
        env=os.environ | {"ATEN_CPU_CAPABILITY": level},
        capture_output=True,
        text=True,
        check=True,
    )
    return found.stdout.strip().lower().startswith(level)


def _run(select: list[str], settings: dict[str, str], log: Path) -> tuple[int, int]:
    """Tests that passed and that failed; what pytest printed is in ``log``."""
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadfile", *select]
    with log.open("w") as file:
        done = subprocess.run(
            command, env=os.environ | settings, stdout=file, stderr=subprocess.STDOUT, check=False
        )
    last = log.read_text().splitlines()[-1]
    passed, failed, errors = (_count(word, last) for word in ("passed", "failed", "error"))
    if not passed and done.returncode:
        raise SystemExit(f"pytest ended with {done.returncode}: {last}; see {log}")
    return passed, failed + errors


def _count(word: str, line: str) -> int:
    found = re.search(rf"(\d+) {word}", line)
    return int(found[1]) if found else 0


if __name__ == "__main__":
    typer.run(main)
