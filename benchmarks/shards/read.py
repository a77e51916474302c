"""Reading: batches of 32 × 2,049 tokens into torch tensors, in one process."""

from benchmarks.harness import Figure, Section, Target
from benchmarks.shards.bench import Bench
from benchmarks.shards.process import Process

ORDERS = {"in order": False, "shuffled": True}


def measure(bench: Bench) -> Section:
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
        section.targets += _targets(order, figures, processes)
    section.notes.append(
        "A round opens the data anew and reads for a second, epoch after epoch, from the second "
        "batch on. Batches own their memory. Shuffled by the way each library's documentation "
        "recommends; where that is not uniform, the last column says what it is."
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


def _targets(order: str, figures: dict[str, Figure], processes: dict[str, Process]) -> list[Target]:
    ours = figures["ours"]
    targets = [Target(f"read {order} ÷ raw memory map", ours.over(figures["raw"]), "≥", 0.8)]
    peers = [name for name in figures if processes[name].entry.role == "peer"]
    if peers:
        best = max(peers, key=lambda name: figures[name].median)
        label = processes[best].entry.label
        what = f"read {order} ÷ best peer ({label})"
        targets.append(Target(what, ours.over(figures[best]), "≥", 2))
    return targets
