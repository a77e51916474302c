"""Watch a training script that has its own loop, through the lines that it prints.

python train.py | python -m training.watching
python -m training.watching train.log --watch '{"stalled_rank": {"action": "stop"}}' --max-steps 90

A line counts if it has loss=… or validation_loss=… (eval_loss=…); step=… is optional;
docs/watching.md lists the metrics that the rules use. The command prints its input, and a rule's
line below the line that triggered it. It exits with status 1 once a rule with action stop reports,
so that the pipe ends the script.
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
from training.watching.watcher import Watcher, parse_watching

METRIC = re.compile(
    rf"(?:^|[\s,{{])['\"]?([A-Za-z_][\w.]*)['\"]?\s*[=:]\s*['\"]?{NUMBER}(?=['\"\s,}}]|$)"
)
"""A name and its number, each with or without quotes: Transformers prints both in quotes since
version 5.
"""

SAME = {"eval_loss": "validation_loss", "val_loss": "validation_loss", "global_step": "step",
        "train_loss": "loss"}  # fmt: skip
"""Mapping of other libraries' metric names (Transformers, Lightning) to those of our metric
lines.
"""


def main(
    log: Annotated[Path | None, typer.Argument(help="Log file; default: standard input.")] = None,
    watch: Annotated[str, typer.Option(help="A recipe's train.watch, as JSON.")] = "",
    max_steps: Annotated[int, typer.Option(help="Total number of training steps.")] = 0,
    warmup_steps: Annotated[int, typer.Option(help="Steps in which the learning rate rises.")] = 0,
    fine_tuning: Annotated[
        bool,
        typer.Option(
            "--fine-tuning", help="Training starts from a model, perhaps at its lowest loss."
        ),
    ] = False,
) -> None:
    plan = Plan(max_steps, warmup_steps, fine_tuning=fine_tuning)
    watcher = Watcher(parse_watching(watch), plan)
    for text, line in _iter_lines(log):
        print(text, flush=True)
        events = watcher.add(line) if line else []
        for event in events:
            print(event.line, flush=True)
        if any(event.action == "stop" for event in events):
            raise typer.Exit(1)


def _iter_lines(log: Path | None) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield each line with its metrics; the metrics are empty if it is not a metric line."""
    step = 0.0
    with log.open(encoding="utf-8", errors="replace") if log else sys.stdin as file:
        for text in file:
            metrics = parse_metrics(text)
            if metrics:
                step = metrics.setdefault("step", step + 1)
            yield text.rstrip("\n"), metrics


def parse_metrics(text: str) -> dict[str, float]:
    """Return a line's metrics under our names; empty if it contains no loss."""
    metrics = {SAME.get(name, name): float(value) for name, value in METRIC.findall(text)}
    return metrics if metrics.keys() & {"loss", "validation_loss"} else {}


if __name__ == "__main__":
    run(main)
