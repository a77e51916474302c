"""The sharding job as a process of its own, its raw data, and the dataset that it writes."""

import gzip
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psutil
import pyarrow as pa
from pyarrow import csv, parquet

from benchmarks.harness import CHECKOUT
from steps.shard.shard_plan import SPLITS
from training.data.dataset import Dataset

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


WORDS = "shard kill disk torn write again never half read once whole byte node sum".split()
OBJECTS = 6
RECORDS = 800  # in each object
BAD = b'{"key": "cut off", "te'


def write_corpus(folder: Path, seed: int) -> None:
    """JSON Lines (plain, gzip, zstd), CSV and Parquet; with duplicates, and a bad record."""
    source = random.Random(seed)
    folder.mkdir(parents=True)
    for number in range(OBJECTS):
        records = [_record(source, number, row) for row in range(RECORDS)]
        records += records[: RECORDS // 50]
        _WRITERS[number % len(_WRITERS)](folder / f"part-{number}", records)


def _record(source: random.Random, number: int, row: int) -> dict[str, str]:
    words = " ".join(source.choices(WORDS, k=source.randint(5, 200)))
    return {"key": f"{number}/{row // 3}", "text": f"{number} {row} {words}"}


def _lines(records: list[dict[str, str]]) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def _plain(stem: Path, records: list[dict[str, str]]) -> None:
    stem.with_suffix(".jsonl").write_bytes(_lines(records) + BAD + b"\n")


def _gzip(stem: Path, records: list[dict[str, str]]) -> None:
    stem.with_suffix(".jsonl.gz").write_bytes(gzip.compress(_lines(records), mtime=0))


def _zstd(stem: Path, records: list[dict[str, str]]) -> None:
    content = pa.compress(_lines(records), codec="zstd", asbytes=True)
    stem.with_suffix(".jsonl.zst").write_bytes(content)


def _csv(stem: Path, records: list[dict[str, str]]) -> None:
    csv.write_csv(pa.Table.from_pylist(records), stem.with_suffix(".csv"))


def _parquet(stem: Path, records: list[dict[str, str]]) -> None:
    parquet.write_table(pa.Table.from_pylist(records), stem.with_suffix(".parquet"))


_WRITERS = (_gzip, _csv, _parquet, _zstd, _plain)

BATCH = 4096  # samples read at a time


@dataclass(frozen=True)
class Contents:
    """Every split's fingerprint, and how often each sample stands in it."""

    fingerprints: dict[str, str]
    samples: dict[str, Counter[bytes]]

    @classmethod
    def of(cls, output: Path) -> Self:
        """Read every sample of every split."""
        fingerprints, samples = {}, {}
        for split in SPLITS:
            dataset = Dataset(output / split)
            dataset.check()
            fingerprints[split] = dataset.fingerprint
            samples[split] = Counter(
                row.tobytes() for batch in dataset.batches(BATCH) for row in batch["tokens"]
            )
        return cls(fingerprints, samples)

    def differences(self, other: Self) -> dict[str, int]:
        """What is wrong with ``other``, in samples; and in how many splits the fingerprint is."""
        found = {"wrong": 0, "missing": 0, "duplicated": 0, "fingerprints": 0}
        for split, expected in self.samples.items():
            surplus = other.samples[split] - expected
            found["wrong"] += sum(n for row, n in surplus.items() if row not in expected)
            found["duplicated"] += sum(n for row, n in surplus.items() if row in expected)
            found["missing"] += (expected - other.samples[split]).total()
            found["fingerprints"] += self.fingerprints[split] != other.fingerprints[split]
        return found
