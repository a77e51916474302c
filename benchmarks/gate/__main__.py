"""Simulate champions and challengers whose difference is known, and have the gate judge them.

python -m benchmarks.gate [--json FILE] [--plot F.png] [--pairs N] [--full] [--only power,…]

The gate's own code decides on sums over groups that are drawn from worlds with a known improvement.
It counts promotions of challengers that are not better, of those that are better by four standard
errors, and of one of many equal tries; and harmless challengers that a slice stops.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from benchmarks import harness
from benchmarks.gate.power import power
from benchmarks.gate.promotion import looks, promotion, sure
from benchmarks.gate.setting import Setting, processes
from benchmarks.gate.slices import slices
from benchmarks.harness import JsonFile, Section

SECTIONS: dict[str, Callable[[Setting], Section]] = {
    "promotion": promotion,
    "power": power,
    "sure": sure,
    "slices": slices,
    "looks": looks,
}

FULL = 10_000
"""Pairs a line: a rate of 5 % is then known to 0.4."""

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    json_file: JsonFile = None,
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
    console = harness.screen()
    with processes() as executor, harness.progress(console) as progress:
        setting = Setting(
            pairs=max(pairs, FULL) if full else pairs,
            groups=tuple(int(number) for number in groups.split(",")),
            progress=progress,
            executor=executor,
        )
        sections = []
        for name in names:
            sections.append(SECTIONS[name](setting))
            harness.show(sections[-1], console)
    sizes = {"pairs": setting.pairs, "groups": setting.groups}
    if plot and {"promotion", "power"} <= set(names):
        from benchmarks.gate.plots import draw

        found = {name: section.data for name, section in zip(names, sections, strict=True)}
        draw(found["promotion"], found["power"], plot)
    harness.report(sections, json_file, sizes, ("numpy", "pyarrow", "scipy"), shown=True)


if __name__ == "__main__":
    app()
