"""Resuming: from a saved state to the batch that comes next, at three points of an epoch.

Every measure is the first one of a new process, since who resumes has been ended before: what a
library imports, compiles or caches when it is first used is a part of it. Importing the library
itself is not.
"""

from contextlib import closing
from pathlib import Path

from benchmarks.harness import Figure, Section, Target
from benchmarks.shards.bench import Bench
from benchmarks.shards.contenders import BATCH
from benchmarks.shards.process import ContenderFailed, Process

POINTS = {"at 1 %": 0.01, "at 50 %": 0.5, "at 90 %": 0.9}


def measure(bench: Bench) -> Section:
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
    section.targets = _targets(found, processes)
    section.notes.append(
        "In a new process that has the library imported: open the data, load the state, read one "
        "batch. It is compared with the batch that followed when the state was saved."
    )
    return section


def _save(bench: Bench, processes: dict[str, Process]) -> dict[str, int]:
    """Bytes of the contenders' states. Slow ones read half a minute to get there."""
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


def _targets(found: list[dict[str, Figure]], processes: dict[str, Process]) -> list[Target]:
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
