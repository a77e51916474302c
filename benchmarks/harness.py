"""Frame of the benchmarks: figures with their spread, targets, rounds, tables and JSON files."""

import importlib.metadata
import json
import operator
import os
import platform
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from trainyard.common.process import cores

CHECKOUT = Path(__file__).parents[1]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Write every figure to this file.")]
Name = TypeVar("Name")
Trial = TypeVar("Trial")


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

    def over(self, other: "Figure") -> "Figure":
        """The ratio, round by round: what disturbed the machine in a round disturbed both."""
        pairs = zip(self.rounds, other.rounds, strict=True)
        return Figure(tuple(mine / its for mine, its in pairs))

    def less(self, other: "Figure") -> "Figure":
        """Subtract the other figure's median from these measurements."""
        return Figure(tuple(mine - other.median for mine in self.rounds))

    def rate(self, amount: float) -> "Figure":
        """The amount a second, where the measurements are seconds."""
        return Figure(tuple(amount / seconds for seconds in self.rounds))

    def text(self, unit: float = 1, digits: int = 2) -> str:
        """Median and spread: ``12.3 (11.0–14.1)``."""
        median, low, high = (f"{x / unit:,.{digits}f}" for x in (self.median, self.low, self.high))
        return f"{median} ({low}–{high})"

    def data(self) -> dict[str, Any]:
        return {
            "median": self.median,
            "min": self.low,
            "max": self.high,
            "rounds": list(self.rounds),
        }


@dataclass(frozen=True, slots=True)
class Target:
    """Demand that the median of a figure is compared with."""

    what: str
    figure: Figure
    sign: Literal["≥", "≤"]
    demanded: float
    unit: Literal["×", "%"] = "×"

    @property
    def met(self) -> bool:
        compare = operator.ge if self.sign == "≥" else operator.le
        return compare(self.figure.median, self.demanded)

    def data(self) -> dict[str, Any]:
        demanded = f"{self.sign} {self.demanded:g} {self.unit}"
        return {"what": self.what, "demanded": demanded, "met": self.met} | self.figure.data()


@dataclass(slots=True)
class Section:
    """One part of the benchmark: its table, its targets, and all of its figures."""

    name: str
    title: str
    columns: tuple[str, ...] = ()
    rows: list[tuple[str, ...]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)


def show(section: Section, console: Console) -> None:
    """A section's table, its targets and its notes."""
    table = Table(title=section.title, title_justify="left", title_style="bold")
    console.print(filled(table, section.columns, section.rows))
    for note in section.notes:
        console.print(note, style="dim", width=100)
    console.print()


def show_targets(targets: Sequence[Target], console: Console) -> None:
    """Everything that was demanded, beside what was measured."""
    table, rows = Table(title="Targets", title_justify="left", title_style="bold"), []
    for target in targets:
        scale, digits = (0.01, 3) if target.unit == "%" else (1, 2)
        measured = f"{target.figure.text(scale, digits)} {target.unit}"
        demanded = f"{target.sign} {target.demanded / scale:g} {target.unit}"
        verdict = "[green]met[/]" if target.met else "[red]missed[/]"
        rows.append((target.what, measured, demanded, verdict))
    console.print(filled(table, ("", "median (min–max)", "demanded", ""), rows))


def show_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "", width: int = 120
) -> None:
    """Print rows below columns."""
    table = Table(*columns, title=title or None, title_justify="left")
    for row in rows:
        table.add_row(*map(str, row))
    screen(width).print(table)


def show_figures(
    columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "", width: int = 120
) -> None:
    """Print rows of figures, to the right, each behind its name."""
    table = Table(box=None, pad_edge=False, title=title or None, title_justify="left")
    screen(width).print(filled(table, columns, rows))


