"""Run all tests and sweeps, and print a table of what ran, how long it took, and what failed.

python -m scripts.night [--resume]      # what make test-all runs

A part that fails does not keep the next from running. The results of each part are kept in
.trainyard/night/, so that --resume after an interruption runs only the parts that have not ended;
it is refused if the commit is another one by then. The exit status is 1 if anything failed.
"""

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from xml.etree import ElementTree

import typer
from rich.console import Console
from rich.table import Table

from trainyard.common.atomic_file import write_file

CHECKOUT = Path(__file__).resolve().parents[1]
RESULTS = CHECKOUT / ".trainyard/night"
THOROUGH = "--hypothesis-profile=thorough"  # 100 examples of each property instead of 15
LONGEST = 12  # rows of the table of files

console = Console()


def build_result_path(name: str, suffix: str) -> Path:
    """Return the path of the file with results of the part ``name`` that ends in ``suffix``."""
    return RESULTS / f"{name.replace(' ', '-')}.{suffix}"


@dataclass(frozen=True, slots=True)
class Part:
    """A command of the night, and where its results are kept."""

    name: str
    command: tuple[str, ...]
    """If it is pytest, it writes its report of each test to ``report``."""

    @property
    def report_file(self) -> Path:
        return build_result_path(self.name, "xml")

    @property
    def end_file(self) -> Path:
        """Return the file with the part's seconds and exit status, written when the part ends."""
        return build_result_path(self.name, "end")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a part ended."""

    seconds: float
    status: int
    tests: int = 0
    skipped: int = 0
    failed: tuple[str, ...] = ()


def list_parts(pytest: Sequence[str], torches: Sequence[str]) -> list[Part]:
    """Return the parts in their order; ``pytest``: its command; ``torches``: releases to test."""

    def make_pytest_part(name: str, marker: str) -> Part:
        report = build_result_path(name, "xml")
        return Part(name, (*pytest, "-m", marker, THOROUGH, f"--junitxml={report}"))

    return [
        Part("style", ("make", "style")),
        make_pytest_part("tests", "not sweep"),
        make_pytest_part("sweeps", "sweep"),
        *(Part(f"torch {torch}", ("make", "test-torch", f"TORCH={torch}")) for torch in torches),
        Part("interruptions", (sys.executable, "-m", "benchmarks.interruptions")),
    ]


def run_part(part: Part) -> Outcome:
    """Run a part, write its duration and exit status to ``part.end``, and return its outcome."""
    console.rule(f"{part.name}: {shlex.join(part.command)}")
    start = time.monotonic()
    status = subprocess.run(part.command, cwd=CHECKOUT, check=False).returncode
    write_file(part.end_file, f"{time.monotonic() - start:.1f} {status}\n")
    return read_outcome(part)


def read_outcome(part: Part) -> Outcome:
    """Return the outcome of a part that has ended, from its result files."""
    seconds, status = part.end_file.read_text(encoding="utf-8").split()
    cases = list(_iter_cases(part))
    failed = tuple(
        _name_test(case)
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    )
    skipped = sum(case.find("skipped") is not None for case in cases)
    return Outcome(float(seconds), int(status), len(cases), skipped, failed)


def _iter_cases(part: Part) -> Iterator[ElementTree.Element]:
    if part.report_file.exists():
        yield from ElementTree.parse(part.report_file).iter("testcase")


def _name_test(case: ElementTree.Element) -> str:
    return f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"


def format_tables(outcomes: dict[Part, Outcome]) -> Iterator[Table]:
    """Yield the table of the parts, and the table of the test files that took longest."""
    table = Table(title="The night", title_justify="left")
    for column in ("part", "tests", "skipped", "failed", "minutes"):
        table.add_column(column, justify="left" if column == "part" else "right")
    for part, outcome in outcomes.items():
        failed = len(outcome.failed) or ("yes" if outcome.status else 0)
        counts = (outcome.tests or "", outcome.skipped if outcome.tests else "", failed)
        table.add_row(part.name, *map(str, counts), f"{outcome.seconds / 60:.1f}")
    total = sum(outcome.seconds for outcome in outcomes.values())
    table.add_row("all", "", "", "", f"{total / 60:.1f}")
    yield table
    files: dict[tuple[str, str], float] = {}
    for part in outcomes:
        for case in _iter_cases(part):
            key = part.name, case.get("classname", "").replace(".", "/") + ".py"
            files[key] = files.get(key, 0.0) + float(case.get("time", 0))
    longest = Table(title="The files that took longest", title_justify="left")
    for column in ("part", "file", "minutes of a worker"):
        longest.add_column(column)
    for (part_name, file), seconds in sorted(files.items(), key=lambda item: -item[1])[:LONGEST]:
        longest.add_row(part_name, file, f"{seconds / 60:.1f}")
    yield longest


def main(
    resume: Annotated[bool, typer.Option(help="Skip the parts that have ended.")] = False,
    pytest: Annotated[
        str, typer.Option(help="How pytest is called.")
    ] = f"{sys.executable} -m pytest",
    torches: Annotated[str, typer.Option(help="Releases of torch to test with.")] = "",
) -> None:
    """Run all tests and sweeps; print what ran, how long it took, and what failed."""
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=CHECKOUT, text=True)
    noted_commit = RESULTS / "commit"
    if not resume:
        shutil.rmtree(RESULTS, ignore_errors=True)
    elif noted_commit.exists() and noted_commit.read_text(encoding="utf-8") != commit:
        raise typer.BadParameter("the night in .trainyard/night is of another commit; leave it out")
    RESULTS.mkdir(parents=True, exist_ok=True)
    write_file(noted_commit, commit)
    outcomes: dict[Part, Outcome] = {}
    for part in list_parts(pytest.split(), torches.split()):
        outcomes[part] = read_outcome(part) if part.end_file.exists() else run_part(part)
    for table in format_tables(outcomes):
        console.print(table)
    for part, outcome in outcomes.items():
        for name in outcome.failed:
            console.print(f"failed in {part.name}: {name}", soft_wrap=True, highlight=False)
    raise typer.Exit(int(any(outcome.status for outcome in outcomes.values())))


if __name__ == "__main__":
    os.environ.setdefault("COLUMNS", "120")
    typer.run(main)
