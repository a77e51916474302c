"""Measure the data path.

python -m benchmarks.shards [--json FILE] [--only read,…] [--quick]
"""

import dataclasses
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from benchmarks import harness
from benchmarks.harness import Section
from benchmarks.shards import memory, read, resume, stall, tabular, tokenised
from benchmarks.shards.bench import QUICK, Bench, Sizes
from benchmarks.shards.contenders import ENTRIES, versions

SECTIONS: dict[str, Callable[[Bench], Section]] = {
    "read": read.measure,
    "resume": resume.measure,
    "stall": stall.measure,
    "tokenise": tokenised.measure,
    "tabular": tabular.measure,
    "memory": memory.measure,
}
LIBRARIES = ("torch", "numpy", "pyarrow", "tokenizers", "pydantic")
FULL_MB = (100, 500, 1000, 2000, 5000)

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    json: Annotated[Path | None, typer.Option(help="Write every figure to this file.")] = None,
    quick: Annotated[bool, typer.Option(help="Tiny sizes: does it run? No figures.")] = False,
    full: Annotated[bool, typer.Option(help="Peak memory up to 5 GB of input.")] = False,
    peers: Annotated[bool, typer.Option(help="Measure other libraries too.")] = True,
    only: Annotated[str, typer.Option(help="Sections: a,b,…; default: all.")] = "",
    rounds: Annotated[int | None, typer.Option(min=1, help="Instead of 5.")] = None,
    scratch: Annotated[Path | None, typer.Option(help="Work here, and leave it there.")] = None,
) -> None:
    """Compare Trainyard's shards and loader with the machine's limits and with other libraries."""
    names = harness.chosen(only, SECTIONS)
    sizes = QUICK if quick else Sizes()
    if full:
        sizes = dataclasses.replace(sizes, memory_mb=FULL_MB)
    if rounds:
        sizes = dataclasses.replace(sizes, rounds=rounds)
    console = Console(width=None if sys.stdout.isatty() else 120)
    if scratch:
        scratch.mkdir(parents=True, exist_ok=True)
        _run(scratch.resolve(), sizes, peers, names, json, console)
    else:
        with tempfile.TemporaryDirectory(prefix="benchmarks-shards-") as folder:
            _run(Path(folder), sizes, peers, names, json, console)


def _run(
    scratch: Path,
    sizes: Sizes,
    peers: bool,
    names: list[str],
    json: Path | None,
    console: Console,
) -> None:
    sections = []
    with harness.progress(console) as progress:
        bench = _bench(scratch, sizes, peers, progress)
        overall = progress.add_task("all", total=len(names))
        try:
            for name in names:
                sections.append(SECTIONS[name](bench))
                harness.show(sections[-1], console)
                progress.advance(overall)
        finally:
            bench.end_processes()
    for module, reason in bench.failed.items():
        console.print(f"[yellow]not measured[/] {module}: {reason}")
    harness.show_targets([t for section in sections for t in section.targets], console)
    if json:
        setting = dataclasses.asdict(sizes) | {
            "not_measured": bench.failed, "contenders": versions(bench.entries)
        }  # fmt: skip
        harness.write_json(json, sections, setting, LIBRARIES)


def _bench(scratch: Path, sizes: Sizes, peers: bool, progress: Progress) -> Bench:
    chosen = [entry for entry in ENTRIES if peers or entry.role in ("ours", "limit")]
    missing = {entry.module: entry.missing() for entry in chosen}
    failed = {module: reason for module, reason in missing.items() if reason}
    entries = tuple(entry for entry in chosen if not missing[entry.module])
    return Bench(sizes, scratch, entries, progress, failed)


if __name__ == "__main__":
    app()
