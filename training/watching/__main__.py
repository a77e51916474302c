"""Watch a training that has a loop of its own, by the lines that it prints.

python train.py | python -m training.watching
python -m training.watching train.log --watch '{"overfitting": {"action": "stop"}}' --max-steps 9000

A line counts that has loss=…, or validation_loss=… (eval_loss=…), and step=… where it is known;
docs/watching.md says which metrics the rules look at. Prints what goes in, and the rules' lines
below what they are said of; exits with 1 as soon as a rule with action stop speaks, so that a pipe
ends the script.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from training.command_line import run
from training.watching.metric_line import NUMBER
from training.watching.watch_rule import Plan
from training.watching.watcher import Watcher, read_watching

METRIC = re.compile(
    rf"(?:^|[\s,{{])['\"]?([A-Za-z_][\w.]*)['\"]?\s*[=:]\s*['\"]?{NUMBER}(?=['\"\s,}}]|$)"
)
"""A name and its number, either in quotes or not: Transformers prints both in quotes since 5."""

SAME = {"eval_loss": "validation_loss", "val_loss": "validation_loss", "global_step": "step",
        "train_loss": "loss"}  # fmt: skip
"""What others call a metric (Transformers, Lightning) → the line's."""


def main(
    log: Annotated[Path | None, typer.Argument(help="The log; standard input without it.")] = None,
    watch: Annotated[str, typer.Option(help="As a recipe's train.watch, as JSON.")] = "",
    max_steps: Annotated[int, typer.Option(help="Steps of the whole training.")] = 0,
    warmup_steps: Annotated[int, typer.Option(help="Of them, while the rate rises.")] = 0,
    fine_tuning: Annotated[
        bool, typer.Option("--fine-tuning", help="It began with a model, maybe at its floor.")
    ] = False,
) -> None:
    plan = Plan(max_steps, warmup_steps, fine_tuning=fine_tuning)
    watcher = Watcher(read_watching(watch), plan)
    for text, line in _read(log):
        print(text, flush=True)
        events = watcher.add(line) if line else []
        for event in events:
            print(event.line, flush=True)
        if any(event.action == "stop" for event in events):
            raise typer.Exit(1)


def _read(log: Path | None) -> Iterator[tuple[str, dict[str, float]]]:
    """Each line, and what it says; nothing where it is not one of metrics."""
    step = 0.0
    with log.open(encoding="utf-8", errors="replace") if log else sys.stdin as file:
        for text in file:
            said = parsed(text)
            if said:
                step = said.setdefault("step", step + 1)
            yield text.rstrip("\n"), said


def parsed(text: str) -> dict[str, float]:
    """The metrics of a line, by the names of ours; none where it has no loss."""
    found = {SAME.get(name, name): float(value) for name, value in METRIC.findall(text)}
    return found if found.keys() & {"loss", "validation_loss"} else {}


if __name__ == "__main__":
    run(main)
