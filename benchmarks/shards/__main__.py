"""Compare our shards and loader with a raw memory map and others: writing, reading, resuming.

python -m benchmarks.shards [--json FILE] [--only write,read,resume] [--quick]

Each contender runs in a process of its own. Reading: a round opens the data anew and reads batches
of 32 × 2,049 tokens for a second, from the second batch on; shuffled by the way each library's
documentation recommends. Resuming: every measure is the first one of a new process that has the
library imported, since who resumes has been ended before: open the data, load the state, read one
batch, which is compared with the one that followed when the state was saved. ``--quick`` has fewer
tokens and rounds, and no resume: two minutes.
"""

import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from benchmarks import harness
from benchmarks.harness import Figure, JsonFile, Section, Target
from benchmarks.shards.contenders import BATCH, ENTRIES, Entry
from benchmarks.shards.corpus import write_tokens
from benchmarks.shards.process import ContenderFailed, Process

ORDERS = {"in order": False, "shuffled": True}
POINTS = {"at 1 %": 0.01, "at 50 %": 0.5, "at 90 %": 0.9}
LIBRARIES = ("torch", "numpy", "litdata", "datasets")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Amount of data, and number and length of rounds."""

    rounds: int = 5
    samples: int = 65_887
    """Samples of 2,049 tokens: 135 million tokens, 270 MB."""
    seconds: float = 1.0
    """Seconds of reading in a round."""


QUICK = Sizes(rounds=3, samples=8_192, seconds=0.3)


@dataclass
class Bench:
    """Contenders in processes of their own, each with its copy of the corpus."""

    sizes: Sizes
    scratch: Path
    entries: dict[str, Entry]
    """Module → contender, for those that can run here."""
    failed: dict[str, str] = field(default_factory=dict)
    """Contender → why it is not measured (any more)."""
    started: dict[str, Process] = field(default_factory=dict)

    def write_copies(self) -> None:
        """Write the corpus and each contender's copy; check the copies against it."""
        write_tokens(self.scratch / "corpus.bin", self.sizes.samples)
        for name in harness.track_steps("every contender's own format", self.entries):
            self.started[name] = process = Process(self.entries[name])
            try:
                self.ask(process, "write", corpus=self.corpus, samples=self.sizes.samples)
                if wrong := self.ask(process, "check", corpus=self.corpus)["wrong"]:
                    raise ContenderFailed(process.entry, wrong)
            except ContenderFailed as error:
                self.leave_out(error)

    @property
    def corpus(self) -> Path:
        return self.scratch / "corpus.bin"

    def list_contenders(self, task: str) -> list[str]:
        """Return the contenders of a task that have not failed."""
        return [n for n, e in self.entries.items() if task in e.tasks and n not in self.failed]

    def ask(self, process: Process, do: str, **arguments: object) -> dict:
        folder = self.scratch / "formats" / process.entry.module
        return process.ask(do, folder=folder, **arguments)

    def run_rounds(
        self, what: str, measures: Mapping[str, Callable[[], float]]
    ) -> dict[str, Figure]:
        """Run each measure once in every round; each round begins with another one.

        A peer that fails is left out, and reported.
        """
        found: dict[str, list[float]] = {name: [] for name in measures}
        turns = harness.iter_turns(list(measures), self.sizes.rounds)
        for _, name in harness.track_steps(what, turns):
            if name in found:
                try:
                    found[name].append(measures[name]())
                except ContenderFailed as error:
                    self.leave_out(error)
                    del found[name]
        return {name: Figure(tuple(values)) for name, values in found.items()}

    def leave_out(self, error: ContenderFailed) -> None:
        """Go on without a failed peer; raise the error if everything is compared with it."""
        if error.entry.role in ("ours", "limit"):
            raise error
        self.failed[error.entry.module] = str(error)

    def find_best_peer(
        self, figures: Mapping[str, Figure], pick: Callable = max
    ) -> tuple[str, Figure] | None:
        """Return label and figure of the best peer; None without a peer."""
        peers = [name for name in figures if self.entries[name].role == "peer"]
        name = pick(peers, key=lambda n: figures[n].median, default=None)
        return (self.entries[name].label, figures[name]) if name else None


def measure_writing(bench: Bench) -> Section:
    """Measure how fast each contender writes the corpus."""
    section = Section("write", "Write, one process, MB a second", ("", "MB a second"))

    def rate(process: Process) -> float:
        arguments = {"corpus": bench.corpus, "samples": bench.sizes.samples}
        folder = bench.scratch / "written"
        return process.ask("write", folder=folder, **arguments)["bytes_per_second"]

    measures = {n: lambda p=bench.started[n]: rate(p) for n in bench.list_contenders("write")}
    found = bench.run_rounds("write", measures)
    for name, figure in found.items():
        section.rows.append((bench.entries[name].label, figure.text(1e6, 0)))
        section.data[name] = figure.data()
    ratio = found["ours"].divide_by(found["raw"])
    section.targets.append(Target("write ÷ raw file", ratio, "≥", 0.75))
    if "litdata" in found:
        ratio = found["ours"].divide_by(found["litdata"])
        section.targets.append(Target("write ÷ litdata", ratio, "≥", 4.5))
    return section


def _measure_tokens_per_second(bench: Bench, shuffled: bool, name: str) -> float:
    arguments = {"shuffled": shuffled, "seconds": bench.sizes.seconds}
    return bench.ask(bench.started[name], "read", **arguments)["tokens_per_second"]


