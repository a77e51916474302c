"""Does the gate keep its word?

python -m benchmarks.gate [--json FILE] [--plot FILE] [--pairs N]
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks import harness
from benchmarks.gate import looks, power, promotion, slices, sure
from benchmarks.gate.setting import Setting, processes
from benchmarks.harness import Section

SECTIONS: dict[str, Callable[[Setting], Section]] = {
    "promotion": promotion.measure,
    "power": power.measure,
    "sure": sure.measure,
    "slices": slices.measure,
    "looks": looks.measure,
}

FULL = 10_000
"""Pairs a line: a rate of 5 % is then known to 0.4."""

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    json: Annotated[Path | None, typer.Option(help="Write every figure to this file.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw promotions and power: a PNG.")] = None,
    pairs: Annotated[int, typer.Option(min=4, help="Pairs a line; some lines take less.")] = 1000,
    groups: Annotated[str, typer.Option(help="Groups of the test splits.")] = "30,100,300,600",
    full: Annotated[
        bool, typer.Option("--full", help="10,000 pairs a line, and no fewer.")
    ] = False,
    only: Annotated[str, typer.Option(help="Sections: a,b,…; default: all.")] = "",
) -> None:
    """Simulate champions and challengers whose difference is known, and judge them."""
    names = harness.chosen(only, SECTIONS)
    console = Console(width=None if sys.stdout.isatty() else 120)
    with processes() as executor, harness.progress(console) as progress:
        setting = Setting(
            pairs=max(pairs, FULL) if full else pairs,
            groups=tuple(int(number) for number in groups.split(",")),
            progress=progress,
            executor=executor,
        )
        sections = {}
        for name in names:
            sections[name] = SECTIONS[name](setting)
            harness.show(sections[name], console)
    found = list(sections.values())
    harness.show_targets([target for section in found for target in section.targets], console)
    if json:
        sizes = {"pairs": setting.pairs, "groups": setting.groups}
        harness.write_json(json, found, sizes, ("numpy", "pyarrow", "scipy"))
    if plot and {"promotion", "power"} <= sections.keys():
        from benchmarks.gate.plots import draw

        draw(sections["promotion"].data, sections["power"].data, plot)
        console.print(f"plot {plot}", highlight=False)


if __name__ == "__main__":
    app()
