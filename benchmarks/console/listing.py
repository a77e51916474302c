"""The list of runs over a state with many executions: seconds a page, and memory."""

import re
import time
from pathlib import Path

from benchmarks.console.processes import Started, Visitor, console, emulator
from benchmarks.console.state import STEPS, make
from benchmarks.harness import Figure, Section, Target

ASKED = {
    "newest": "/runs",
    "page 100": "/runs?page=100",
    "one status": "/runs?status=Failed",
    "a parameter": "/runs?p.LearningRate=%3D0.003&p.Epochs=%3D10",
    "sorted by a parameter": "/runs?sort=-p.Epochs",
    "sorted by duration": "/runs?sort=-duration",
    "searched": "/runs?q=vision+day%3D20",
    "one run by its id": "/runs?q=execution/{id}",
}
FIRST = "first page of a console that has just started, s"
LOADS = 300
"""Pages that are asked for while memory is looked at."""


def measure(folder: Path, executions: int, rounds: int) -> Section:
    """Start everything over a fresh state of so many executions, and ask for pages."""
    state = folder / "many"
    if not state.exists():
        make(state, executions)
    section = Section("listing", f"{executions:,} executions × {STEPS} steps: the list of runs")
    section.columns = ("", "found")
    with emulator(state) as (served, env):
        _row(section, "the emulator starts over that state, s", [served.seconds])
        _row(section, "the emulator's memory, MB", [served.megabytes])
        cold = [_cold(env, served) for _ in range(rounds)]
        first = _row(section, FIRST, [seconds for seconds, _ in cold])
        _row(section, f"{FIRST[:-3]}, processor time of both", [cpu for _, cpu in cold])
        section.targets.append(Target("first page of a console just started, s", first, "≤", 0.5))
        with console(env) as (started, visitor):
            _row(section, "console starts, s", [started.seconds])
            _row(section, "until all are read in the background, s", [_read(visitor)])
            _row(section, "processor time until then, s", [started.cpu])
            for name, path in ASKED.items():
                took = [_get(visitor, path) for _ in range(rounds)]
                figure = _row(section, f"{name}, s", took)
                section.targets.append(Target(f"page, {name}, s", figure, "≤", 0.5))
            _memory(section, started, visitor)
    section.notes.append(
        "First page: from the request to the last byte of the HTML, of a console that has served "
        "nobody yet; the index is empty then, and the page says that it is not complete."
    )
    return section


def _row(section: Section, what: str, found: list[float]) -> Figure:
    figure = Figure(tuple(found))
    section.rows.append((what, figure.text(digits=3) if len(found) > 1 else f"{found[0]:,.2f}"))
    section.data[what] = figure.data()
    return figure


def _cold(env: dict[str, str], emulator: Started) -> tuple[float, float]:
    """Seconds, and processor seconds of console and emulator together."""
    with console(env) as (started, visitor):
        before = started.cpu + emulator.cpu
        seconds, html = visitor.get("/runs")
        used = started.cpu + emulator.cpu - before
    assert html.count('<th scope="row">') == 50, html
    return seconds, used


def _read(visitor: Visitor) -> float:
    """Seconds until the page no longer says that it is read so far."""
    began = time.monotonic()
    while "read so far" in visitor.get("/runs")[1]:
        time.sleep(0.2)
    return time.monotonic() - began


def _get(visitor: Visitor, path: str) -> float:
    if "{id}" in path:
        [id, *_] = re.findall(r'href="/runs/\w+/(\w+)"', visitor.get("/runs?sort=started")[1])
        path = path.format(id=id)
    seconds, html = visitor.get(path)
    assert html.count('<th scope="row">') == (1 if "execution/" in path else 50), path
    return seconds


def _memory(section: Section, started: Started, visitor: Visitor) -> None:
    paths = [path for path in ASKED.values() if "{" not in path]
    paths += [f"/runs?page={page}" for page in range(2, 40)]
    half = 0.0
    for number in range(LOADS):
        visitor.get(paths[number % len(paths)])
        if number == LOADS // 3:
            half = started.megabytes
    whole = started.megabytes
    section.rows.append((f"memory after {LOADS // 3} more pages, MB", f"{half:,.1f}"))
    section.rows.append((f"memory after {LOADS} more pages, MB", f"{whole:,.1f}"))
    section.data["memory"] = {"after a third": half, "after all": whole}
    growth = Figure((whole / half,))
    section.targets.append(Target("memory after all pages ÷ after a third", growth, "≤", 1.05))
