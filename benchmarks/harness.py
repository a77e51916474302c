"""Frame of the benchmarks: figures with their spread, targets, searches, tables and JSON files."""

import importlib.metadata
import json
import operator
import os
import platform
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from trainyard.common.process import count_cores

CHECKOUT = Path(__file__).parents[1]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Write every figure to this file.")]
Name = TypeVar("Name")


@dataclass(frozen=True, slots=True)
class Figure:
    """Measurements of one thing, one for each round."""

    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)

    @property
    def low(self) -> float:
        return min(self.rounds)

    @property
    def high(self) -> float:
        return max(self.rounds)

    def divide_by(self, other: "Figure") -> "Figure":
        """The ratio, round by round: what disturbed the machine in a round disturbed both."""
        pairs = zip(self.rounds, other.rounds, strict=True)
        return Figure(tuple(mine / its for mine, its in pairs))

    def text(self, unit: float = 1, digits: int = 2) -> str:
        """Median and spread: ``12.3 (11.0–14.1)``."""
        median, low, high = (f"{x / unit:,.{digits}f}" for x in (self.median, self.low, self.high))
        return f"{median} ({low}–{high})"

    def data(self) -> dict[str, Any]:
        ends = {"median": self.median, "min": self.low, "max": self.high}
        return ends | {"rounds": list(self.rounds)}


def rate(hits: Sequence[bool]) -> Figure:
    """The share of hits, with the ends of its exact 95 % interval (Clopper and Pearson 1934)."""
    from scipy.stats import binomtest  # not in the ranks that import this module

    found = binomtest(sum(hits), len(hits)).proportion_ci(0.95, method="exact")
    return Figure((found.low, sum(hits) / len(hits), found.high))


@dataclass(frozen=True, slots=True)
class Target:
    """Demand that the median of a figure is compared with."""

    what: str
    figure: Figure
    sign: Literal["≥", "≤"]
    demanded: float
    unit: Literal["×", "%"] = "×"

    @property
    def is_met(self) -> bool:
        compare = operator.ge if self.sign == "≥" else operator.le
        return compare(self.figure.median, self.demanded)

    def cells(self) -> tuple[str, ...]:
        """Name, figure, demand and verdict."""
        scale, digits = (0.01, 3) if self.unit == "%" else (1, 2)
        measured = f"{self.figure.text(scale, digits)} {self.unit}"
        demanded = f"{self.sign} {self.demanded / scale:g} {self.unit}"
        return self.what, measured, demanded, "[green]met[/]" if self.is_met else "[red]missed[/]"

    def data(self) -> dict[str, Any]:
        demanded = f"{self.sign} {self.demanded:g} {self.unit}"
        return {"what": self.what, "demanded": demanded, "met": self.is_met} | self.figure.data()


@dataclass(slots=True)
class Section:
    """One part of a benchmark: its table, its targets, and all of its figures."""

    name: str
    title: str
    columns: tuple[str, ...] = ()
    rows: list[tuple[str, ...]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)


def show(section: Section, console: Console) -> None:
    """A section's table and its notes."""
    console.print(make_table(section.columns, section.rows, section.title))
    for note in section.notes:
        console.print(note, style="dim", width=100)
    console.print()


def show_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "", width: int = 140
) -> None:
    """Print rows below columns; a column of figures is to the right."""
    screen(width).print(make_table(columns, rows, title))


def make_table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> Table:
    """A table with these columns and rows."""
    cells = [tuple(map(str, row)) for row in rows]
    table = Table(box=None, pad_edge=False, title=title or None, title_justify="left")
    for number, column in enumerate(columns):
        figures = all(row[number][:1] in "0123456789+-–" for row in cells) and bool(number)
        table.add_column(column, justify="right" if figures else "left")
    for row in cells:
        table.add_row(*row)
    return table


def screen(width: int = 140) -> Console:
    """The terminal; so many columns where the output goes to a file or a pipe."""
    return Console(width=None if sys.stdout.isatty() else width)


def report(
    sections: Sequence[Section],
    json_file: Path | None,
    setting: Mapping[str, Any],
    libraries: Sequence[str] = (),
) -> bool:
    """Show what the shown sections demanded, and write all figures; whether a target was missed."""
    targets = [target for section in sections for target in section.targets]
    columns = ("targets", "median (min–max)", "demanded", "")
    show_table(columns, [target.cells() for target in targets])
    found = {
        "machine": machine(),
        "versions": {name: version for name in libraries if (version := _version(name))},
        "setting": dict(setting),
        "targets": [target.data() for target in targets],
        "sections": {section.name: section.data for section in sections},
    }
    keep(json_file, found)
    return not all(target.is_met for target in targets)


