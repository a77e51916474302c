"""Measure how instances share the shard job's work: CPU, bytes, disk and memory of each.

python -m benchmarks.shards.scaling [--mb 2000] [--engine PYTHON] [--plot F.png]

The instances of a job are processes of this machine, and nodes of one Ray cluster, each with a part
of the files as S3 gives it under ShardedByS3Key, one worker each; seconds of CPU are what counts,
those of all processes of an instance. ``apart`` are as many jobs of one instance, each on one of
these parts, at the same time: they exchange nothing, and suffer as much from a machine with few
cores. ``--engine`` is an interpreter with Daft, which
reads the same files, leaves equal texts out, orders by a hash and writes Parquet, on this machine;
``sorted_cpu_s`` is what our instances need to have the same.
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
from benchmarks.shards import corpus
from benchmarks.shards.corpus import CATEGORIES, KEY, LABEL, NUMBERS

FILES = 64
"""Raw files, and one more that repeats the first."""
ROW_BYTES = 190
"""Bytes of a row of the table as CSV, about."""
INTERVAL = 0.5
"""Seconds between two looks at the processes."""
TARGET = 2.5
"""Times the CPU of a job on its part alone, at most, that an instance may take: Ray's processes on
an instance take 7 to 9 seconds."""


def divide(raw: Path, folder: Path, count: int) -> list[Path]:
    """Give each instance every ``count``-th file, as S3 under ShardedByS3Key."""
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
    """Cost of one instance."""

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
    """A process, and those that it starts, looked at until it ends."""

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

    def look(self) -> bool:
        """Return whether it has ended."""
        if self._ended:
            return True
        with suppress(psutil.Error):
            self._look_at([self._process, *self._process.children(recursive=True)])
        if not self._sorted and self._mark.is_file():
            self._sorted = sum(self._times.values())
        self._disk = max(self._disk, _size(self._output))
        pid, status, usage = os.wait4(self._process.pid, os.WNOHANG)
        if pid:
            if status:
                raise RuntimeError((self._root / "log").read_text()[-2000:])
            self._reaped = usage.ru_utime + usage.ru_stime
            self._ended = True
        return self._ended

    def _look_at(self, processes: Sequence[psutil.Process]) -> None:
        own = resident = 0
        for one in processes:
            with suppress(psutil.Error, OSError):
                name, times = (one.pid, one.create_time()), one.cpu_times()
                self._times[name] = times.user + times.system
                self._reads[name] = one.io_counters().read_chars
                own += _anonymous(one.pid)
                resident += one.memory_info().rss
        self._own, self._resident = max(self._own, own), max(self._resident, resident)

    def cost(self) -> Cost:
        cpu = max(sum(self._times.values()), self._reaped)
        return Cost(
            cpu,
            sum(self._reads.values()) / 1e6,
            self._disk / 1e6,
            self._resident / 1e6,
            self._own / 1e6,
            self._sorted or cpu,
        )


def _anonymous(pid: int) -> int:
    """Return a process's memory in bytes, without the pages of mapped files."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Anonymous:")) * 1024


def _size(folder: Path) -> int:
    total = 0
    for place, _, names in os.walk(folder):  # files and folders may go while it walks
        for name in names:
            with suppress(FileNotFoundError):
                total += os.stat(os.path.join(place, name)).st_size
    return total


def engine(python: Path, raw: Path, output: Path) -> dict[str, float]:
    """Return seconds of CPU and peak memory of the engine on all files."""
    script = Path(__file__).with_name("engine.py")
    process = subprocess.Popen([python, script, raw, output])
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise RuntimeError(f"{python} {script} ended with {status}")
    return {
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "peak_mb": usage.ru_maxrss * 1024 / 1e6,
        "disk_mb": _size(output) / 1e6,
    }


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


def measure(
    kind: str,
    scratch: Path,
    mb: float,
    counts: Sequence[int],
    python: Path | None,
) -> dict:
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
    if python and kind == "text":
        found["engine"] = engine(python, raw, scratch / "engine")
        print(json.dumps({"engine": found["engine"]}), flush=True)
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


def plot(results: Sequence[dict], path: Path) -> None:
    """Draw CPU, bytes read and disk of the largest instance."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = {"cpu_s": "CPU s", "read_mb": "MB read", "disk_mb": "MB on disk, peak",
             "peak_mb": "MB of memory, peak"}  # fmt: skip
    figure, rows = pyplot.subplots(len(results), 4, figsize=(15, 3.4 * len(results)), squeeze=False)
    for row, found in zip(rows, results, strict=True):
        for axes, (name, label) in zip(row, names.items(), strict=True):
            for which, style in (("apart", "^:"), ("now", "o-")):
                points = {n: max(one[name] for one in c) for n, c in found[which].items()}
                if points:
                    axes.plot(list(points), list(points.values()), style, label=which)
            counts = list(found["now"])
            if name != "peak_mb":
                one = found["now"][counts[0]][0][name]
                axes.plot(counts, [one / n for n in counts], ":", color="grey", label="1/n")
            if "engine" in found and name == "cpu_s":
                axes.axhline(found["engine"]["cpu_s"], color="green", label="Daft, one machine")
            axes.set_xscale("log", base=2)
            axes.set_yscale("log", base=2) if name != "peak_mb" else axes.set_ylim(0)
            axes.set_xticks(counts, [str(n) for n in counts])
            axes.set_title(f"{found['kind']}, {found['mb']:,.0f} MB: {label}", fontsize=9)
            axes.set_xlabel("instances")
    rows[0][0].legend(fontsize=8)
    figure.suptitle("The largest instance of a shard job")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main(
    mb: Annotated[float, typer.Option(help="MB of each kind of raw data.")] = 2000,
    kinds: Annotated[str, typer.Option(help="text,csv")] = "text,csv",
    instances: Annotated[str, typer.Option(help="Numbers of instances.")] = "1,2,4,8,16",
    engine: Annotated[Path | None, typer.Option(help="Interpreter with Daft.")] = None,
    json_file: JsonFile = None,
    picture: Annotated[Path | None, typer.Option("--plot", help="Draw this PNG.")] = None,
) -> None:
    """Exit status 1 if an instance takes more than 2.5 times what its part takes apart."""
    counts, results = [int(word) for word in instances.split(",")], []
    for kind in kinds.split(","):
        with tempfile.TemporaryDirectory(prefix="scaling-") as scratch:
            results.append(measure(kind, Path(scratch).resolve(), mb, counts, engine))
    keep(json_file, results)
    if picture:
        plot(results, picture)
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