def filled(table: Table, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """The table with these columns, all but the first to the right, and rows."""
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left")
    for row in rows:
        table.add_row(*map(str, row))
    return table


def screen(width: int = 120) -> Console:
    """The terminal; so many columns where the output goes to a file or a pipe."""
    return Console(width=None if sys.stdout.isatty() else width)


def report(
    sections: Sequence[Section],
    json_file: Path | None = None,
    setting: Mapping[str, Any] | None = None,
    libraries: Sequence[str] = (),
    *,
    shown: bool = False,
) -> bool:
    """Show what was measured and demanded, and write it; whether a target was missed.

    Args:
        json_file: where every figure goes.
        shown: whether the sections' tables were printed as they came.
    """
    console = screen()
    for section in () if shown else sections:
        show(section, console)
    targets = [target for section in sections for target in section.targets]
    show_targets(targets, console)
    if json_file:
        write_json(json_file, sections, setting or {}, libraries)
    return not all(target.met for target in targets)


def progress(console: Console) -> Progress:
    """A bar for each measurement that is under way; it is gone when that ends."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeElapsedColumn(), console=console, transient=True)


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


def trials(
    what: str, runs: int, run: Callable[[int], Trial], failed: Callable[[Trial], object]
) -> list[Trial]:
    """Make so many seeded runs behind a bar; one that failed is printed at once."""
    found = []
    with progress(screen()) as bar:
        task = bar.add_task(what, total=runs)
        for number in range(runs):
            found.append(run(number))
            if failed(found[-1]):
                told = asdict(found[-1])
                bar.console.print(f"run {number}: {told}", style="red", markup=False)
            bar.advance(task)
    return found


def show_counts(title: str, sections: Mapping[str, Mapping[str, object]]) -> None:
    """A table of names and counts below headings."""
    table = Table("", "", title=title, show_header=False)
    for heading, rows in sections.items():
        table.add_row(f"[bold]{heading}", "")
        for name, count in rows.items():
            table.add_row(f"  {name}", str(count))
        table.add_section()
    screen().print(table)


def show_outcomes(
    found: Sequence[Mapping[str, str]], groups: Sequence[str], outcomes: Sequence[str]
) -> None:
    """Print the tests that did not pass, with the reason, and the outcomes of each group.

    Args:
        found: ``test``, ``group``, ``outcome`` and ``why`` of each.
        outcomes: all there are; the first one is that a test passed.
    """
    for outcome in outcomes[1:]:
        for one in found:
            if one["outcome"] == outcome and one["why"]:
                print(f"{outcome} {one['test'].rpartition('/')[2]}: {one['why']}")
    rows = []
    for group in (*groups, None):
        counts = Counter(one["outcome"] for one in found if group in (None, one["group"]))
        rows.append((group if group is not None else "all", *(counts[o] or "" for o in outcomes)))
    show_figures(("group", *outcomes), rows, f"{len(found)} tests", 160)


def chosen(only: str, sections: Mapping[str, object]) -> list[str]:
    """The names of the sections that ``--only a,b`` asks for; without it all of them.

    Raises:
        typer.BadParameter: there is no section of that name.
    """
    names = only.split(",") if only else list(sections)
    if unknown := set(names) - sections.keys():
        raise typer.BadParameter(f"--only: {', '.join(unknown)}; there are {', '.join(sections)}")
    return names


def write_json(
    path: Path, sections: Sequence[Section], setting: Mapping[str, Any], libraries: Sequence[str]
) -> None:
    """Write every figure of a run, with the machine and the libraries' versions."""
    content = {
        "machine": machine(),
        "versions": {name: version for name in libraries if (version := _version(name))},
        "setting": dict(setting),
        "targets": [target.data() for section in sections for target in section.targets],
        "sections": {section.name: section.data for section in sections},
    }
    path.write_text(json.dumps(content, indent=1))


def machine() -> dict[str, Any]:
    """The machine that the figures were taken on."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    model = [line for line in lines if line.startswith("model name")]
    return {
        "cores": cores(),
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
