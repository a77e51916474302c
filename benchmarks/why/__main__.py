"""Ask `trainyard why` for the causes of failures that are known.

python -m benchmarks.why [--quoted] [--json FILE]
python -m benchmarks.why --texts FILE     # texts of your own, in the form of benchmarks/why/texts/

Steps that really fail on an emulator, and texts quoted from public threads of what cannot fail here
(GPUs, NCCL, EFA, IAM, ECR), are counted apart. Exit status 1: less than 90 % of either have the
right cause, or a wrong one was stated as certain.
"""

import json as json_format
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.why.judging import TEXTS, Judged, counts, quoted
from benchmarks.why.running import run

console = Console()
WANTED = 0.9


def main(
    only_quoted: Annotated[bool, typer.Option("--quoted", help="No job is run.")] = False,
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file.")] = None,
    texts: Annotated[Path | None, typer.Option(help="These texts alone.")] = None,
) -> None:
    """Exit status 1 where `why` is not good enough."""
    files = [texts] if texts else sorted(TEXTS.iterdir())
    found = {f"quoted, {file.stem} draw": list(quoted(file)) for file in files}
    if not only_quoted and texts is None:
        with tempfile.TemporaryDirectory(prefix="why-") as state:
            found = {"really failing": list(run(Path(state)))} | found
    for title, all_judged in found.items():
        _show(title, all_judged)
    if json:
        json.write_text(json_format.dumps(_figures(found), indent=1))
    raise typer.Exit(0 if all(_is_good(one) for one in found.values()) else 1)


def _is_good(all_judged: list[Judged]) -> bool:
    count = counts(all_judged)
    return count["right"] >= WANTED * count["of"] and not count.get("wrong and certain")


def _figures(found: dict[str, list[Judged]]) -> dict[str, Any]:
    return {title: counts(all_judged) for title, all_judged in found.items()}


def _show(title: str, all_judged: Iterable[Judged]) -> None:
    rows = list(all_judged)
    console.print(f"{title}: {json_format.dumps(counts(rows))}", highlight=False)
    table = Table("failure", "from", "verdict", "said", "right")
    for one in rows:
        if one.verdict != "right":
            table.add_row(one.name, one.source, one.verdict, one.cause.name, ", ".join(one.right))
    if table.row_count:
        console.print(table)


if __name__ == "__main__":
    typer.run(main)
