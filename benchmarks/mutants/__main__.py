"""The command of :mod:`benchmarks.mutants`."""

import json as jsons
import random
import subprocess
import tempfile
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks import resumed
from benchmarks.harness import CHECKOUT
from benchmarks.mutants.edits import Mutant, everywhere, same
from benchmarks.mutants.executing import Tests
from benchmarks.mutants.forked import load


def main(
    count: Annotated[int, typer.Option(min=1, help="Mutants that are drawn.")] = 300,
    seed: Annotated[int, typer.Option(help="Draws them.")] = 0,
    checkout: Annotated[Path, typer.Option(help="Whose commit is tried.")] = CHECKOUT,
    json: Annotated[Path | None, typer.Option(help="What is in it is not tried again.")] = None,
    of: Annotated[Path | None, typer.Option(help="Another checkout's results.")] = None,
) -> None:
    """Edit the code one place at a time; exit 1 when a test was lost."""
    with tempfile.TemporaryDirectory(prefix="mutants-", dir=_memory()) as place:
        copy, commit = _copy(checkout.resolve(), Path(place))
        drawn = _killed(of) if of else _drawn(copy, count, seed)
        setting = {"commit": commit, "seed": None if of else seed, "of": of and str(of.resolve())}
        load()
        tests = Tests(copy, commit)

        def measured(name: str) -> dict[str, Any]:
            before = time.monotonic()
            mutant = same(drawn[name], copy) if of else drawn[name]
            verdict, by = tests.verdict(mutant) if mutant else ("absent", None)
            took = {"verdict": verdict, "by": by, "seconds": round(time.monotonic() - before, 1)}
            return {"mutant": asdict(mutant or drawn[name]), **took}

        found = {}
        for name, found[name] in resumed.each(drawn, measured, json, setting):
            print(f"{found[name]['verdict']:12} {name} {found[name]['by'] or ''}", flush=True)
    verdicts = Counter(one["verdict"] for one in found.values())
    print(f"{len(drawn)} mutants:", ", ".join(f"{n} {verdict}" for verdict, n in verdicts.items()))
    raise typer.Exit(int(of is not None and verdicts["survived"] + verdicts["not executed"] > 0))


def _memory() -> str | None:
    """Name a folder in memory, where there is one."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def _copy(checkout: Path, place: Path) -> tuple[Path, str]:
    """Clone a checkout's commit, with its environment; say which commit that is."""
    copy = place / "checkout"
    git = ["git", "-c", "advice.detachedHead=false"]
    subprocess.run([*git, "clone", "-q", "--shared", str(checkout), str(copy)], check=True)
    if (checkout / ".venv").exists():
        (copy / ".venv").symlink_to((checkout / ".venv").resolve())
    said = subprocess.check_output([*git, "-C", str(copy), "rev-parse", "HEAD"], text=True)
    return copy, said.strip()


def _drawn(copy: Path, count: int, seed: int) -> dict[str, Mutant]:
    """Draw so many of a checkout's mutants."""
    every = everywhere(copy)
    return {one.name: one for one in random.Random(seed).sample(every, min(count, len(every)))}


def _killed(results: Path) -> dict[str, Mutant]:
    """Read the mutants that were killed from a file of results."""
    found = jsons.loads(results.read_text(encoding="utf-8"))["cases"]
    return {n: Mutant(**one["mutant"]) for n, one in found.items() if one["verdict"] == "killed"}


if __name__ == "__main__":
    typer.run(main)
