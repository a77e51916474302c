"""From a clone to a registered model: python -m benchmarks.setup BEFORE [AFTER] [--rounds 3]

In each round the commits BEFORE and AFTER (without, what is checked out) are each cloned anew and
`make run` is timed there, with an empty HOME, so that no cache of pip or uv helps; which comes
first changes from round to round. Demanded is that AFTER takes at most 0.65 of BEFORE's time.
"""

import json as json_format
import os
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
LIMIT = 0.65


@dataclass(frozen=True, slots=True)
class Setup:
    """One clone, installed and run."""

    commit: str
    install_seconds: float
    run_seconds: float
    installed_mb: int
    """What .venv holds before the run, which adds bytecode."""

    @property
    def seconds(self) -> float:
        return self.install_seconds + self.run_seconds


def main(
    before: Annotated[str, typer.Argument(help="A commit.")],
    after: Annotated[str, typer.Argument(help="A commit.")] = "HEAD",
    rounds: Annotated[int, typer.Option(min=1, help="Each so often.")] = 3,
    python: Annotated[str, typer.Option(help="Makes the environments.")] = sys.executable,
    json: Annotated[Path | None, typer.Option(help="Write every run to this file.")] = None,
) -> None:
    """Exit status 1 unless the median of the rounds' ratios is within the limit."""
    found = []
    for number in range(rounds):
        turns = (after, before) if number % 2 else (before, after)
        pair = {commit: measure(commit, python) for commit in turns}
        found.append((pair[before], pair[after]))
    ratio = statistics.median(second.seconds / first.seconds for first, second in found)
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(_table(found))
    console.print(f"after ÷ before: {ratio:.2f}, demanded at most {LIMIT}")
    if json:
        json.write_text(json_format.dumps([[*map(asdict, pair)] for pair in found], indent=1))
    raise typer.Exit(0 if ratio <= LIMIT else 1)


def measure(commit: str, python: str) -> Setup:
    """`make run` in a fresh clone of ``commit``, in two parts. Raises SystemExit if it fails."""
    with tempfile.TemporaryDirectory(prefix="setup-") as folder:
        clone, home = Path(folder) / "clone", Path(folder) / "home"
        home.mkdir()
        subprocess.run(["git", "clone", "--quiet", CHECKOUT, clone], check=True)
        subprocess.run(["git", "checkout", "--quiet", "--detach", commit], cwd=clone, check=True)
        parts = (clone / "Makefile").read_text()
        marker = ".venv/run" if "\n.venv/run:" in parts else ".venv/installed"
        install = _make(clone, home, python, marker)
        size = sum(
            file.lstat().st_size for file in (clone / ".venv").rglob("*") if not file.is_symlink()
        )
        return Setup(commit, install, _make(clone, home, python, "run"), round(size / 1e6))


def _make(clone: Path, home: Path, python: str, target: str) -> float:
    """Seconds that the target takes."""
    own = {k: v for k, v in os.environ.items() if not k.startswith(("XDG_", "UV_", "VIRTUAL_ENV"))}
    began = time.monotonic()
    done = subprocess.run(
        ["make", target, f"PYTHON={python}"],
        cwd=clone,
        env={**own, "HOME": str(home)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"make {target} failed in {clone}:\n{done.stdout}")
    return time.monotonic() - began


def _table(found: list[tuple[Setup, Setup]]) -> Table:
    table = Table("round", "commit", "installation", "run", "together", "ratio", "installed")
    for number, pair in enumerate(found, start=1):
        for one in pair:
            table.add_row(
                str(number),
                one.commit,
                f"{one.install_seconds:.1f} s",
                f"{one.run_seconds:.1f} s",
                f"{one.seconds:.1f} s",
                f"{one.seconds / pair[0].seconds:.2f}",
                f"{one.installed_mb:,} MB",
            )
    return table


if __name__ == "__main__":
    typer.run(main)
