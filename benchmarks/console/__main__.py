"""Measure the console.

python -m benchmarks.console [--json FILE] [--only listing,following,…]

Emulator and console run in processes of their own, as people start them; what is asked for comes
over HTTP.
"""

import json as json_format
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.console import following, listing, live, logs
from benchmarks.harness import Section, machine, show, show_targets


def main(
    json: Annotated[Path | None, typer.Option(help="Write every figure to this file.")] = None,
    only: Annotated[
        str, typer.Option(help="Some of the sections.")
    ] = "listing,following,live,logs",
    executions: Annotated[int, typer.Option(min=100, help="In the list of runs.")] = 10_000,
    rounds: Annotated[int, typer.Option(min=1, help="Each page so often.")] = 7,
    seconds: Annotated[float, typer.Option(min=1, help="For which pages are followed.")] = 60,
    megabytes: Annotated[float, typer.Option(min=1, help="Of a log.")] = 200,
    browser: Annotated[bool, typer.Option(help="Follow by chromium's tabs, too.")] = True,
    scratch: Annotated[Path | None, typer.Option(help="Work there, and leave it.")] = None,
) -> None:
    """Measure the console; exit 1 when it is too slow or takes too much."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    with tempfile.TemporaryDirectory(prefix="benchmarks-console-") as temporary:
        folder = scratch or Path(temporary)
        sections: dict[str, Callable[[], Section]] = {
            "listing": lambda: listing.measure(folder, executions, rounds),
            "following": lambda: following.measure(folder, seconds, browser),
            "live": lambda: live.measure(folder),
            "logs": lambda: logs.measure(folder, megabytes, rounds),
        }
        chosen = {name: sections[name] for name in only.split(",")}
        measured = [measure() for measure in chosen.values()]
    for section in measured:
        show(section, console)
    targets = [target for section in measured for target in section.targets]
    show_targets(targets, console)
    if json:
        found = {section.name: section.data for section in measured}
        data = [target.data() for target in targets]
        json.write_text(
            json_format.dumps({"machine": machine(), "targets": data, **found}, indent=1)
        )
    raise typer.Exit(0 if all(target.met for target in targets) else 1)


if __name__ == "__main__":
    typer.run(main)
