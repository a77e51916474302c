"""What comes out: tables on the terminal, one JSON file with every figure."""

import importlib.metadata
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.shards.bench import Bench, cores
from benchmarks.shards.contenders import ENTRIES, Entry, version
from benchmarks.shards.figures import Section, Target

OURS = ("torch", "numpy", "pyarrow", "tokenizers", "pydantic")


def show(section: Section, console: Console) -> None:
    """A section's table, its targets and its notes."""
    table = Table(title=section.title, title_justify="left", title_style="bold")
    for number, column in enumerate(section.columns):
        table.add_column(column, justify="left" if number == 0 else "right")
    for row in section.rows:
        table.add_row(*row)
    console.print(table)
    for note in section.notes:
        console.print(note, style="dim", width=100)
    console.print()


def show_targets(targets: Sequence[Target], console: Console) -> None:
    """Everything that was demanded, beside what was measured."""
    table = Table(title="Targets", title_justify="left", title_style="bold")
    for column in ("", "median (min–max)", "demanded", ""):
        table.add_column(column, justify="right" if column else "left")
    for target in targets:
        scale, digits = (0.01, 3) if target.unit == "%" else (1, 2)
        measured = f"{target.figure.text(scale, digits)} {target.unit}"
        demanded = f"{target.sign} {target.demanded / scale:g} {target.unit}"
        verdict = "[green]met[/]" if target.met else "[red]missed[/]"
        table.add_row(target.what, measured, demanded, verdict)
    console.print(table)


def show_absent(bench: Bench, console: Console) -> None:
    """Who was not measured, and why."""
    for module, reason in bench.failed.items():
        console.print(f"[yellow]not measured[/] {module}: {reason}")


def write_json(path: Path, bench: Bench, sections: Sequence[Section]) -> None:
    """All figures of the run."""
    targets = [target.data() for section in sections for target in section.targets]
    content = {
        "machine": machine(),
        "versions": versions(bench.entries),
        "sizes": asdict(bench.sizes),
        "not_measured": bench.failed,
        "targets": targets,
        "sections": {section.name: section.data for section in sections},
    }
    path.write_text(json.dumps(content, indent=1))


def machine() -> dict[str, Any]:
    """What the figures were taken on."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    model = [line for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    return {
        "cores": cores(),
        "processor": model[0].partition(":")[2].strip() if model else platform.processor(),
        "memory_gib": round(pages / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def versions(entries: Sequence[Entry]) -> dict[str, str]:
    """Of the libraries that took part, each in the interpreter that it ran in."""
    found = {name: importlib.metadata.version(name) for name in OURS}
    known = {entry.distribution: entry for entry in ENTRIES if entry in entries}
    for name, entry in known.items():
        if name:
            found[name] = version(entry)
    return found


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []
