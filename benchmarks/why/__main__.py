"""Ask `trainyard why` for the causes of steps that really fail on an emulator.

python -m benchmarks.why [--json FILE]

Exit status 1: less than 90 % have the right cause, or a wrong one was stated as certain.
"""

import json as json_format
import tempfile
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.harness import JsonFile, keep
from benchmarks.why.running import counts, run

console = Console()
WANTED = 0.9


def main(
    json_file: JsonFile = None,
) -> None:
    """Exit status 1 where `why` is not good enough."""
    with tempfile.TemporaryDirectory(prefix="why-") as state:
        rows = list(run(Path(state)))
    count = counts(rows)
    console.print(json_format.dumps(count), highlight=False)
    table = Table("failure", "from", "verdict", "said", "right")
    for one in rows:
        if one.verdict != "right":
            table.add_row(one.name, one.source, one.verdict, one.cause.name, ", ".join(one.right))
    if table.row_count:
        console.print(table)
    keep(json_file, count)
    is_good = count["right"] >= WANTED * count["of"] and not count.get("wrong and certain")
    raise typer.Exit(0 if is_good else 1)


if __name__ == "__main__":
    typer.run(main)
