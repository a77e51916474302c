"""Writing samples that are tokenised already: 135 million tokens from memory to disk."""

from benchmarks.shards.bench import Bench
from benchmarks.shards.figures import Section, Target
from benchmarks.shards.process import Process

FASTER_THAN = ("litdata", "mosaicml")


def measure(bench: Bench) -> Section:
    section = Section("write", "Write, pre-tokenised, one process, million tokens a second")
    section.columns = ("", "tokens", "bytes on disk")
    folder = bench.empty("write")
    sizes: dict[str, int] = {}

    def rate(process: Process) -> float:
        name, samples = process.entry.module, bench.sizes.samples
        answer = process.ask("write", corpus=bench.tokens, folder=folder / name, samples=samples)
        sizes[name] = answer["bytes"]
        return bench.tokens.stat().st_size / 2 / answer["seconds"]

    processes = bench.processes("write")
    measures = {name: lambda p=process: rate(p) for name, process in processes.items()}
    found = bench.rounds("write", measures)
    for name, figure in found.items():
        ratio = sizes[name] / bench.tokens.stat().st_size
        section.rows.append((processes[name].entry.label, figure.text(1e6, 1), f"{ratio:.2f} ×"))
        section.data[name] = figure.data() | {"bytes": sizes[name]}
    ours = found["ours"]
    section.targets.append(
        Target("write ÷ raw sequential write", ours.over(found["raw"]), "≥", 0.5)
    )
    for name in FASTER_THAN:
        if name in found:
            what = f"write ÷ {processes[name].entry.label}"
            section.targets.append(Target(what, ours.over(found[name]), "≥", 5))
    section.notes.append(
        "Trainyard and the raw write flush every file to the disk (fsync) and Trainyard hashes it; "
        "the others leave their files in the page cache, as they do when they are used. Peers are "
        "given one sample at a time, which is what their writers take."
    )
    bench.empty("write")
    return section
