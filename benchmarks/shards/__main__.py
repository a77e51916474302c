"""Compare our shards and loader with a raw memory map and others: writing, reading, resuming.

python -m benchmarks.shards [--json FILE] [--only write,read,resume] [--quick]

Each contender runs in a process of its own. Reading: a round opens the data anew and reads batches
of 32 × 2,049 tokens for a second, from the second batch on. Resuming: every measure is the first
one of a new process, since who resumes has been ended before; what a library imports, compiles or
caches when it is first used is a part of it, importing the library itself is not.
"""

import dataclasses
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from benchmarks import harness
from benchmarks.harness import Figure, JsonFile, Section, Target
from benchmarks.shards.bench import QUICK, Bench, ContenderFailed, Process, Sizes
from benchmarks.shards.contenders import BATCH, ENTRIES

ORDERS = {"in order": False, "shuffled": True}


def write(bench: Bench) -> Section:
    section = Section("write", "Write, one process, MB a second")
    section.columns = ("", "MB a second")
    processes = bench.processes("write")
    folder = bench.scratch / "written"

    def rate(process: Process) -> float:
        asked = {"corpus": bench.tokens, "folder": folder, "samples": bench.sizes.samples}
        return process.ask("write", **asked)["bytes_per_second"]

    found = bench.rounds("write", {name: lambda p=p: rate(p) for name, p in processes.items()})
    for name, figure in found.items():
        section.rows.append((processes[name].entry.label, figure.text(1e6, 0)))
        section.data[name] = figure.data()
    section.targets.append(Target("write ÷ raw file", found["ours"].over(found["raw"]), "≥", 0.75))
    if "litdata" in found:
        ratio = found["ours"].over(found["litdata"])
        section.targets.append(Target("write ÷ litdata", ratio, "≥", 4.5))
    section.notes.append("The same samples, into an empty folder, as each contender writes them.")
    return section


def read(bench: Bench) -> Section:
    section = Section("read", "Read, one process, million tokens a second")
    section.columns = ("", "in order", "shuffled", "shuffle")
    processes = bench.processes("read")
    found = {name: _read(bench, processes, name) for name in ORDERS}
    for module in [name for name in processes if name not in bench.failed]:
        entry = processes[module].entry
        figures = [found[order][module] for order in ORDERS]
        section.rows.append((entry.label, *(f.text(1e6, 1) for f in figures), entry.shuffle))
        pairs = zip(ORDERS, figures, strict=True)
        section.data[module] = {order: figure.data() for order, figure in pairs}
    for order, figures in found.items():
        section.targets += _read_targets(order, figures, processes)
    section.notes.append(
        "A round opens the data anew and reads for a second, epoch after epoch, from the second "
        "batch on. Batches own their memory. Shuffled by the way each library's documentation "
        "recommends; where that is not uniform, the last column says what it is. No loader has "
        "worker processes: with them all wait for the copy between processes."
    )
    return section


def _read(bench: Bench, processes: dict[str, Process], order: str) -> dict[str, Figure]:
    def rate(process: Process) -> float:
        folder = bench.folder(process.entry.module)
        answer = process.ask(
            "read", folder=folder, shuffled=ORDERS[order], seconds=bench.sizes.seconds
        )
        return answer["tokens_per_second"]

    left = [process for name, process in processes.items() if name not in bench.failed]
    measures = {process.entry.module: lambda p=process: rate(p) for process in left}
    return bench.rounds(f"read {order}", measures)


def _read_targets(
    order: str, figures: dict[str, Figure], processes: dict[str, Process]
) -> list[Target]:
    ours = figures["ours"]
    targets = [Target(f"read {order} ÷ raw memory map", ours.over(figures["raw"]), "≥", 0.8)]
    peers = [name for name in figures if processes[name].entry.role == "peer"]
    if peers:
        best = max(peers, key=lambda name: figures[name].median)
        label = processes[best].entry.label
        what = f"read {order} ÷ best peer ({label})"
        targets.append(Target(what, ours.over(figures[best]), "≥", 2))
    loop = figures["data_loader"]
    for name, demanded in (("litdata", 5), ("map_loader", 2)):
        if name in figures:
            what = f"read {order} in torch's DataLoader ÷ {processes[name].entry.label}"
            targets.append(Target(what, loop.over(figures[name]), "≥", demanded))
    return targets


POINTS = {"at 1 %": 0.01, "at 50 %": 0.5, "at 90 %": 0.9}


def resume(bench: Bench) -> Section:
    section = Section("resume", "Resume in mid-epoch, shuffled, milliseconds to the first batch")
    section.columns = ("", *POINTS, "state, bytes", "the batch that follows?")
    processes = bench.processes("resume")
    states = _save(bench, processes)
    exact: dict[str, bool] = dict.fromkeys(states, True)
    saved = {name: processes[name] for name in states}
    found = [_resume(bench, saved, number, exact) for number in range(len(POINTS))]
    for name in [name for name in found[-1] if name not in bench.failed]:
        size = states[name]
        figures = [figures[name] for figures in found]
        same = "yes" if exact[name] else "no"
        row = (processes[name].entry.label, *(f.text(1e-3, 1) for f in figures), f"{size:,}", same)
        section.rows.append(row)
        pairs = zip(POINTS, figures, strict=True)
        section.data[name] = {point: figure.data() for point, figure in pairs}
        section.data[name] |= {"state_bytes": size, "exact": exact[name]}
    section.targets = _resume_targets(found, processes)
    section.notes.append(
        "In a new process that has the library imported: open the data, load the state, read one "
        "batch. It is compared with the batch that followed when the state was saved."
    )
    return section


