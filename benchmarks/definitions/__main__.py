"""Run random definitions on the emulator, and kill it under some: does each end as its steps say?

python -m benchmarks.definitions [--count 200] [--kills 50] [--seed 0] [--json FILE]

Definitions are drawn by hypothesis from Lambda, Condition, Fail, Callback, ForEach, Cleanup and,
rarely, Processing steps, with references, triggers, branches and loops. An oracle that shares no
code with the emulator holds every step to its inputs, and every step that did not run to a reason.

A kill is SIGKILL of the emulator at a random moment while three definitions run, objects are put
and events are accepted. Then no process of it may be left, nothing that was acknowledged may be
lost, and a retry of what was struck ends as its steps say.
"""

import json as json_format
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track

from benchmarks.definitions.trial import Figures, kill, run
from benchmarks.harness import JsonFile, keep

console = Console()


def main(
    count: Annotated[int, typer.Option(min=0, help="Definitions to run undisturbed.")] = 200,
    kills: Annotated[int, typer.Option(min=0, help="Times that the emulator is killed.")] = 50,
    seed: Annotated[int, typer.Option(help="Of the definitions and of the moments.")] = 0,
    json_file: JsonFile = None,
) -> None:
    """Exit status 1 if anything is not explained, left over or lost."""
    with tempfile.TemporaryDirectory(prefix="definitions-") as scratch:
        figures = run(Path(scratch) / "run", count, seed) if count else Figures()
        _show("undisturbed", figures)
        killed = Figures()
        for number in track(range(kills), "kills", console=console):
            kill(Path(scratch) / f"{number}", number, seed, killed)
        _show("killed", killed)
    keep(json_file, [_plain(figures), _plain(killed)])
    raise typer.Exit(1 if figures.wrong or killed.wrong else 0)


def _plain(figures: Figures) -> dict:
    steps = {f"{kind} {status}": n for (kind, status), n in sorted(figures.steps.items())}
    return {
        "executions": dict(figures.ended),
        "steps": steps,
        "kills": figures.kills,
        "struck": figures.struck,
        "retried": figures.retried,
        "acknowledged": dict(figures.acknowledged),
        "wrong": figures.wrong,
    }


def _show(title: str, figures: Figures) -> None:
    console.print(f"{title}:", json_format.dumps(_plain(figures), indent=1), highlight=False)


if __name__ == "__main__":
    typer.run(main)
