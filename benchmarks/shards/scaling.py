"""Measure how instances share the shard job's work: CPU, bytes, disk and memory of each.

python -m benchmarks.shards.scaling [--mb 2000] [--instances 1,2,4]

The instances of a job are processes of this machine, and nodes of one Ray cluster, each with a part
of the files as S3 gives it under ShardedByS3Key, one worker each; seconds of CPU are what counts,
those of all processes of an instance. ``apart`` are as many jobs of one instance, each on one of
these parts, at the same time: they exchange nothing, and suffer as much from a machine with few
cores.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer

from benchmarks.harness import CHECKOUT, JsonFile, show_table, track_steps, write_json
from benchmarks.shards import corpus

FILES = 64
"""Number of raw files; one more repeats the first."""
INTERVAL = 0.5
"""Seconds between two samples of the processes."""
TARGET = 2.5
"""Largest ratio of an instance's CPU to that of a job on its part alone: Ray's processes on an
instance take 7 to 9 seconds."""


def divide_files(raw: Path, folder: Path, count: int) -> list[Path]:
    """Give each instance every ``count``-th file, as ShardedByS3Key does; return their folders."""
    files = sorted(path for path in raw.rglob("*") if path.is_file())
    for number, path in enumerate(files):
        place = folder / f"{number % count}" / path.relative_to(raw)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.hardlink_to(path)
    for number in range(count):
        (folder / f"{number}").mkdir(exist_ok=True)
    return [folder / f"{number}" for number in range(count)]


@dataclass(frozen=True)
class Cost:
    """Cost of one instance of the job."""

    cpu_s: float
    read_mb: float
    """Read by calls: files and network; not by memory maps."""
    disk_mb: float
    """MB below its output folder at the peak."""
    peak_mb: float
    """Resident memory at the peak, with pages of mapped files, which the kernel can take back."""
    own_mb: float
    """Memory at the peak, without the pages of mapped files."""
    sorted_cpu_s: float
    """CPU until its records lay sorted on its disk, without duplicates, before they are packed."""


def run_instances(
    raw: Sequence[Path], folder: Path, hosts: int, arguments: Sequence[str], apart: bool = False
) -> list[Cost]:
    """Run an instance for each folder of raw data, of a job of ``hosts`` instances.

    ``apart``: each is a job of its own.
    """
    names = sorted(f"algo-{number + 1}" for number in range(hosts))
    about = json.dumps({"ProcessingJobArn": f"{folder} {time.monotonic_ns()}"})
    running = []
    for host, part in zip(names, raw, strict=False):
        root = folder / host
        (root / "config").mkdir(parents=True)
        cluster = {"current_host": host, "hosts": [host] if apart else names}
        (root / "config/resourceconfig.json").write_text(json.dumps(cluster))
        (root / "processing/input").mkdir(parents=True)
        (root / "processing/input/raw").symlink_to(part)
        command = [sys.executable, "-m", "steps.shard.job", *arguments, "--root", str(root)]
        (root / "config/processingjobconfig.json").write_text(about)
        command += ["--processes", "1"]
        own = os.environ | {"OMP_NUM_THREADS": "1"}
        with (root / "log").open("wb") as log:
            process = subprocess.Popen(command, cwd=CHECKOUT, env=own, stdout=log, stderr=log)
        running.append(_Watched(process.pid, root, host))
    while not all([one.check_ended() for one in running]):
        time.sleep(INTERVAL)
    return [one.compute_cost() for one in running]


class _Watched:
    """A process and its children, whose costs are sampled until it ends."""

    def __init__(self, pid: int, root: Path, host: str) -> None:
        self._process, self._root = psutil.Process(pid), root
        self._output = root / "processing/output"
        self._mark = self._output / "progress" / host / "survey.json"
        self._times: dict[tuple[int, float], float] = {}
        self._reads: dict[tuple[int, float], int] = {}
        self._disk = self._own = self._resident = 0
        self._sorted = 0.0
        self._reaped = 0.0
        self._ended = False

    def check_ended(self) -> bool:
        """Sample the costs; return whether the process has ended."""
        if self._ended:
            return True
        with suppress(psutil.Error):
            self._sample([self._process, *self._process.children(recursive=True)])
        if not self._sorted and self._mark.is_file():
            self._sorted = sum(self._times.values())
        self._disk = max(self._disk, _measure_folder_bytes(self._output))
        pid, status, usage = os.wait4(self._process.pid, os.WNOHANG)
        if pid:
            if status:
                raise RuntimeError((self._root / "log").read_text()[-2000:])
            self._reaped = usage.ru_utime + usage.ru_stime
            self._ended = True
        return self._ended

    def _sample(self, processes: Sequence[psutil.Process]) -> None:
        own = resident = 0
        for one in processes:
            with suppress(psutil.Error, OSError):
                name, times = (one.pid, one.create_time()), one.cpu_times()
                self._times[name] = times.user + times.system
                self._reads[name] = one.io_counters().read_chars
                own += _read_anonymous_bytes(one.pid)
                resident += one.memory_info().rss
        self._own, self._resident = max(self._own, own), max(self._resident, resident)

    def compute_cost(self) -> Cost:
        cpu = max(sum(self._times.values()), self._reaped)
        sizes = sum(self._reads.values()), self._disk, self._resident, self._own
        return Cost(cpu, *(size / 1e6 for size in sizes), self._sorted or cpu)


def _read_anonymous_bytes(pid: int) -> int:
    """Return a process's memory in bytes, without the pages of mapped files."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Anonymous:")) * 1024


