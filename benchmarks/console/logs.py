"""A log of 200 MB in the console: its pages, what is looked for in it, new lines, and memory."""

import json
import re
import threading
import time
from pathlib import Path

from benchmarks.console.processes import Started, Visitor, console, emulator
from benchmarks.console.state import make
from benchmarks.harness import Figure, Section, Target
from trainyard.emulator.services.log_store import LogStore

GROUP = "/aws/sagemaker/ProcessingJobs"
LINE = "step={i} loss={loss:.6f} learning_rate=0.003 grad_norm=0.812 samples_per_second=41.2"
BATCH = 20_000
LOADS = 100
"""Pages that are asked for while memory is looked at."""

NEW = 20
"""Lines that are logged while a page is open."""


def measure(folder: Path, megabytes: float, rounds: int) -> Section:
    """Write a log of that size, start everything over it, and ask for its pages."""
    state = folder / "log"
    if not state.exists():
        make(state, 5)
    section = Section("logs", f"a log of {megabytes:,.0f} MB")
    section.columns = ("", "found")
    with emulator(state) as (served, env), console(env) as (started, visitor):
        stream, page = _place(state, visitor)
        lines = _write(state, stream, megabytes)
        section.data["lines"] = lines
        middle = _middle(visitor, page, lines)
        asked = {
            "at its end": page,
            "at its beginning": f"{page}&from=0",
            "around a line in the middle": middle,
            "search: a line in the middle": f"{page}&q=step%3D{lines // 2}+",
            "search: what is nowhere": f"{page}&q=nowhere+to+be+found",
        }
        before = {"console": started.megabytes, "emulator": served.megabytes}
        for name, path in asked.items():
            figure = _row(section, f"{name}, s", [_get(visitor, path) for _ in range(rounds)])
            limit = 3.0 if name.startswith("search") else 1.0
            section.targets.append(Target(f"log {name}, s", figure, "≤", limit))
        _row(section, "a new line reaches the page, s", _new(state, stream, visitor, page))
        _memory(section, {"console": started, "emulator": served}, before, visitor, asked)
    section.notes.append(
        "Search: until the page says that it has looked through all of the log, or after two "
        "seconds how far it has."
    )
    return section


def _place(state: Path, visitor: Visitor) -> tuple[str, str]:
    """The stream of a step's job, and the address of its log."""
    [run, *_] = re.findall(r'href="(/runs/[^/"]+/([a-z0-9]{12}))"', visitor.get("/runs")[1])
    found = LogStore(state / "logs").streams(GROUP, f"pipelines-{run[1]}-Work0-")
    return found[0].name, f"{run[0]}/Work0/log?host=algo-1"


def _write(state: Path, stream: str, megabytes: float) -> int:
    """Lines that are added, a millisecond apart."""
    store, size, count = LogStore(state / "logs"), 0, 0
    begin = int(time.time() * 1000)
    while size < megabytes * 1e6:
        numbers = range(count, count + BATCH)
        events = [(begin + i, LINE.format(i=i, loss=1 / (i + 1))) for i in numbers]
        store.put(GROUP, stream, events)
        count, size = count + BATCH, size + sum(len(text) + 40 for _, text in events)
    return count


def _middle(visitor: Visitor, page: str, lines: int) -> str:
    html = visitor.get(f"{page}&q=step%3D{lines // 2}+")[1]
    [link] = re.findall(r'href="([^"#]+line=[^"#]+)#', html)
    return str(link.replace("&amp;", "&"))


def _row(section: Section, what: str, found: list[float]) -> Figure:
    figure = Figure(tuple(found))
    section.rows.append((what, figure.text(digits=3)))
    section.data[what] = figure.data()
    return figure


def _get(visitor: Visitor, path: str) -> float:
    seconds, html = visitor.get(path)
    assert 'aria-label="Lines of the log"' in html, html
    return seconds


def _new(state: Path, stream: str, visitor: Visitor, page: str) -> list[float]:
    """Seconds from when a line is logged until the event that brings it."""
    store, seen = LogStore(state / "logs"), dict[str, float]()
    events = visitor.stream("/events/benchmark")
    next(events)  # connected
    visitor.post("/events/benchmark", json.dumps({page: True}).encode())

    def listen() -> None:
        for line in events:
            for name in re.findall(r"new line (\d+)<", line.decode()):
                seen.setdefault(name, time.monotonic())
            if len(seen) == NEW:
                return

    listening = threading.Thread(target=listen, daemon=True)
    listening.start()
    time.sleep(2)
    logged = {}
    for i in range(NEW):
        logged[str(i)] = time.monotonic()
        store.append(GROUP, stream, [f"new line {i}"])
        time.sleep(0.7)
    listening.join(10)
    assert len(seen) == NEW, f"{NEW - len(seen)} of {NEW} lines did not come"
    return [seen[name] - logged[name] for name in logged]


def _memory(
    section: Section,
    served: dict[str, Started],
    before: dict[str, float],
    visitor: Visitor,
    asked: dict[str, str],
) -> None:
    """What both processes have after many pages more than before the first."""
    for number in range(LOADS):
        visitor.get(list(asked.values())[number % len(asked)])
    for name, one in served.items():
        grown = _row(section, f"memory of the {name} after {LOADS} pages, MB more",
                     [one.megabytes - before[name]])  # fmt: skip
        section.targets.append(Target(f"{name}'s memory grows by, MB", grown, "≤", 60))
