"""Compare the training loop with a hand-written one, with frameworks and with DeepSpeed.

python -m benchmarks.training [--json FILE] [--quick]

All contenders train the same model on the same batches, in turns, each in processes of its own
whose CPU clocks are read from outside when rank 0 prints a loss. One whose losses are others than
those of DDP by hand is left out, and the report says so. ``--quick`` has the loop and DDP by hand
alone, a small model and one process: two minutes.
"""

import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.harness import JsonFile, Section, choose_sections, show_section, write_report
from benchmarks.training import compare
from benchmarks.training.entries import ENTRIES, ESSENTIAL, prepare_data
from benchmarks.training.setting import Setting

LIBRARIES = ("torch", "numpy", "accelerate", "lightning", "transformers", "deepspeed")
QUICK = Setting(layers=1, heads=4, dim=256, context_length=128, steps=8)

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    json_file: JsonFile = None,
    quick: Annotated[bool, typer.Option(help="Less of it: two minutes.")] = False,
    only: Annotated[str, typer.Option(help="Contenders: a,b,…; default: all.")] = "",
    worlds: Annotated[str, typer.Option(help="Numbers of processes.")] = "1,2",
    rounds: Annotated[int, typer.Option(min=1, help="Of each contender.")] = 3,
) -> None:
    """Compare Trainyard's training loop with a hand-written one and with the frameworks."""
    known = {entry.name: entry for entry in ENTRIES}
    names = ESSENTIAL if quick else {*choose_sections(only, known)}
    entries = [entry for entry in ENTRIES if entry.name in names | ESSENTIAL]
    setting = QUICK if quick else Setting()
    sections: list[Section] = []
    with tempfile.TemporaryDirectory(prefix="benchmarks-training-") as folder:
        prepared = prepare_data(setting, Path(folder))
        for world in (1,) if quick else map(int, worlds.split(",")):
            compared = compare.compare_contenders(prepared, world, entries, rounds, Path(folder))
            sections.append(compare.make_section(compared))
            show_section(sections[-1])
    write_report(sections, json_file, asdict(setting) | {"rounds": rounds}, LIBRARIES)


if __name__ == "__main__":
    app()