def measure_reading(bench: Bench) -> Section:
    """Measure how fast each contender reads the corpus, in order and shuffled."""
    section = Section("read", "Read, one process, million tokens a second")
    section.columns = ("", "in order", "shuffled", "shuffle")
    found: dict[str, dict[str, Figure]] = {}
    for order, shuffled in ORDERS.items():
        rate = partial(_measure_tokens_per_second, bench, shuffled)
        measures = {name: partial(rate, name) for name in bench.list_contenders("read")}
        found[order] = bench.run_rounds(f"read {order}", measures)
    for name in bench.list_contenders("read"):
        entry, figures = bench.entries[name], [found[order][name] for order in ORDERS]
        section.rows.append((entry.label, *(f.text(1e6, 1) for f in figures), entry.shuffle))
        pairs = zip(ORDERS, figures, strict=True)
        section.data[name] = {order: figure.data() for order, figure in pairs}
    for order, figures in found.items():
        ours, loop, what = figures["ours"], figures["data_loader"], f"read {order} ÷"
        raw = ours.divide_by(figures["raw"])
        section.targets.append(Target(f"{what} raw memory map", raw, "≥", 0.8))
        if best := bench.find_best_peer(figures):
            ratio = ours.divide_by(best[1])
            section.targets.append(Target(f"{what} best peer ({best[0]})", ratio, "≥", 2))
        if "litdata" in figures:
            what = f"read {order} in torch's DataLoader ÷ litdata"
            section.targets.append(Target(what, loop.divide_by(figures["litdata"]), "≥", 5))
    return section


def measure_resuming(bench: Bench) -> Section:
    """Measure how fast each contender resumes in mid-epoch."""
    section = Section("resume", "Resume in mid-epoch, shuffled, milliseconds to the first batch")
    section.columns = ("", *POINTS, "state, bytes", "the batch that follows?")
    counts = [int(bench.sizes.samples * share) // BATCH for share in POINTS.values()]
    states = {name: bench.scratch / f"{name}.states" for name in bench.list_contenders("resume")}
    sizes, exact = dict[str, int](), dict.fromkeys(states, True)
    for name in harness.track_steps("read up to the points", states):
        try:
            arguments = {"batches": counts, "states": states[name]}
            sizes[name] = bench.ask(bench.started[name], "save", **arguments)["state_bytes"]
        except ContenderFailed as error:
            bench.leave_out(error)

    def seconds(name: str, point: int) -> float:
        with closing(Process(bench.entries[name])) as process:
            answer = bench.ask(process, "resume", point=point, states=states[name])
        exact[name] &= answer["exact"]
        return answer["seconds"]

    found = []
    for number, point in enumerate(POINTS):
        left = [name for name in sizes if name not in bench.failed]
        measures = {name: partial(seconds, name, number) for name in left}
        found.append(bench.run_rounds(f"resume {point}", measures))
    for name in [name for name in sizes if name not in bench.failed]:
        figures = [figures[name] for figures in found]
        same = "yes" if exact[name] else "no"
        cells = (*(f.text(1e-3, 1) for f in figures), f"{sizes[name]:,}", same)
        section.rows.append((bench.entries[name].label, *cells))
        section.data[name] = {p: f.data() for p, f in zip(POINTS, figures, strict=True)}
        section.data[name] |= {"state_bytes": sizes[name], "exact": exact[name]}
    if best := bench.find_best_peer(found[1], min):
        ratio = best[1].divide_by(found[1]["ours"])
        what = f"resume at 50 %: best peer ({best[0]}) ÷ ours"
        section.targets.append(Target(what, ratio, "≥", 50))
    growth = found[-1]["ours"].divide_by(found[0]["ours"])
    section.targets.append(Target("resume: at 90 % ÷ at 1 % of an epoch", growth, "≤", 1.5))
    return section


SECTIONS: dict[str, Callable[[Bench], Section]] = {
    "write": measure_writing,
    "read": measure_reading,
    "resume": measure_resuming,
}
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    json_file: JsonFile = None,
    quick: Annotated[bool, typer.Option(help="Less of it: two minutes.")] = False,
    peers: Annotated[bool, typer.Option(help="Measure other libraries too.")] = True,
    only: Annotated[str, typer.Option(help="Sections: a,b,…; default: all.")] = "",
    rounds: Annotated[int | None, typer.Option(min=1, help="Instead of 5.")] = None,
) -> None:
    """Compare Trainyard's shards and loader with the machine's limits and with other libraries."""
    names = harness.choose_sections(only or ("write,read" if quick else ""), SECTIONS)
    sizes = QUICK if quick else Sizes()
    sizes = replace(sizes, rounds=rounds or sizes.rounds)
    known = {entry.module: entry for entry in ENTRIES if peers or entry.role != "peer"}
    failed = {name: why for name, entry in known.items() if (why := entry.explain_absence())}
    entries = {name: entry for name, entry in known.items() if name not in failed}
    sections = []
    with tempfile.TemporaryDirectory(prefix="benchmarks-shards-") as folder:
        bench = Bench(sizes, Path(folder), entries, failed)
        try:
            bench.write_copies()
            for name in names:
                sections.append(SECTIONS[name](bench))
                harness.show_section(sections[-1])
        finally:
            for process in bench.started.values():
                process.close()
    for module, reason in bench.failed.items():
        print(f"not measured: {module}: {reason}")
    setting = asdict(sizes) | {"not_measured": bench.failed}
    harness.write_report(sections, json_file, setting, LIBRARIES)


if __name__ == "__main__":
    app()
