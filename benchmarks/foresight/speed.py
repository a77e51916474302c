"""How long ``trainyard advise`` takes: the whole command, imports included, in CPU seconds.

python -m benchmarks.foresight.speed [--json]

Each question is asked three times, in a process of its own; the median counts.
"""

import json
import resource
import statistics
import subprocess
import sys
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

REPEATS = 3
P5 = ("--instances", "ml.p5.48xlarge")
QUESTIONS: dict[str, tuple[str, ...]] = {
    "8B, p5 up to 32": ("--model", "llama-3-8b", "--tokens", "1T", *P5, "--max-nodes", "32"),
    "70B, p5 up to 64": ("--model", "llama-3-70b", "--tokens", "1T", *P5),
    "405B, p5 up to 64": ("--model", "llama-3-405b", "--tokens", "1T", *P5),
    "70B, three types up to 64": ("--model", "llama-3-70b", "--tokens", "1T"),
}


def measured(arguments: tuple[str, ...]) -> dict[str, float]:
    """Layouts that were looked at, and the median of the CPU seconds."""
    command = [sys.executable, "-m", "trainyard", "advise", *arguments, "--json"]
    spent = []
    layouts = 0
    for _ in range(REPEATS):
        before = _children()
        told = subprocess.run(command, capture_output=True, check=True, text=True)  # noqa: S603
        spent.append(_children() - before)
        layouts = json.loads(told.stdout)["layouts"]["looked_at"]
    seconds = statistics.median(spent)
    return {
        "layouts": layouts,
        "cpu_seconds": round(seconds, 2),
        "per_10,000": round(seconds / layouts * 1e4, 2),
    }


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Measure each question."""
    found: dict[str, Any] = {name: measured(asked) for name, asked in QUESTIONS.items()}
    if as_json:
        print(json.dumps(found, indent=1))
        return
    table = Table("question", *next(iter(found.values())))
    for name, figures in found.items():
        table.add_row(name, *(f"{value:,}" for value in figures.values()))
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
