"""Measure how instances share the shard job's work: CPU, bytes, disk and memory of each.

python -m benchmarks.shards.scaling [--mb 200] [--json FILE]

The instances of a job are processes of this machine, each with a part of the files as S3 gives it
under ShardedByS3Key, one worker each; seconds of CPU are what counts. ``apart`` are as many jobs of
one instance, each on one of these parts, at the same time: they exchange nothing, and suffer as
much from a machine with few cores.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer

from benchmarks.harness import CHECKOUT, JsonFile, keep
from benchmarks.kills.instances import divide
from benchmarks.measured_process import free_ports
from benchmarks.shards import corpus
from benchmarks.shards.corpus import CATEGORIES, KEY, LABEL, NUMBERS

FILES = 64
"""Raw files, and one more that repeats the first."""
ROW_BYTES = 190
"""Of a row of the table as CSV, about."""
INTERVAL = 0.2
"""Seconds between two looks at the processes."""
TARGET = 1.2
"""Times the CPU of a job on its part alone, at most, that an instance may take."""


@dataclass(frozen=True)
class Cost:
    """What one instance took."""

    cpu_s: float
    read_mb: float
    """Read by calls: files and network; not by memory maps."""
    disk_mb: float
    """At the peak, below its output folder."""
    peak_mb: float
    """Resident memory at the peak."""


def run(
    raw: Sequence[Path],
    folder: Path,
    hosts: int,
    arguments: Sequence[str],
    apart: bool = False,
) -> list[Cost]:
    """Run instances, one for each folder of raw data, of a job that has so many ``hosts``;
    ``apart``: each is a job of its own.
    """
    names = sorted(f"algo-{number + 1}" for number in range(hosts))
    ports = (
        [f"127.0.0.1:{port}" for port in free_ports(hosts)]
        if len(raw) == hosts > 1 and not apart
        else []
    )
    running = []
    for host, part in zip(names, raw, strict=False):
        root = folder / host
        (root / "config").mkdir(parents=True)
        cluster = {"current_host": host, "hosts": [host] if apart else names}
        (root / "config/resourceconfig.json").write_text(json.dumps(cluster))
        (root / "processing/input").mkdir(parents=True)
        (root / "processing/input/raw").symlink_to(part)
        command = [sys.executable, "-m", "steps.shard.job", *arguments, "--root", str(root)]
        command += ["--addresses", *ports] if ports else []
        with (root / "log").open("wb") as log:
            process = subprocess.Popen(
                [*command, "--processes", "1"],
                cwd=CHECKOUT,
                stdout=log,
                stderr=log,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )
        running.append(_Watched(process.pid, root, host))
    while not all([one.look() for one in running]):
        time.sleep(INTERVAL)
    return [one.cost() for one in running]


class _Watched:
    """A process that is looked at until it ends."""

    def __init__(self, pid: int, root: Path, host: str) -> None:
        self._process, self._root = psutil.Process(pid), root
        self._output = root / "processing/output"
        self._read = self._disk = 0
        self._usage = None

    def look(self) -> bool:
        """Return whether it has ended."""
        if self._usage is not None:
            return True
        with suppress(psutil.Error, OSError):
            self._read = max(self._read, self._process.io_counters().read_chars)
        self._disk = max(self._disk, _size(self._output))
        pid, status, usage = os.wait4(self._process.pid, os.WNOHANG)
        if pid:
            if status:
                raise RuntimeError((self._root / "log").read_text()[-2000:])
            self._usage = usage
        return bool(pid)

    def cost(self) -> Cost:
        usage = self._usage
        assert usage is not None
        cpu, peak = usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e6
        return Cost(cpu, self._read / 1e6, self._disk / 1e6, peak)


def _size(folder: Path) -> int:
    total = 0
    for place, _, names in os.walk(folder):  # files and folders may go while it walks
        for name in names:
            with suppress(FileNotFoundError):
                total += os.stat(os.path.join(place, name)).st_size
    return total


def write(kind: str, folder: Path, mb: float) -> list[str]:
    """Write a corpus; return the job's arguments."""
    if kind == "text":
        size = int(mb * 1e6)
        corpus.write_json_lines(folder, corpus.standard_library(), size, size // FILES)
        config: dict[str, Any] = {"context_length": 2048, "tokenizer": "bytes"}
        arguments = ["--workload", "language_model"]
    else:
        corpus.write_table(folder, int(mb * 1e6 / ROW_BYTES), FILES)
        config = {"categories": CATEGORIES, "numbers": NUMBERS, "label": LABEL}
        arguments = ["--workload", "tabular", "--key", KEY, "--unique", *CATEGORIES, *NUMBERS]
    first = min(folder.iterdir())
    shutil.copy(first, folder / f"copy{first.suffix}")
    return [*arguments, "--workload_config", json.dumps(config)]


def measure(kind: str, scratch: Path, mb: float, counts: Sequence[int]) -> dict:
    """Measure one kind of raw data with each number of instances."""
    raw = scratch / "raw"
    arguments = write(kind, raw, mb)
    found: dict = {"kind": kind, "mb": _size(raw) / 1e6, "now": {}, "apart": {}}
    for count in counts:
        parts = divide(raw, scratch / f"parts-{count}", count)
        for which in ("now", "apart"):
            costs = run(parts, scratch / "run", count, arguments, which == "apart")
            found[which][count] = [asdict(one) for one in costs]
            shutil.rmtree(scratch / "run")
            _say(kind, which, count, costs)
    tiny = scratch / "tiny"
    write(kind, tiny, 0.05)
    found["start"] = asdict(run([tiny], scratch / "run", 1, arguments)[0])
    shutil.rmtree(scratch / "run")
    return found


def _say(kind: str, which: str, count: int, costs: Sequence[Cost]) -> None:
    largest = {name: round(max(asdict(one)[name] for one in costs), 1) for name in asdict(costs[0])}
    total = round(sum(one.cpu_s for one in costs), 1)
    print(json.dumps({"kind": kind, "which": which, "instances": count, "total": total,
                             "largest": largest}), flush=True)  # fmt: skip


def ratios(found: dict, count: int) -> tuple[float, float]:
    """Return the largest instance's CPU over an equal part of one instance's, start left out; and
    over that of the largest of as many jobs apart.
    """
    start = found["start"]["cpu_s"]
    cpu = {which: [one["cpu_s"] for one in found[which][count]] for which in ("now", "apart")}
    one = found["now"][min(found["now"])][0]["cpu_s"] - start
    largest = max(cpu["now"]) - start
    return largest * count / one, max(cpu["now"]) / max(cpu["apart"])


def main(
    mb: Annotated[float, typer.Option(help="MB of each kind of raw data.")] = 200,
    kinds: Annotated[str, typer.Option(help="text,csv")] = "text,csv",
    instances: Annotated[str, typer.Option(help="Numbers of instances.")] = "1,2,4,8,16",
    json_file: JsonFile = None,
) -> None:
    """Exit status 1 if an instance takes more than 1.2 times what its part takes apart."""
    counts, results = [int(word) for word in instances.split(",")], []
    for kind in kinds.split(","):
        with tempfile.TemporaryDirectory(prefix="scaling-") as scratch:
            results.append(measure(kind, Path(scratch).resolve(), mb, counts))
    keep(json_file, results)
    worst = 0.0
    for found in results:
        for count in counts:
            equal, apart = ratios(found, count)
            worst = max(worst, apart)
            print(f"{found['kind']}, {count} instances: CPU of the largest ÷ an equal part of "
                  f"one's {equal:.2f}, ÷ a job apart {apart:.2f}")  # fmt: skip
    raise typer.Exit(1 if worst > TARGET else 0)


if __name__ == "__main__":
    typer.run(main)
