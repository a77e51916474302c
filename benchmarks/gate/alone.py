"""python -m benchmarks.gate.alone read|gate FOLDER: one measurement in a process of its own."""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow.parquet as parquet

from benchmarks.gate.corpus import CHAMPION, METRICS


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    seconds: float
    cpu_seconds: float
    """Of all threads."""
    peak_mb: float
    """Largest resident memory of the process."""


def read(root: Path) -> None:
    """Decode every column of both files and let go of it, one row group after the other: so pyarrow
    takes less time and memory than in one go."""
    for name in ("challenger", "champion"):
        file = parquet.ParquetFile(root / f"processing/input/scores/{name}.parquet")
        for number in range(file.num_row_groups):
            for _ in file.iter_batches(2**17, row_groups=[number]):
                pass


def gate(root: Path) -> None:
    """The gate job's own verdict."""
    from conditions import score_checks  # noqa: F401  (imports are not measured: once before the clock)
    from steps.gate import job

    words = ["--primary_metric", METRICS[0], "--direction", "lower", "--champion", CHAMPION]
    words += ["--look", "1"]
    for metric in METRICS:
        words += ["--non_inferiority", metric, "lower", "0.01", "--superiority", metric, "lower"]
        words += ["0", "--slice_regression", metric, "lower", "0.01"]
    options = job.parse([*words, "--root", str(root)])
    _measured(lambda: _pass(job.judge(options)))


def _pass(verdict: dict) -> None:
    assert verdict["verdict"] == "pass", verdict["reason"]


def _measured(work: Callable[[], None]) -> None:
    began, used = time.perf_counter(), time.process_time()
    work()
    seconds, cpu = time.perf_counter() - began, time.process_time() - used
    print(json.dumps(asdict(Measured(seconds=seconds, cpu_seconds=cpu, peak_mb=_peak_mb()))))


def _peak_mb() -> float:
    """Since the process began; getrusage would also count what it was forked from."""
    lines = Path("/proc/self/status").read_text().splitlines()
    [kib] = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
    return int(kib) * 1024 / 1e6


if __name__ == "__main__":
    folder = Path(sys.argv[2])
    _measured(lambda: read(folder)) if sys.argv[1] == "read" else gate(folder)
