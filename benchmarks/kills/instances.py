"""Kill one of several instances of the shard job at seeded moments, start it again, compare.

python -m benchmarks.kills.instances [--runs 30] [--instances 3] [--json FILE]

Every run begins with empty disks. One to three times one instance is killed (SIGKILL of it and its
workers), half of the times it is started again at once, else after a pause. A moment is a time, or
the appearance of a progress record. Then all instances end by themselves, and the dataset is
compared, sample by sample and byte by byte, with that of an undisturbed run.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from benchmarks import harness
from benchmarks.harness import JsonFile, keep
from benchmarks.kills.job import TIMEOUT, Contents, Job, write_corpus
from benchmarks.kills.trial import Trial
from benchmarks.measured_process import free_ports

RECORDS = ("listing", "reads", "lost", "pulled-from-*", "survey", "pulled", "all-pulled", "told-*")
"""Progress records of an instance, in the order of its work."""
PATIENCE = 60


@dataclass(frozen=True)
class Instance(Job):
    """One instance: ``raw`` is its own part of the raw data, ``folder`` its disk."""

    host: str = ""
    hosts: Sequence[str] = ()
    addresses: Sequence[str] = ()

    @property
    def command(self) -> list[str]:
        words = super().command
        place = words.index("--input")
        return [
            *(*words[:place], *words[place + 2 :]),
            *("--addresses", *self.addresses, "--patience", str(PATIENCE)),
        ]

    def prepare(self) -> None:
        """Write the folders that SageMaker gives an instance."""
        root = self.folder / "root"
        (root / "config").mkdir(parents=True)
        cluster = {"current_host": self.host, "hosts": list(self.hosts)}
        (root / "config/resourceconfig.json").write_text(json.dumps(cluster))
        (root / "processing/input").mkdir(parents=True)
        (root / "processing/input/raw").symlink_to(self.raw)


class Cluster:
    """Instances of one job, each a process."""

    def __init__(self, parts: Sequence[Path], folder: Path, processes: int) -> None:
        hosts = [f"algo-{number + 1}" for number in range(len(parts))]
        ports = [f"127.0.0.1:{port}" for port in free_ports(len(hosts))]
        self.folder = folder
        self.instances = [
            Instance(part, folder / host, processes, host, hosts, ports)
            for part, host in zip(parts, hosts, strict=True)
        ]
        for one in self.instances:
            one.prepare()
        self.running = [one.start() for one in self.instances]

    def kill(self, number: int, pause: float) -> None:
        """Kill an instance with its workers, and start it again."""
        process = self.running[number]
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(TIMEOUT)
        time.sleep(pause)
        self.running[number] = self.instances[number].start()

    def end(self) -> list[str]:
        """Wait for all instances; return what those that fail said."""
        faults, until = [], time.monotonic() + 2 * TIMEOUT
        for one, process in zip(self.instances, self.running, strict=True):
            try:
                status = process.wait(max(1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                status = process.wait()
            if status:
                faults.append(f"{one.host} ended with {status}: {one.log()[-2000:]}")
        return faults

    def dataset(self) -> Path:
        """Return a folder with the outputs of all instances, as their uploads in S3."""
        whole = self.folder / "whole"
        for one in self.instances:
            for path in one.output.rglob("*"):
                place = whole / path.relative_to(one.output)
                if path.is_file() and "progress" not in path.parts:
                    place.parent.mkdir(parents=True, exist_ok=True)
                    place.hardlink_to(path)
        return whole


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


def trial(number: int, seed: int, parts: Sequence[Path], folder: Path, like: "Reference") -> Trial:
    """Kill one to three times, at moments that the seed decides."""
    source = random.Random(f"{seed} {number}")
    cluster, done = Cluster(parts, folder, source.choice((1, 2))), Trial(number)
    for _ in range(source.randint(1, 3)):
        victim = source.randrange(len(parts))
        when = _wait(cluster, victim, source, like.seconds)
        cluster.kill(victim, source.choice((0, source.uniform(0, 2))))
        done.disturbed.append(when)
    done.faults = cluster.end()
    if not done.faults:
        whole = cluster.dataset()
        done.differences = like.contents.differences(Contents.of(whole))
        done.differences["files"] = len(set(like.files.items()) ^ set(files(whole).items()))
        done.faults = [f"left {path.name}" for path in whole.rglob(".*.tmp")]
    return done


def files(whole: Path) -> dict[str, bytes]:
    """Return the content of every file."""
    paths = (path for path in whole.rglob("*") if path.is_file())
    return {str(path.relative_to(whole)): path.read_bytes() for path in paths}


@dataclass(frozen=True)
class Reference:
    """An undisturbed run."""

    contents: Contents
    files: dict[str, bytes]
    seconds: float

    @classmethod
    def measure(cls, parts: Sequence[Path], folder: Path) -> "Reference":
        began = time.monotonic()
        cluster = Cluster(parts, folder, 2)
        if faults := cluster.end():
            raise SystemExit("\n".join(faults))
        seconds = time.monotonic() - began
        whole = cluster.dataset()
        return cls(Contents.of(whole), files(whole), seconds)


def _wait(cluster: Cluster, victim: int, source: random.Random, seconds: float) -> str:
    """Wait for a moment; return its name."""
    process = cluster.running[victim]
    if source.random() < 0.3:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(source.uniform(0, seconds))
        return "a time"
    record = source.choice(RECORDS)
    folder = cluster.instances[victim].output / "progress" / cluster.instances[victim].host
    until = time.monotonic() + 3 * seconds
    while process.poll() is None and time.monotonic() < until:
        if any(folder.glob(f"{record}.json")):
            time.sleep(source.choice((0, source.uniform(0, 0.3))))
            break
        time.sleep(0.002)
    return record


def main(
    runs: Annotated[int, typer.Option(min=1, help="Runs of the job, each disturbed.")] = 30,
    instances: Annotated[int, typer.Option(min=2, help="Instances of the job.")] = 3,
    seed: Annotated[int, typer.Option(help="Of the corpus and of every kill.")] = 0,
    json_file: JsonFile = None,
) -> None:
    """Exit status 1 if one sample or file is another one, or a run did not finish."""
    with tempfile.TemporaryDirectory(prefix="kills-") as scratch:
        place = Path(scratch)
        write_corpus(place / "raw", seed)
        parts = divide(place / "raw", place / "parts", instances)
        like = Reference.measure(parts, place / "undisturbed")

        def killed(number: int) -> Trial:
            one = trial(number, seed, parts, place / f"{number}", like)
            shutil.rmtree(place / f"{number}")
            return one

        found = harness.trials("kills", runs, killed, lambda one: one.failed)
    differences: Counter[str] = Counter()
    for one in found:
        differences.update(one.differences)
    failed = sum(one.failed for one in found)
    counts = {
        "killed at": Counter(when for one in found for when in one.disturbed),
        "after the last run": {**differences, "runs with a fault": failed},
    }
    harness.show_counts(f"{runs} runs of {instances} instances", counts)
    told = {"seed": seed, "undisturbed_seconds": like.seconds, "failed_runs": failed, **counts}
    keep(json_file, told | {"trials": [asdict(one) for one in found]})
    raise typer.Exit(failed > 0)


if __name__ == "__main__":
    typer.run(main)
