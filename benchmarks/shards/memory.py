"""Peak memory of the shard job on inputs of growing size."""

from pathlib import Path

from benchmarks.harness import Figure, Section, Target
from benchmarks.shards import corpus, job
from benchmarks.shards.bench import Bench

OBJECT_MB = 25
"""Size of a raw object; the last input is one single object."""


def measure(bench: Bench) -> Section:
    bench.end_processes()
    section = Section("memory", "Peak memory of the shard job, all of its processes, MB")
    section.columns = ("input, MB of text", "peak MB", "seconds", "output MB")
    texts, peaks = corpus.standard_library(), []
    sizes = bench.sizes.memory_mb
    inputs = [(size, min(OBJECT_MB, size)) for size in sizes]
    if sizes[-1] > OBJECT_MB:
        inputs.append((sizes[-1], sizes[-1]))
    bar = bench.progress.add_task("memory", total=len(inputs))
    for size, object_mb in inputs:
        done = _run(bench.empty("memory"), texts, size, object_mb)
        figures = (done.peak_bytes / 1e6, done.seconds, done.output_bytes / 1e6)
        peaks.append({"mb": size, "single": object_mb > OBJECT_MB, "peak_mb": figures[0]})
        name = f"{size:,g}" + (" in one object" if peaks[-1]["single"] else "")
        section.rows.append((name, *(f"{figure:,.1f}" for figure in figures)))
        bench.progress.advance(bar)
    bench.progress.remove_task(bar)
    bench.empty("memory")
    growth = Figure((peaks[len(sizes) - 1]["peak_mb"] / peaks[0]["peak_mb"],))
    what = f"peak memory at {sizes[-1]:,g} MB ÷ at {sizes[0]:,g} MB"
    section.targets.append(Target(what, growth, "≤", 1.1))
    section.data = {"peaks": peaks, "object_mb": OBJECT_MB}
    section.notes.append(
        f"Text in objects of {OBJECT_MB} MB, tokens are bytes; the resident memory of all of the "
        "job's processes together, looked at every 20 ms; pages that they share count for each."
    )
    return section


def _run(root: Path, texts: list[str], mb: float, object_mb: float) -> job.Run:
    source = root / "raw"
    corpus.write_json_lines(source, texts, int(mb * 1e6), int(object_mb * 1e6))
    return job.run(source, root / "out", job.language_model(None), watch_memory=True)
