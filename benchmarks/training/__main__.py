"""Compare the training loop with a hand-written one, with frameworks and with DeepSpeed.

python -m benchmarks.training [--json FILE] [--quick]

All contenders train the same model on the same batches, in turns, each in processes of its own
whose CPU clocks and memory are read from outside when rank 0 prints a loss. One whose losses are
others than those of DDP by hand is left out, and the report says so.
"""

import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from benchmarks import harness
from benchmarks.harness import JsonFile, Section
from benchmarks.training import compare
from benchmarks.training.entries import ENTRIES, ESSENTIAL, Entry, prepare
from benchmarks.training.setting import Setting

LIBRARIES = ("torch", "numpy", "accelerate", "lightning", "transformers", "deepspeed")
QUICK = Setting(layers=1, heads=2, dim=32, context_length=32, steps=4)

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    json_file: JsonFile = None,
    quick: Annotated[bool, typer.Option(help="Tiny model, 1 round: does it run?")] = False,
    peers: Annotated[bool, typer.Option(help="Measure the frameworks too.")] = True,
    only: Annotated[str, typer.Option(help="Contenders: a,b,…; default: all.")] = "",
    worlds: Annotated[str, typer.Option(help="Numbers of processes.")] = "1,2",
    rounds: Annotated[int | None, typer.Option(min=1, help="Instead of 5.")] = None,
    steps: Annotated[int | None, typer.Option(min=4, help="Of each training.")] = None,
) -> None:
    """Compare Trainyard's training loop with a hand-written one and with the frameworks."""
    entries = _chosen(peers, only)
    setting = QUICK if quick else Setting()
    if steps:
        setting = replace(setting, steps=steps - steps % setting.log_interval)
    rounds = rounds or (1 if quick else 5)
    console = harness.screen()
    sections: list[Section] = []
    with (
        tempfile.TemporaryDirectory(prefix="benchmarks-training-") as folder,
        harness.progress(console) as bar,
    ):
        scratch = Path(folder)
        prepared = prepare(setting, scratch)
        for world in map(int, worlds.split(",")):
            compared = compare.compare(prepared, world, entries, rounds, scratch, bar)
            sections.append(compare.section(compared))
            harness.show(sections[-1], console)
    harness.report(sections, json_file, asdict(setting) | {"rounds": rounds}, LIBRARIES, shown=True)


def _chosen(peers: bool, only: str) -> list[Entry]:
    """The contenders of the options; those that everything is compared with are always in."""
    names = {*only.split(",")} if only else {entry.name for entry in ENTRIES}
    if unknown := names - {entry.name for entry in ENTRIES}:
        known = ", ".join(entry.name for entry in ENTRIES)
        raise typer.BadParameter(f"--only: {', '.join(unknown)}; there are {known}")
    wanted = [entry for entry in ENTRIES if entry.name in names | ESSENTIAL]
    return [entry for entry in wanted if peers or not entry.needs]


if __name__ == "__main__":
    app()
