"""All contenders train the same model, in turns: speed, start and memory, once losses agree."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rich.progress import Progress

from benchmarks.harness import Figure, Section, Target
from benchmarks.training.entries import CHECKOUT, ENTRIES, ESSENTIAL, Entry
from benchmarks.training.launch import ContenderFailed, Run, run
from benchmarks.training.setting import Setting

TOLERANCE = {"float32": 1e-4, "bfloat16": 5e-3}
"""Largest relative difference of a loss from that of DDP by hand in float32, at the same step."""


@dataclass
class Compared:
    """The runs of all contenders with so many ranks."""

    world: int
    entries: list[Entry] = field(default_factory=list)
    """Who takes part, in the order of the table."""
    runs: dict[str, list[Run]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    """Contender → why it is not measured, or not to the end."""

    def figure(self, name: str, what: str) -> Figure:
        """One field of ``Run``, one value a round."""
        return Figure(tuple(getattr(one, what) for one in self.runs[name]))

    def ratio(self, name: str, other: str, what: str = "step_cpu") -> Figure:
        """Round by round."""
        return self.figure(name, what).over(self.figure(other, what))

    def largest_difference(self, name: str) -> float:
        """Of a loss from that of DDP by hand, relative."""
        true = self.runs["hand"][0].losses
        runs = self.runs[name]
        return max(abs(one.losses[s] / loss - 1) for one in runs for s, loss in true.items())


def compare(
    setting: Setting, world: int, chosen: list[Entry], rounds: int, scratch: Path, bar: Progress
) -> Compared:
    """All rounds with so many ranks; who begins changes from round to round.

    A contender that fails, or whose losses are others, is left out and reported.

    Raises:
        ContenderFailed: it was DDP by hand or Trainyard that failed.
    """
    entries = [entry for entry in chosen if world in entry.worlds]
    compared = Compared(world, entries)
    for entry in entries:
        if reason := entry.missing():
            compared.failed[entry.name] = reason
    entries = [entry for entry in entries if entry.name not in compared.failed]
    task = bar.add_task(f"{world} ranks", total=rounds * len(entries))
    for number in range(rounds):
        turn = number % len(entries)
        for entry in entries[turn:] + entries[:turn]:
            if entry.name not in compared.failed:
                bar.update(task, description=f"{world} ranks: {entry.label}")
                _once(compared, entry, setting, scratch)
            bar.advance(task)
    bar.remove_task(task)
    for entry in entries:
        _check_losses(compared, entry)
    return compared


def _once(compared: Compared, entry: Entry, setting: Setting, scratch: Path) -> None:
    try:
        found = run(entry, setting, compared.world, scratch / "root")
    except ContenderFailed as error:
        if entry.name in ESSENTIAL:
            raise
        compared.failed[entry.name] = str(error)
        compared.runs.pop(entry.name, None)
        return
    compared.runs.setdefault(entry.name, []).append(found)


def _check_losses(compared: Compared, entry: Entry) -> None:
    """No speed of a contender that computes something else."""
    if entry.name not in compared.runs or entry.checkout != CHECKOUT:
        # Another commit may draw other initial numbers: its losses are shown, and are its own.
        return
    difference = compared.largest_difference(entry.name)
    if difference <= TOLERANCE[entry.precision]:
        return
    message = (
        f"{entry.label}: its losses differ by {difference:.2g} from DDP by hand; at most "
        f"{TOLERANCE[entry.precision]:g} is accepted for {entry.precision}"
    )
    if entry.name in ESSENTIAL:
        raise ContenderFailed(message)
    compared.failed[entry.name] = message
    del compared.runs[entry.name]


def section(compared: Compared) -> Section:
    """The table, and what is demanded."""
    world = compared.world
    found = Section(f"world_{world}", f"{world} process{'es' if world > 1 else ''}")
    found.columns = (
        "",
        "CPU a step ÷ hand",
        "CPU s a step",
        "first step ÷ hand",
        "its CPU ÷ hand",
        "MB training",
        "MB in all",
        "loss off by",
    )
    for entry in compared.entries:
        if entry.name in compared.runs:
            found.rows.append(_row(compared, entry))
    found.notes = [f"{entry_name}: {why}" for entry_name, why in compared.failed.items()]
    found.targets = list(_targets(compared))
    found.data = {
        name: {
            "step_cpu": compared.figure(name, "step_cpu").data(),
            "step_cpu_over_hand": compared.ratio(name, "hand").data(),
            "step_seconds": compared.figure(name, "step_seconds").data(),
            "first_seconds": compared.figure(name, "first_seconds").data(),
            "first_over_hand": compared.ratio(name, "hand", "first_seconds").data(),
            "first_cpu": compared.figure(name, "first_cpu").data(),
            "first_cpu_over_hand": compared.ratio(name, "hand", "first_cpu").data(),
            "training_bytes": compared.figure(name, "training_bytes").data(),
            "peak_bytes": compared.figure(name, "peak_bytes").data(),
            "losses": compared.runs[name][0].losses,
            "loss_difference": compared.largest_difference(name),
        }
        for name in compared.runs
    } | {"failed": compared.failed}
    return found


def _row(compared: Compared, entry: Entry) -> tuple[str, ...]:
    name = entry.name
    return (
        entry.label,
        compared.ratio(name, "hand").text(),
        f"{compared.figure(name, 'step_cpu').median:.3f}",
        compared.ratio(name, "hand", "first_seconds").text(),
        compared.ratio(name, "hand", "first_cpu").text(),
        f"{compared.figure(name, 'training_bytes').median / 1e6:.0f}",
        f"{compared.figure(name, 'peak_bytes').median / 1e6:.0f}",
        f"{compared.largest_difference(name):.0e}",
    )


def _targets(compared: Compared) -> Iterator[Target]:
    """A ratio to be at most 1 may be above it by what DDP by hand differs from itself."""
    ratio, world = compared.ratio, compared.world
    again = ratio("hand_again", "hand").rounds
    noise = Figure(tuple(abs(value - 1) for value in again)).median
    ranks = f"{world} process{'es' if world > 1 else ''}"
    yield Target(f"CPU a step, {ranks}: float32 ÷ by hand", ratio("ours", "hand"), "≤", 1 + noise)
    half = ratio("ours_bf16", "hand_bf16")
    yield Target(f"CPU a step, {ranks}: bfloat16 ÷ by hand", half, "≤", 1 + noise)
    for kind in ("fsdp", "fsdp_bf16", "zero1", "zero3"):
        if {f"ours_{kind}", f"hand_{kind}"} <= compared.runs.keys():
            split = ratio(f"ours_{kind}", f"hand_{kind}")
            yield Target(f"CPU a step, {ranks}: {kind} ÷ by hand", split, "≤", 1 + noise)
    for name in compared.runs:
        if (now := name.replace("before", "ours")) != name and now in compared.runs:
            for what, said in (
                ("step_cpu", "CPU a step"),
                ("training_bytes", "memory, training"),
                ("peak_bytes", "memory, checkpoint and all"),
            ):
                yield Target(f"{said}, {ranks}: {now} ÷ {name}", ratio(now, name, what), "≤", 1)
    frameworks = [e for e in ENTRIES if e.framework and e.name in compared.runs]
    for entry in frameworks:
        what = f"CPU a step, {ranks}: default ÷ {entry.label}'s"
        yield Target(what, ratio("ours_bf16", entry.name), "≤", 0.55)
    for what, said in (("first_seconds", "time"), ("first_cpu", "CPU")):
        yield Target(
            f"{said} to the first step, {ranks}: ÷ by hand", ratio("ours", "hand", what), "≤", 1.1
        )
    for entry in frameworks:
        first = ratio("ours", entry.name, "first_cpu")
        yield Target(f"CPU to the first step, {ranks}: ÷ {entry.label}", first, "≤", 1)
    for what, said in (("training_bytes", "training"), ("peak_bytes", "checkpoint and all")):
        memory = ratio("ours_bf16", "hand", what)
        yield Target(f"memory, {ranks}, {said}: ÷ DDP by hand", memory, "≤", 1)
