"""CSV and Parquet to shards, against pyarrow's own parse-and-write of the same columns."""

import json
from functools import partial
from pathlib import Path

from benchmarks.harness import Figure, Section, Target, cores
from benchmarks.shards import alone, job, table
from benchmarks.shards.bench import Bench

WORK = "the shard job, without its start"

TINY = 100
"""Rows of the input that shows what the job's start costs."""


def measure(bench: Bench) -> Section:
    bench.end_processes()
    section = Section("tabular", "Tables to shards, million rows a second")
    section.columns = ("", "rows", "MB of input")
    root = bench.empty("tabular")
    for kind in table.KINDS:
        source, tiny = root / kind, root / f"{kind}-tiny"
        table.write(source, kind, bench.sizes.rows, bench.sizes.files)
        table.write(tiny, kind, TINY, min(cores(), bench.sizes.files))
        found = _measure(bench, source, tiny)
        size = sum(path.stat().st_size for path in source.iterdir()) / 1e6
        for name, rate in found.items():
            section.rows.append((f"{kind}: {name}", rate.text(1e6), f"{size:,.0f}"))
            section.data[f"{kind}: {name}"] = rate.data()
        for alone_in in table.FORMATS:
            ratio = found[WORK].over(found[f"pyarrow to {alone_in}"])
            what = f"{kind} to shards ÷ pyarrow's {kind} to {alone_in}"
            section.targets.append(Target(what, ratio, "≥", 0.8))
    section.notes.append(
        f"{bench.sizes.rows:,} random rows in {bench.sizes.files} files: "
        f"{len(table.CATEGORIES)} categories, {len(table.NUMBERS)} numbers, a label and a key, as "
        "in recipes/flights.yaml. pyarrow alone: categories as strings and numbers as float64, "
        "each file written to an Arrow IPC file (uncompressed) or a Parquet file (pyarrow's "
        "defaults) and flushed to the disk as the shards are, by a process for each core. The "
        "job's start is measured on a tiny input in every round and subtracted."
    )
    bench.empty("tabular")
    return section


def _measure(bench: Bench, source: Path, tiny: Path) -> dict[str, Figure]:
    output = source.parent / "out"
    files = sorted(map(str, source.iterdir()))
    with alone.pool(len(files), alone.prepare_tables) as executor:
        folder = str(bench.empty("tabular/alone"))
        works = {one: partial(alone.convert, folder=folder, to=one) for one in table.FORMATS}
        alones = {
            f"pyarrow to {one}": partial(alone.seconds, executor, work, files)
            for one, work in works.items()
        }
        jobs = {
            "job": lambda: job.run(source, output, _arguments()).seconds,
            "start": lambda: job.run(tiny, output, _arguments()).seconds,
        }
        found = bench.rounds(f"tables: {source.name}", alones | jobs)
    rates = {name: found[name].rate(bench.sizes.rows) for name in alones}
    rates[WORK] = found["job"].less(found["start"]).rate(bench.sizes.rows)
    return rates | {"the shard job, all of it": found["job"].rate(bench.sizes.rows)}


def _arguments() -> list[str]:
    config = {"label": table.LABEL, "categories": table.CATEGORIES, "numbers": table.NUMBERS}
    settings = ["--workload_config", json.dumps(config), "--key", table.KEY]
    return ["--workload", "tabular", *settings]
