"""Measure the data path: python -m benchmarks.shards [--json FILE] [--plots DIR] [--quick]"""

import dataclasses
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.shards import (
    memory,
    mixture,
    opening,
    read,
    report,
    resume,
    shuffle,
    stall,
    tabular,
    tokenised,
    writing,
)
from benchmarks.shards.bench import QUICK, Bench, Sizes
from benchmarks.shards.contenders import ENTRIES
from benchmarks.shards.figures import Section

SECTIONS: dict[str, Callable[[Bench], Section]] = {
    "read": read.measure,
    "resume": resume.measure,
    "write": writing.measure,
    "open": opening.measure,
    "stall": stall.measure,
    "tokenise": tokenised.measure,
    "tabular": tabular.measure,
    "memory": memory.measure,
    "shuffle": shuffle.measure,
    "mixture": mixture.measure,
}
FULL_MB = (100, 500, 1000, 2000, 5000)

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    json: Annotated[Path | None, typer.Option(help="Write every figure to this file.")] = None,
    plots: Annotated[Path | None, typer.Option(help="Write PNG files into this folder.")] = None,
    quick: Annotated[bool, typer.Option(help="Tiny sizes: does it run? No figures.")] = False,
    full: Annotated[bool, typer.Option(help="Peak memory up to 5 GB of input.")] = False,
    peers: Annotated[bool, typer.Option(help="Measure other libraries too.")] = True,
    only: Annotated[str, typer.Option(help="Sections: a,b,…; default: all.")] = "",
    rounds: Annotated[int | None, typer.Option(min=1, help="Instead of 5.")] = None,
    scratch: Annotated[Path | None, typer.Option(help="Work here, and leave it there.")] = None,
) -> None:
    """Compare Trainyard's shards and loader with the machine's limits and with other libraries."""
    names = only.split(",") if only else list(SECTIONS)
    if unknown := set(names) - SECTIONS.keys():
        raise typer.BadParameter(f"--only: {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    sizes = QUICK if quick else Sizes()
    if full:
        sizes = dataclasses.replace(sizes, memory_mb=FULL_MB)
    if rounds:
        sizes = dataclasses.replace(sizes, rounds=rounds)
    console = Console(width=None if sys.stdout.isatty() else 120)
    if scratch:
        scratch.mkdir(parents=True, exist_ok=True)
        _run(scratch.resolve(), sizes, peers, names, json, plots, console)
    else:
        with tempfile.TemporaryDirectory(prefix="benchmarks-shards-") as folder:
            _run(Path(folder), sizes, peers, names, json, plots, console)


def _run(
    scratch: Path,
    sizes: Sizes,
    peers: bool,
    names: list[str],
    json: Path | None,
    plots: Path | None,
    console: Console,
) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    sections = []
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
        bench = _bench(scratch, sizes, peers, progress)
        overall = progress.add_task("all", total=len(names))
        try:
            for name in names:
                sections.append(SECTIONS[name](bench))
                report.show(sections[-1], console)
                progress.advance(overall)
        finally:
            bench.end_processes()
    report.show_absent(bench, console)
    report.show_targets([t for section in sections for t in section.targets], console)
    if json:
        report.write_json(json, bench, sections)
    if plots:
        from benchmarks.shards.plots import draw

        for path in draw(sections, plots):
            console.print(f"plot {path}", highlight=False)


def _bench(scratch: Path, sizes: Sizes, peers: bool, progress: Progress) -> Bench:
    chosen = [entry for entry in ENTRIES if peers or entry.role in ("ours", "limit")]
    missing = {entry.module: entry.missing() for entry in chosen}
    failed = {module: reason for module, reason in missing.items() if reason}
    entries = tuple(entry for entry in chosen if not missing[entry.module])
    return Bench(sizes, scratch, entries, progress, failed)


if __name__ == "__main__":
    app()