def progress(console: Console) -> Progress:
    """A bar for each measurement that is under way; it is gone when that ends."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeElapsedColumn(), console=console, transient=True)


def steps_of(
    what: str, items: Iterable[Name], name: Callable[[Name], object] = str
) -> Iterator[Name]:
    """Iterate over items, and say on stderr which one is under way, and how many are left."""
    known = list(items)
    with progress(Console(stderr=True)) as bar:
        task = bar.add_task(what, total=len(known))
        for number, item in enumerate(known, 1):
            bar.update(task, description=f"{what}: {name(item)}"[:80])
            if not bar.console.is_terminal:
                print(
                    f"{what} {number} of {len(known)}: {name(item)}"[:120],
                    file=sys.stderr,
                    flush=True,
                )
            yield item
            bar.advance(task)


class Trial(NamedTuple):
    """One case of a search."""

    group: str
    name: str
    run: Callable[[], str]
    """Runs it; returns what is wrong, empty if nothing is."""

    def __str__(self) -> str:
        return f"{self.group}, {self.name}"


def search(
    what: str, trials: Iterable[Trial], json_file: Path | None = None, workers: int = 1
) -> list[dict[str, Any]]:
    """Run every trial, tell what is wrong as it comes, and count by group.

    Returns ``group``, ``name``, ``wrong`` and ``seconds`` of each, which the file gets, too.
    """

    def run(trial: Trial) -> dict[str, Any]:
        began, wrong = time.monotonic(), trial.run()
        seconds = round(time.monotonic() - began, 2)
        return {"group": trial.group, "name": trial.name, "wrong": wrong, "seconds": seconds}

    found = []
    with ThreadPoolExecutor(workers) as pool:
        known = list(trials)
        ended = pool.map(run, known) if workers > 1 else map(run, known)
        for trial in steps_of(what, known):
            found.append(next(ended))
            if found[-1]["wrong"]:
                print(f"wrong: {trial}: {found[-1]['wrong']}", flush=True)
    rows = []
    for group in dict.fromkeys(one["group"] for one in found):
        mine = [one for one in found if one["group"] == group]
        seconds = statistics.median(one["seconds"] for one in mine)
        rows.append((group, len(mine), sum(not one["wrong"] for one in mine), f"{seconds:.1f}"))
    right = sum(not one["wrong"] for one in found)
    show_table((what, "tried", "right", "median s"), rows)
    print(f"{right} of {len(found)} {what} are right")
    keep(json_file, found)
    return found


def exit_with(found: Iterable[Mapping[str, Any]]) -> None:
    """End with status 1 if anything that a search found is wrong."""
    raise typer.Exit(1 if any(one["wrong"] for one in found) else 0)


def turns(names: Sequence[Name], rounds: int) -> Iterator[tuple[int, Name]]:
    """Iterate over each name once a round, with the round's number; the first one changes."""
    for number in range(rounds):
        turn = number % len(names)
        for name in (*names[turn:], *names[:turn]):
            yield number, name


def keep(path: Path | None, found: object) -> None:
    """Write figures as JSON, where a file was named."""
    if path:
        path.write_text(json.dumps(found, indent=1))


def show_outcomes(
    found: Sequence[Mapping[str, str]], groups: Sequence[str], outcomes: Sequence[str]
) -> None:
    """Print what did not pass, with the reason, and the outcomes of each group.

    Args:
        found: ``test``, ``group``, ``outcome`` and ``why`` of each.
        outcomes: all there are; the first one is that a test passed.
    """
    for outcome in outcomes[1:]:
        for one in found:
            if one["outcome"] == outcome and one["why"]:
                print(f"{outcome} {one['test'].rpartition('/')[2]}: {one['why']}")
    rows = []
    for group in (*groups, "all"):
        counts = Counter(one["outcome"] for one in found if group in ("all", one["group"]))
        rows.append((group, counts.total(), *(counts[outcome] for outcome in outcomes)))
    show_table(("group", "number", *outcomes), rows)


def choose_sections(only: str, sections: Mapping[str, object]) -> list[str]:
    """The names of the sections that ``--only a,b`` asks for; without it all of them.

    Raises:
        typer.BadParameter: there is no section of that name.
    """
    names = only.split(",") if only else list(sections)
    if unknown := set(names) - sections.keys():
        raise typer.BadParameter(f"--only: {', '.join(unknown)}; there are {', '.join(sections)}")
    return names


def machine() -> dict[str, Any]:
    """The machine that the figures were taken on."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    model = [line for line in lines if line.startswith("model name")]
    return {
        "cores": count_cores(),
        "processor": model[0].partition(":")[2].strip() if model else platform.processor(),
        "memory_gib": round(pages / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
