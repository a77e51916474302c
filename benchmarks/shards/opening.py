"""Opening a dataset of 100,000 shards, against reading its manifest as JSON."""

import json
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.shards.bench import Bench
from benchmarks.shards.contenders import WIDTH
from benchmarks.shards.figures import Section, Target
from training.data.columns import parse_manifest
from training.data.dataset import Dataset
from training.data.manifest import Field, Manifest, Shards, Source, write_manifest

SHARDS_OF_A_SOURCE = 10


def measure(bench: Bench) -> Section:
    bench.end_processes()
    count = bench.sizes.shards
    folder = bench.empty("opening")
    path = folder / "manifest-algo-1.json"
    write_manifest(_manifest(count), path)
    found = bench.rounds(
        f"open {count:,} shards",
        {
            "ours": lambda: _open(folder, count),
            "parse": lambda: _read(path, lambda content: parse_manifest(path.name, content)),
            "json": lambda: _read(path, json.loads),
        },
    )
    section = Section("open", f"Open a dataset of {count:,} shards, milliseconds")
    section.columns = ("", "time")
    section.rows = [
        ("Trainyard: Dataset(folder)", found["ours"].text(1e-3, 1)),
        ("its manifest, read and checked", found["parse"].text(1e-3, 1)),
        ("its manifest, json.loads", found["json"].text(1e-3, 1)),
    ]
    ratio = found["ours"].over(found["json"])
    section.targets.append(Target("open ÷ json.loads of the manifest", ratio, "≤", 1))
    section.data = {name: figure.data() for name, figure in found.items()}
    section.data["manifest_bytes"] = path.stat().st_size
    section.notes.append(f"The manifest is synthetic and has {path.stat().st_size / 1e6:.1f} MB.")
    return section


def _manifest(count: int) -> Manifest:
    sources = max(1, count // SHARDS_OF_A_SOURCE)
    return Manifest(
        split="train",
        fields={"tokens": Field(dtype="uint16", shape=(WIDTH,))},
        workload={"tokenizer": "bytes"},
        sources=[
            Source(name=f"part-{number:08d}.jsonl.gz", records=10_000, samples=80_000)
            for number in range(sources)
        ],
        shards=Shards(
            file=[f"{secrets.token_hex(8)}-00000.npy" for _ in range(count)],
            samples=[8_000] * count,
            bytes=[8_000 * WIDTH * 2 + 128] * count,
            sha256=[secrets.token_hex(32) for _ in range(count)],
            source=[number % sources for number in range(count)],
        ),
    )


def _open(folder: Path, count: int) -> float:
    began = time.perf_counter()
    dataset = Dataset(folder)
    seconds = time.perf_counter() - began
    assert len(dataset) == 8_000 * count
    return seconds


def _read(path: Path, parse: Callable[[bytes], Any]) -> float:
    began = time.perf_counter()
    parse(path.read_bytes())
    return time.perf_counter() - began