def _measure_folder_bytes(folder: Path) -> int:
    total = 0
    for place, _, names in os.walk(folder):  # files and folders may go while it walks
        for name in names:
            with suppress(FileNotFoundError):
                total += os.stat(os.path.join(place, name)).st_size
    return total


def write_raw_text(folder: Path, mb: float) -> list[str]:
    """Write a corpus of ``mb`` MB of text; return the job's arguments."""
    size = int(mb * 1e6)
    corpus.write_json_lines(folder, corpus.read_standard_library(), size, size // FILES)
    config = {"context_length": 2048, "tokenizer": "bytes"}
    first = min(folder.iterdir())
    shutil.copy(first, folder / f"copy{first.suffix}")
    return ["--workload", "language_model", "--workload_config", json.dumps(config)]


def measure_instances(scratch: Path, mb: float, counts: Sequence[int]) -> dict[str, Any]:
    """Measure each number of instances: in one job (``now``), and in a job each (``apart``)."""
    raw = scratch / "raw"
    arguments = write_raw_text(raw, mb)
    found: dict[str, Any] = {"mb": _measure_folder_bytes(raw) / 1e6, "now": {}, "apart": {}}
    parts = {count: divide_files(raw, scratch / f"parts-{count}", count) for count in counts}
    cases = [(count, which) for count in counts for which in ("now", "apart")]
    for count, which in track_steps("instances", cases):
        costs = run_instances(parts[count], scratch / "run", count, arguments, which == "apart")
        found[which][count] = [asdict(one) for one in costs]
        shutil.rmtree(scratch / "run")
    write_raw_text(scratch / "tiny", 0.05)
    found["start"] = asdict(run_instances([scratch / "tiny"], scratch / "run", 1, arguments)[0])
    return found


def iter_rows(found: dict[str, Any]) -> Iterator[tuple[object, ...]]:
    """Yield each number of instances with the largest one's costs, and two ratios of its CPU.

    They are over an equal part of one instance's CPU (start left out), and over the CPU of the
    largest of as many jobs apart.
    """
    start = found["start"]["cpu_s"]
    one = found["now"][min(found["now"])][0]["cpu_s"] - start
    for count, costs in found["now"].items():
        most = {name: max(cost[name] for cost in costs) for name in costs[0]}
        apart = max(cost["cpu_s"] for cost in found["apart"][count])
        shown = [f"{value:,.1f}" for value in most.values()]
        ratios = (most["cpu_s"] - start) * count / one, most["cpu_s"] / apart
        yield count, *shown, *(f"{ratio:.2f}" for ratio in ratios)


def main(
    mb: Annotated[float, typer.Option(help="MB of raw text.")] = 2000,
    instances: Annotated[str, typer.Option(help="Numbers of instances.")] = "1,2,4,8,16",
    json_file: JsonFile = None,
) -> None:
    """Exit status 1 if an instance takes more than 2.5 times what its part takes apart."""
    counts = [int(word) for word in instances.split(",")]
    with tempfile.TemporaryDirectory(prefix="scaling-") as scratch:
        found = measure_instances(Path(scratch).resolve(), mb, counts)
    write_json(json_file, found)
    table, names = list(iter_rows(found)), [field.name for field in fields(Cost)]
    show_table(("instances: the largest", *names, "÷ equal part", "÷ a job apart"), table)
    raise typer.Exit(1 if any(float(row[-1]) > TARGET for row in table) else 0)


if __name__ == "__main__":
    typer.run(main)
