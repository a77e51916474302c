"""Common parts of the benchmarks: figures with spread, targets, searches, tables, JSON files."""

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
        """Return the ratio round by round: a disturbance of the machine in a round affects both."""
        return Figure(tuple(a / b for a, b in zip(self.rounds, other.rounds, strict=True)))

    def text(self, unit: float = 1, digits: int = 2) -> str:
        """Return median and spread as text: ``12.3 (11.0–14.1)``."""
        median, low, high = (f"{x / unit:,.{digits}f}" for x in (self.median, self.low, self.high))
        return f"{median} ({low}–{high})"

    def data(self) -> dict[str, Any]:
        return {"median": self.median, "min": self.low, "max": self.high, "rounds": [*self.rounds]}


def compute_rate(hits: Sequence[bool]) -> Figure:
    """Return the share of hits, with its exact 95 % interval (Clopper and Pearson 1934)."""
    from scipy.stats import binomtest  # not in the ranks that import this module

    found = binomtest(sum(hits), len(hits)).proportion_ci(0.95, method="exact")
    return Figure((found.low, sum(hits) / len(hits), found.high))


@dataclass(frozen=True, slots=True)
class Target:
    """A demand on the median of a figure."""

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
        """Return name, figure, demand and verdict."""
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


def show_section(section: Section) -> None:
    """Print a section's table and its notes."""
    console = get_console()
    console.print(make_table(section.columns, section.rows, section.title))
    for note in section.notes:
        console.print(note, style="dim", width=100)
    console.print()


def show_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "", width: int = 140
) -> None:
    """Print a table; columns of figures are aligned to the right."""
    get_console(width).print(make_table(columns, rows, title))


def make_table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> Table:
    """Return a table; columns of figures are aligned to the right."""
    cells = [tuple(map(str, row)) for row in rows]
    table = Table(box=None, pad_edge=False, title=title or None, title_justify="left")
    for number, column in enumerate(columns):
        figures = all(row[number][:1] in "0123456789+-–" for row in cells) and bool(number)
        table.add_column(column, justify="right" if figures else "left")
    for row in cells:
        table.add_row(*row)
    return table


def get_console(width: int = 140) -> Console:
    """Return a console on stdout; ``width``: its columns if stdout is a file or a pipe."""
    return Console(width=None if sys.stdout.isatty() else width)


def write_report(
    sections: Sequence[Section],
    json_file: Path | None,
    setting: Mapping[str, Any],
    libraries: Sequence[str] = (),
) -> bool:
    """Print the sections' targets, and write all figures; return whether a target was missed."""
    targets = [target for section in sections for target in section.targets]
    columns = ("targets", "median (min–max)", "demanded", "")
    show_table(columns, [target.cells() for target in targets])
    found = {
        "machine": describe_machine(),
        "versions": {name: version for name in libraries if (version := _find_version(name))},
        "setting": dict(setting),
        "targets": [target.data() for target in targets],
        "sections": {section.name: section.data for section in sections},
    }
    write_json(json_file, found)
    return not all(target.is_met for target in targets)


def create_progress_bar(console: Console) -> Progress:
    """Return a progress bar that disappears when it ends."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeElapsedColumn(), console=console, transient=True)


def track_steps(
    what: str, items: Iterable[Name], name: Callable[[Name], object] = str
) -> Iterator[Name]:
    """Yield the items; show on stderr which one is under way, and how many are left."""
    known = list(items)
    with create_progress_bar(Console(stderr=True)) as bar:
        task = bar.add_task(what, total=len(known))
        for number, item in enumerate(known, 1):
            bar.update(task, description=f"{what}: {name(item)}"[:80])
            if not bar.console.is_terminal:
                line = f"{what} {number} of {len(known)}: {name(item)}"[:120]
                print(line, file=sys.stderr, flush=True)
            yield item
            bar.advance(task)


class Trial(NamedTuple):
    """One case of a search."""

    group: str
    name: str
    run: Callable[[], str]
    """Runs it; returns what is wrong, or an empty text."""

    def __str__(self) -> str:
        return f"{self.group}, {self.name}"


def run_trials(
    what: str, trials: Iterable[Trial], json_file: Path | None = None, workers: int = 1
) -> list[dict[str, Any]]:
    """Run every trial, print what is wrong as it comes, and count by group.

    Return ``group``, ``name``, ``wrong`` and ``seconds`` of each, which also go to the file.
    """

    def run(trial: Trial) -> dict[str, Any]:
        began, wrong = time.monotonic(), trial.run()
        seconds = round(time.monotonic() - began, 2)
        return {"group": trial.group, "name": trial.name, "wrong": wrong, "seconds": seconds}

    found = []
    with ThreadPoolExecutor(workers) as pool:
        known = list(trials)
        ended = pool.map(run, known) if workers > 1 else map(run, known)
        for trial in track_steps(what, known):
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
    write_json(json_file, found)
    return found


def exit_with(found: Iterable[Mapping[str, Any]]) -> None:
    """Exit with status 1 if anything that a search found is wrong, else with 0."""
    raise typer.Exit(1 if any(one["wrong"] for one in found) else 0)


def iter_turns(names: Sequence[Name], rounds: int) -> Iterator[tuple[int, Name]]:
    """Yield (round, name) for every name in each round; each round begins with the next name."""
    for number in range(rounds):
        turn = number % len(names)
        for name in (*names[turn:], *names[:turn]):
            yield number, name


def write_json(path: Path | None, found: object) -> None:
    """Write figures as JSON to the path, if there is one."""
    if path:
        path.write_text(json.dumps(found, indent=1))


def show_outcomes(
    found: Sequence[Mapping[str, str]], groups: Sequence[str], outcomes: Sequence[str]
) -> None:
    """Print the tests that did not pass, with the reason, and the outcomes of each group.

    Args:
        found: ``test``, ``group``, ``outcome`` and ``why`` of each.
        outcomes: all possible ones; the first is that a test passed.
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
    """Return the names of the sections that ``--only a,b`` asks for; without it all of them.

    Raises:
        typer.BadParameter: there is no section of that name.
    """
    names = only.split(",") if only else list(sections)
    if unknown := set(names) - sections.keys():
        raise typer.BadParameter(f"--only: {', '.join(unknown)}; there are {', '.join(sections)}")
    return names


def describe_machine() -> dict[str, Any]:
    """Return the machine's cores, processor, memory and system, and Python's version."""
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


def _find_version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