def _save(bench: Bench, processes: dict[str, Process]) -> dict[str, int]:
    """Save the contenders' states, and return their bytes."""
    counts = [int(bench.sizes.samples * share) // BATCH for share in POINTS.values()]
    bar = bench.progress.add_task("resume: read up to the points", total=len(processes))
    sizes = {}
    for name, process in processes.items():
        try:
            states = _states(bench, name)
            states.parent.mkdir(exist_ok=True)
            answer = process.ask("save", folder=bench.folder(name), batches=counts, states=states)
            sizes[name] = answer["state_bytes"]
        except ContenderFailed as error:
            bench.leave_out(error)
        bench.progress.advance(bar)
    bench.progress.remove_task(bar)
    return sizes


def _resume(
    bench: Bench, processes: dict[str, Process], point: int, exact: dict[str, bool]
) -> dict[str, Figure]:
    def seconds(name: str) -> float:
        asked = {"folder": bench.folder(name), "point": point, "states": _states(bench, name)}
        with closing(Process(processes[name].entry)) as process:
            answer = process.ask("resume", **asked)
        exact[name] &= answer["exact"]
        return answer["seconds"]

    what = f"resume {list(POINTS)[point]}"
    left = [name for name in processes if name not in bench.failed]
    return bench.rounds(what, {name: lambda n=name: seconds(n) for name in left})


def _states(bench: Bench, name: str) -> Path:
    """Where a contender's states are kept, and the batches that follow."""
    return bench.scratch / "states" / f"{name}.pickle"


def _resume_targets(found: list[dict[str, Figure]], processes: dict[str, Process]) -> list[Target]:
    targets = []
    peers = [name for name in found[-1] if processes[name].entry.role == "peer"]
    if peers:
        middle = found[1]
        best = min(peers, key=lambda name: middle[name].median)
        label = processes[best].entry.label
        ratio = middle[best].over(middle["ours"])
        targets.append(Target(f"resume at 50 %: best peer ({label}) ÷ ours", ratio, "≥", 50))
    growth = found[-1]["ours"].over(found[0]["ours"])
    targets.append(Target("resume: at 90 % ÷ at 1 % of an epoch", growth, "≤", 1.5))
    return targets


LIBRARIES = ("torch", "numpy", "litdata", "datasets")

SECTIONS: dict[str, Callable[[Bench], Section]] = {
    "write": write,
    "read": read,
    "resume": resume,
}

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    json_file: JsonFile = None,
    quick: Annotated[bool, typer.Option(help="Tiny sizes: does it run? No figures.")] = False,
    peers: Annotated[bool, typer.Option(help="Measure other libraries too.")] = True,
    only: Annotated[str, typer.Option(help="Sections: a,b,…; default: all.")] = "",
    rounds: Annotated[int | None, typer.Option(min=1, help="Instead of 5.")] = None,
    scratch: Annotated[Path | None, typer.Option(help="Work here, and leave it there.")] = None,
) -> None:
    """Compare Trainyard's shards and loader with the machine's limits and with other libraries."""
    names = harness.chosen(only, SECTIONS)
    sizes = QUICK if quick else Sizes()
    if rounds:
        sizes = dataclasses.replace(sizes, rounds=rounds)
    console = harness.screen()
    if scratch:
        scratch.mkdir(parents=True, exist_ok=True)
        _run(scratch.resolve(), sizes, peers, names, json_file, console)
    else:
        with tempfile.TemporaryDirectory(prefix="benchmarks-shards-") as folder:
            _run(Path(folder), sizes, peers, names, json_file, console)


def _run(
    scratch: Path,
    sizes: Sizes,
    peers: bool,
    names: list[str],
    json_file: Path | None,
    console: Console,
) -> None:
    sections = []
    with harness.progress(console) as progress:
        bench = _bench(scratch, sizes, peers, progress)
        overall = progress.add_task("all", total=len(names))
        try:
            for name in names:
                sections.append(SECTIONS[name](bench))
                harness.show(sections[-1], console)
                progress.advance(overall)
        finally:
            bench.end_processes()
    for module, reason in bench.failed.items():
        console.print(f"[yellow]not measured[/] {module}: {reason}")
    setting = dataclasses.asdict(sizes) | {"not_measured": bench.failed}
    harness.report(sections, json_file, setting, LIBRARIES, shown=True)


def _bench(scratch: Path, sizes: Sizes, peers: bool, progress: Progress) -> Bench:
    chosen = [entry for entry in ENTRIES if peers or entry.role in ("ours", "limit")]
    missing = {entry.module: entry.missing() for entry in chosen}
    failed = {module: reason for module, reason in missing.items() if reason}
    entries = tuple(entry for entry in chosen if not missing[entry.module])
    return Bench(sizes, scratch, entries, progress, failed)


if __name__ == "__main__":
    app()
