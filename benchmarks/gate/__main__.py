"""Does the gate keep its word? python -m benchmarks.gate [--json FILE] [--plot FILE] [--pairs N]"""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.gate import looks, power, promotion, report, slices, speed, sure
from benchmarks.gate.setting import Setting, processes
from benchmarks.shards.figures import Section
from benchmarks.shards.report import show, show_targets

SECTIONS: dict[str, Callable[[Setting], Section]] = {
    "promotion": promotion.measure,
    "power": power.measure,
    "sure": sure.measure,
    "slices": slices.measure,
    "looks": looks.measure,
    "speed": speed.measure,
}

FULL = 10_000
"""Pairs a line: a rate of 5 % is then known to 0.4."""

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    json: Annotated[Path | None, typer.Option(help="Write every figure to this file.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw promotions and power: a PNG.")] = None,
    pairs: Annotated[int, typer.Option(min=4, help="Pairs a line; some lines take less.")] = 1000,
    examples: Annotated[int, typer.Option(min=100, help="Scores that are read.")] = 10_000_000,
    groups: Annotated[str, typer.Option(help="Groups of the test splits.")] = "30,100,300,600",
    full: Annotated[
        bool, typer.Option("--full", help="10,000 pairs a line, and no fewer.")
    ] = False,
    rounds: Annotated[int, typer.Option(min=1, help="Of reading.")] = 5,
    only: Annotated[str, typer.Option(help="Sections: a,b,…; default: all.")] = "",
    scratch: Annotated[Path | None, typer.Option(help="Work here, and leave it there.")] = None,
) -> None:
    """Simulate champions and challengers whose difference is known; then judge many scores."""
    names = only.split(",") if only else list(SECTIONS)
    if unknown := set(names) - SECTIONS.keys():
        raise typer.BadParameter(f"--only: {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    console = Console(width=None if sys.stdout.isatty() else 120)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with (
        tempfile.TemporaryDirectory(prefix="benchmarks-gate-") as folder,
        processes() as executor,
        Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress,
    ):
        setting = Setting(
            pairs=max(pairs, FULL) if full else pairs,
            groups=tuple(int(number) for number in groups.split(",")),
            examples=examples,
            rounds=rounds,
            scratch=scratch or Path(folder),
            progress=progress,
            executor=executor,
        )
        sections = {}
        for name in names:
            sections[name] = SECTIONS[name](setting)
            show(sections[name], console)
    show_targets([t for section in sections.values() for t in section.targets], console)
    if json:
        report.write_json(json, list(sections.values()), setting)
    if plot and {"promotion", "power"} <= sections.keys():
        from benchmarks.gate.plots import draw

        draw(sections["promotion"].data, sections["power"].data, plot)
        console.print(f"plot {plot}", highlight=False)


if __name__ == "__main__":
    app()
