"""Train the same model with all contenders, in turns, and compare the CPU of a step."""

import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.harness import CHECKOUT, Figure, Section, Target, steps_of, turns
from benchmarks.measured_process import free_ports, rank_environment
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
    step_cpu: float = 0.0
    """CPU seconds of a step, from the second logged step to the last."""


def run(entry: Entry, setting: Setting, world: int, root: Path) -> Run:
    """Train in ``world`` ranks on this machine, one thread each. ``root`` is emptied before.

    Rank 0's lines say where it is; the ranks' CPU clocks are read from outside at that moment, for
    every contender in the same way.

    Raises:
        ContenderFailed: a rank failed, or all took longer than five minutes.
    """
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    command = entry.command(setting, root, world)
    found, [port] = Run(), free_ports(1)
    ranks = [_start(command, rank, world, port, root) for rank in range(world)]
    killer = threading.Timer(SECONDS, lambda: [rank.kill() for rank in ranks])
    killer.start()
    try:
        _follow(ranks, setting, found, root / "rank-0.out.log")
        codes = [rank.wait() for rank in ranks]
    finally:
        killer.cancel()
        for rank in ranks:
            rank.kill()
            rank.wait()
    if any(codes) or len(found.losses) != sum(map(setting.logs, range(1, setting.steps + 1))):
        raise ContenderFailed(f"{entry.label}: {_last_words(root)} (exit codes {codes})")
    return found


def _start(command: list[str], rank: int, world: int, port: int, root: Path) -> subprocess.Popen:
    """Start a rank as torchrun does."""
    own = {"PYTHONPATH": str(CHECKOUT), "TORCHELASTIC_RUN_ID": "benchmark", "HF_HUB_OFFLINE": "1",
           "DS_ACCELERATOR": "cpu", "PYTHONWARNINGS": "ignore"}  # fmt: skip
    environment = os.environ | rank_environment(rank, world, port) | own
    with (root / f"rank-{rank}.log").open("w") as log:
        out = subprocess.PIPE if rank == 0 else log
        return subprocess.Popen(
            command, cwd=CHECKOUT, env=environment, stdout=out, stderr=log, text=True
        )


def _follow(ranks: list[subprocess.Popen], setting: Setting, found: Run, log: Path) -> None:
    """Read rank 0's lines to their end; lines other than losses go to the log."""
    assert ranks[0].stdout  # it was asked for
    first, begun = setting.log_interval, 0.0
    with ranks[0].stdout as lines, log.open("a") as others:
        for line in lines:
            if not (match := LINE.match(line)):
                others.write(line)
                continue
            cpu, step = sum(_cpu_seconds(rank.pid) for rank in ranks), int(match[1])
            found.losses[step] = float(match[2])
            if step == first:
                begun = cpu
            elif step == setting.steps:
                found.step_cpu = (cpu - begun) / (step - first)


def _cpu_seconds(pid: int) -> float:
    """The process's CPU clock, to the nanosecond: clock_getcpuclockid(3), as Linux numbers it."""
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        raise ContenderFailed(f"process {pid} has ended") from None


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

    def figure(self, name: str) -> Figure:
        """CPU of a step, one value a round."""
        return Figure(tuple(one.step_cpu for one in self.runs[name]))

    def ratio(self, name: str, other: str) -> Figure:
        return self.figure(name).divide_by(self.figure(other))

    def largest_difference(self, name: str) -> float:
        """Relative difference of a loss from that of DDP by hand."""
        true = self.runs["hand"][0].losses
        runs = self.runs[name]
        return max(abs(one.losses[s] / loss - 1) for one in runs for s, loss in true.items())


def compare(
    setting: Setting, world: int, chosen: list[Entry], rounds: int, scratch: Path
) -> Compared:
    """All rounds with so many ranks; who begins changes from round to round.

    A contender that fails, or whose losses are others, is left out and reported.

    Raises:
        ContenderFailed: it was DDP by hand or Trainyard that failed.
    """
    compared = Compared(world, [entry for entry in chosen if world in entry.worlds])
    compared.failed = {e.name: why for e in compared.entries if (why := e.missing())}
    entries = [entry for entry in compared.entries if entry.name not in compared.failed]
    for _, entry in steps_of(f"{world} ranks", turns(entries, rounds), lambda it: it[1].label):
        if entry.name not in compared.failed:
            try:
                found = run(entry, setting, compared.world, scratch / "root")
                compared.runs.setdefault(entry.name, []).append(found)
            except ContenderFailed as error:
                _leave_out(compared, entry, str(error))
    for entry in [entry for entry in entries if entry.name in compared.runs]:
        difference, most = compared.largest_difference(entry.name), TOLERANCE[entry.precision]
        if difference > most:  # the speed of what computes something else says nothing
            told = f"its losses differ by {difference:.2g} from DDP by hand; at most {most:g}"
            _leave_out(compared, entry, f"{entry.label}: {told} is accepted")
    return compared


def _leave_out(compared: Compared, entry: Entry, why: str) -> None:
    if entry.name in ESSENTIAL:
        raise ContenderFailed(why)
    compared.failed[entry.name] = why
    compared.runs.pop(entry.name, None)


def section(compared: Compared) -> Section:
    """The table, and what is demanded."""
    world = compared.world
    found = Section(f"world_{world}", f"{world} process{'es' if world > 1 else ''}")
    found.columns = ("", "CPU a step ÷ hand", "CPU s a step", "loss off by")
    for entry in [entry for entry in compared.entries if entry.name in compared.runs]:
        ratio, figure = compared.ratio(entry.name, "hand"), compared.figure(entry.name)
        difference = compared.largest_difference(entry.name)
        cells = (entry.label, ratio.text(), figure.text(digits=3), f"{difference:.0e}")
        found.rows.append(cells)
        found.data[entry.name] = {"step_cpu": figure.data(), "over_hand": ratio.data(),
                                  "loss_difference": difference}  # fmt: skip
    found.notes = [f"{entry_name}: {why}" for entry_name, why in compared.failed.items()]
    found.data["failed"] = compared.failed
    found.targets = list(_targets(compared))
    return found


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
    for entry in [e for e in ENTRIES if e.framework and e.name in compared.runs]:
        what = f"CPU a step, {ranks}: default ÷ {entry.label}'s"
        yield Target(what, ratio("ours_bf16", entry.name), "≤", 0.55)
