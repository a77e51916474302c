"""Two main jobs at once: python -m benchmarks.together [--rounds 3] [--json FILE]

In each round the main job runs alone, and two of it run at once, each from a clone of its own, with
an emulator and a state of its own, as two people would on one machine; which comes first changes
from round to round. Demanded is that each of two ends within 2.5 times the time of one alone: they
share the cores, so twice the time is what the work itself takes.
"""

import json as json_format
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

CHECKOUT = Path(__file__).parent.parent
LIMIT = 2.5
LATENCY = re.compile(r"^max_latency_p95_ms\s+([\d.]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Run:
    """One main job, from its start to its end."""

    seconds: float
    latency_p95_ms: float | None
    """Of single requests, as the gate saw it."""


@dataclass(frozen=True, slots=True)
class Round:
    """One alone, and two at once."""

    alone: Run
    together: tuple[Run, Run]

    @property
    def ratio(self) -> float:
        """The slower of the two over the one alone."""
        return max(run.seconds for run in self.together) / self.alone.seconds


def main(
    rounds: Annotated[int, typer.Option(min=1, help="Each so often.")] = 3,
    recipe: Annotated[str, typer.Option(help="Of the main job.")] = "recipes/laptop.yaml",
    json: Annotated[Path | None, typer.Option(help="Write every run to this file.")] = None,
) -> None:
    """Exit status 1 unless the median of the rounds is within the limit."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    with tempfile.TemporaryDirectory(prefix="together-") as folder:
        clones = [clone(Path(folder) / name) for name in ("one", "two")]
        found = [measure(clones, number, recipe) for number in range(rounds)]
    ratio = statistics.median(one.ratio for one in found)
    console.print(_table(found))
    console.print(f"two at once ÷ one alone: {ratio:.2f}, demanded at most {LIMIT}")
    if json:
        json.write_text(json_format.dumps([asdict(one) for one in found], indent=1))
    raise typer.Exit(0 if ratio <= LIMIT else 1)


def clone(into: Path) -> Path:
    """The commit that is checked out here."""
    subprocess.run(["git", "clone", "--quiet", CHECKOUT, into], check=True)
    return into


def measure(clones: list[Path], number: int, recipe: str) -> Round:
    """One round; in every other one the two come first."""
    if number % 2:
        together = finish([start(clone, number, recipe) for clone in clones])
        [alone] = finish([start(clones[0], f"{number}-alone", recipe)])
    else:
        [alone] = finish([start(clones[0], f"{number}-alone", recipe)])
        together = finish([start(clone, number, recipe) for clone in clones])
    return Round(alone, (together[0], together[1]))


def start(clone: Path, state: int | str, recipe: str) -> tuple[subprocess.Popen, Path]:
    """What ``make run`` starts, on a fresh state."""
    emulator = [sys.executable, "-m", "trainyard", "emulator", "--state", f"{clone}-state-{state}"]
    with _said(clone).open("w") as file:
        process = subprocess.Popen(
            [*emulator, "--", "scripts/main-job.sh", recipe],
            cwd=clone,
            env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    return process, _said(clone)


def _said(clone: Path) -> Path:
    return clone.with_name(f"{clone.name}.log")


def finish(started: list[tuple[subprocess.Popen, Path]]) -> list[Run]:
    """Waits for those that were just started. Raises SystemExit unless each succeeded."""
    began = time.monotonic()
    ended: dict[int, float] = {}
    while len(ended) < len(started):
        time.sleep(0.05)
        for process, _ in started:
            if process.pid not in ended and process.poll() is not None:
                ended[process.pid] = time.monotonic() - began
    return [_run(process.returncode, log, ended[process.pid]) for process, log in started]


def _run(status: int, log: Path, seconds: float) -> Run:
    said = log.read_text()
    if status:
        raise SystemExit(f"the main job failed:\n{said}")
    found = LATENCY.search(said)
    return Run(seconds, float(found[1]) if found else None)


def _table(rounds: list[Round]) -> Table:
    table = Table("round", "alone", "two at once", "ratio", "latency p95 alone", "at once")
    for number, one in enumerate(rounds, start=1):
        table.add_row(
            str(number),
            f"{one.alone.seconds:.1f} s",
            ", ".join(f"{run.seconds:.1f} s" for run in one.together),
            f"{one.ratio:.2f}",
            _ms(one.alone),
            ", ".join(_ms(run) for run in one.together),
        )
    return table


def _ms(run: Run) -> str:
    return "?" if run.latency_p95_ms is None else f"{run.latency_p95_ms:.1f} ms"


if __name__ == "__main__":
    typer.run(main)
