"""Train the same model with all contenders, in turns: speed, start and memory."""

import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.progress import Progress

from benchmarks.harness import CHECKOUT, Figure, Section, Target, turns
from benchmarks.measured_process import Used, free_ports, rank_environment
from benchmarks.training.entries import ENTRIES, ESSENTIAL, Entry
from benchmarks.training.setting import Setting

SECONDS = 300
LINE = re.compile(r"^step=(\d+) loss=(\S+)")


class ContenderFailed(Exception):
    """A rank ended with an error; the message has the last line that it wrote."""


@dataclass(slots=True)
class Run:
    """What a training took; CPU seconds are user and system time of all threads of all ranks."""

    losses: dict[int, float] = field(default_factory=dict)
    first_seconds: float = 0.0
    """From the start of the processes until the first optimizer step was done."""
    first_cpu: float = 0.0
    step_cpu: float = 0.0
    """CPU seconds of a step, from the second logged step to the last."""
    step_seconds: float = 0.0
    training_bytes: int = 0
    """Largest resident memory of a rank until the last step, before its checkpoint."""
    peak_bytes: int = 0
    """... and until its end."""


def run(entry: Entry, setting: Setting, world: int, root: Path) -> Run:
    """Train in ``world`` ranks on this machine, one thread each. ``root`` is emptied before.

    Rank 0's lines say where it is; the ranks' CPU clocks and memory are read from outside at that
    moment, for every contender in the same way.

    Raises:
        ContenderFailed: a rank failed, or all took longer than five minutes.
    """
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    command = entry.command(setting, root, world)
    found, [port] = Run(), free_ports(1)
    began = time.perf_counter()
    ranks = [_start(command, rank, world, port, root) for rank in range(world)]
    killer = threading.Timer(SECONDS, lambda: [rank.kill() for rank in ranks])
    killer.start()
    try:
        _follow(ranks, setting, found, began, root / "rank-0.out.log")
        codes = _reap(ranks, found)
    finally:
        killer.cancel()
        for rank in ranks:
            if rank.returncode is None:
                rank.kill()
                rank.wait()
            rank.stdout.close() if rank.stdout else None
    if any(codes) or len(found.losses) != sum(map(setting.logs, range(1, setting.steps + 1))):
        raise ContenderFailed(f"{entry.label}: {_last_words(root)} (exit codes {codes})")
    return found


def _start(command: list[str], rank: int, world: int, port: int, root: Path) -> subprocess.Popen:
    """Start a rank as torchrun does."""
    environment = (
        os.environ
        | rank_environment(rank, world, port)
        | {
            "PYTHONPATH": str(CHECKOUT),
            "TORCHELASTIC_RUN_ID": "benchmark",
            "DS_ACCELERATOR": "cpu",
            "HF_HUB_OFFLINE": "1",
            "PYTHONWARNINGS": "ignore",
        }
    )
    with (root / f"rank-{rank}.log").open("w") as log:
        out = subprocess.PIPE if rank == 0 else log
        return subprocess.Popen(
            command, cwd=CHECKOUT, env=environment, stdout=out, stderr=log, text=True
        )


def _follow(
    ranks: list[subprocess.Popen], setting: Setting, found: Run, began: float, log: Path
) -> None:
    """Read rank 0's lines to their end; lines other than losses go to the log."""
    first = setting.log_interval
    for line in ranks[0].stdout:
        now = time.perf_counter()
        if not (match := LINE.match(line)):
            with log.open("a") as others:
                others.write(line)
            continue
        cpu = sum(_cpu_seconds(rank.pid) for rank in ranks)
        step = int(match[1])
        found.losses[step] = float(match[2])
        if step == 1:
            found.first_seconds, found.first_cpu = now - began, cpu
        if step == first:
            middle = now, cpu
        elif step == setting.steps:
            steps = step - first
            found.step_seconds = (now - middle[0]) / steps
            found.step_cpu = (cpu - middle[1]) / steps
            found.training_bytes = max(_peak(rank.pid) for rank in ranks)


def _reap(ranks: list[subprocess.Popen], found: Run) -> list[int]:
    for rank in ranks:
        used = Used.of(rank.pid)
        rank.returncode = used.status
        found.peak_bytes = max(found.peak_bytes, used.peak_bytes)
    return [rank.returncode for rank in ranks]


def _cpu_seconds(pid: int) -> float:
    """The process's CPU clock, to the nanosecond: clock_getcpuclockid(3), as Linux numbers it."""
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        raise ContenderFailed(f"process {pid} has ended") from None


def _peak(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024


def _last_words(root: Path) -> str:
    for log in sorted(root.glob("rank-*.log")):
        lines = log.read_text(errors="replace").strip().splitlines()
        if lines:
            errors = [line for line in lines if "error" in line.lower()]
            return (errors or lines)[-1].strip()
    return "a rank ended, and wrote nothing"


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
        """Relative difference of a loss from that of DDP by hand."""
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
    for _, entry in turns(entries, rounds):
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
    """Leave out the speed of a contender that computes something else."""
    if entry.name not in compared.runs:
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
    found.data = {name: _data(compared, name) for name in compared.runs}
    found.data["failed"] = compared.failed
    return found


def _data(compared: Compared, name: str) -> dict[str, Any]:
    fields = (
        "step_cpu",
        "step_seconds",
        "first_seconds",
        "first_cpu",
        "training_bytes",
        "peak_bytes",
    )
    found: dict[str, Any] = {what: compared.figure(name, what).data() for what in fields}
    for what in ("step_cpu", "first_seconds", "first_cpu"):
        found[f"{what}_over_hand"] = compared.ratio(name, "hand", what).data()
    difference = compared.largest_difference(name)
    return found | {"losses": compared.runs[name][0].losses, "loss_difference": difference}


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
