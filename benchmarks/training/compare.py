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

from benchmarks.harness import CHECKOUT, Figure, Section, Target, iter_turns, track_steps
from benchmarks.measured_process import find_free_ports, make_rank_env
from benchmarks.training.entries import ENTRIES, ESSENTIAL, Entry
from benchmarks.training.setting import Setting

SECONDS = 300
LINE = re.compile(r"^step=(\d+) loss=(\S+)")


class ContenderFailed(Exception):
    """A rank ended with an error; the message has the last line that it wrote."""


@dataclass(slots=True)
class Run:
    """Losses and CPU of a training; CPU seconds are user and system time of all ranks' threads."""

    losses: dict[int, float] = field(default_factory=dict)
    step_cpu: float = 0.0
    """CPU seconds of a step, from the second logged step to the last."""


def run_training(entry: Entry, setting: Setting, world: int, root: Path) -> Run:
    """Train in ``world`` ranks on this machine, one thread each; empty ``root`` first.

    Whenever rank 0 prints a loss, the ranks' CPU clocks are read from outside, in the same way for
    every contender.

    Raises:
        ContenderFailed: a rank failed, or all took longer than five minutes.
    """
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    command = entry.make_command(setting, root, world)
    found, [port] = Run(), find_free_ports(1)
    ranks = [_start_rank(command, rank, world, port, root) for rank in range(world)]
    killer = threading.Timer(SECONDS, lambda: [rank.kill() for rank in ranks])
    killer.start()
    try:
        _record_losses(ranks, setting, found, root / "rank-0.out.log")
        codes = [rank.wait() for rank in ranks]
    finally:
        killer.cancel()
        for rank in ranks:
            rank.kill()
            rank.wait()
    if any(codes) or len(found.losses) != sum(map(setting.is_logged, range(1, setting.steps + 1))):
        raise ContenderFailed(f"{entry.label}: {_find_last_error(root)} (exit codes {codes})")
    return found


def _start_rank(
    command: list[str], rank: int, world: int, port: int, root: Path
) -> subprocess.Popen:
    """Start a rank as torchrun does."""
    own = {"PYTHONPATH": str(CHECKOUT), "TORCHELASTIC_RUN_ID": "benchmark", "HF_HUB_OFFLINE": "1",
           "DS_ACCELERATOR": "cpu", "PYTHONWARNINGS": "ignore"}  # fmt: skip
    environment = os.environ | make_rank_env(rank, world, port) | own
    with (root / f"rank-{rank}.log").open("w") as log:
        out = subprocess.PIPE if rank == 0 else log
        return subprocess.Popen(
            command, cwd=CHECKOUT, env=environment, stdout=out, stderr=log, text=True
        )


def _record_losses(ranks: list[subprocess.Popen], setting: Setting, found: Run, log: Path) -> None:
    """Record rank 0's losses, and the CPU of a step, until it ends; log its other lines."""
    assert ranks[0].stdout  # it was asked for
    first, begun = setting.log_interval, 0.0
    with ranks[0].stdout as lines, log.open("a") as others:
        for line in lines:
            if not (match := LINE.match(line)):
                others.write(line)
                continue
            cpu, step = sum(_read_cpu_seconds(rank.pid) for rank in ranks), int(match[1])
            found.losses[step] = float(match[2])
            if step == first:
                begun = cpu
            elif step == setting.steps:
                found.step_cpu = (cpu - begun) / (step - first)


def _read_cpu_seconds(pid: int) -> float:
    """Return a process's CPU seconds to the nanosecond: clock_getcpuclockid(3), as on Linux."""
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        raise ContenderFailed(f"process {pid} has ended") from None


def _find_last_error(root: Path) -> str:
    """Return the last error, or else the last line, that a rank has logged."""
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
    """The runs of all contenders with the same number of ranks."""

    world: int
    entries: list[Entry] = field(default_factory=list)
    """Participants, in the order of the table."""
    runs: dict[str, list[Run]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    """Contender → why it is not measured, or not to the end."""

    def compute_step_cpu(self, name: str) -> Figure:
        """Return the CPU seconds of a step, one value a round."""
        return Figure(tuple(one.step_cpu for one in self.runs[name]))

    def compute_ratio(self, name: str, other: str) -> Figure:
        return self.compute_step_cpu(name).divide_by(self.compute_step_cpu(other))

    def compute_largest_difference(self, name: str) -> float:
        """Return the largest relative difference of a loss from that of DDP by hand."""
        true = self.runs["hand"][0].losses
        runs = self.runs[name]
        return max(abs(one.losses[s] / loss - 1) for one in runs for s, loss in true.items())


def compare_contenders(
    setting: Setting, world: int, chosen: list[Entry], rounds: int, scratch: Path
) -> Compared:
    """Run all rounds with ``world`` ranks; each round begins with another contender.

    A contender that fails, or whose losses differ, is left out and reported.

    Raises:
        ContenderFailed: it was DDP by hand or Trainyard that failed.
    """
    compared = Compared(world, [entry for entry in chosen if world in entry.worlds])
    compared.failed = {e.name: why for e in compared.entries if (why := e.explain_absence())}
    entries = [entry for entry in compared.entries if entry.name not in compared.failed]
    each = iter_turns(entries, rounds)
    for _, entry in track_steps(f"{world} ranks", each, lambda turn: turn[1].label):
        if entry.name not in compared.failed:
            try:
                found = run_training(entry, setting, compared.world, scratch / "root")
                compared.runs.setdefault(entry.name, []).append(found)
            except ContenderFailed as error:
                _leave_out(compared, entry, str(error))
    for entry in [entry for entry in entries if entry.name in compared.runs]:
        difference, most = (
            compared.compute_largest_difference(entry.name),
            TOLERANCE[entry.precision],
        )
        if difference > most:  # the speed of what computes something else says nothing
            reason = f"its losses differ by {difference:.2g} from DDP by hand; at most {most:g}"
            _leave_out(compared, entry, f"{entry.label}: {reason} is accepted")
    return compared


def _leave_out(compared: Compared, entry: Entry, why: str) -> None:
    if entry.name in ESSENTIAL:
        raise ContenderFailed(why)
    compared.failed[entry.name] = why
    compared.runs.pop(entry.name, None)


def make_section(compared: Compared) -> Section:
    """Return the table of a comparison, with its targets."""
    world = compared.world
    found = Section(f"world_{world}", f"{world} process{'es' if world > 1 else ''}")
    found.columns = ("", "CPU a step ÷ hand", "CPU s a step", "loss off by")
    for entry in [entry for entry in compared.entries if entry.name in compared.runs]:
        ratio, figure = (
            compared.compute_ratio(entry.name, "hand"),
            compared.compute_step_cpu(entry.name),
        )
        difference = compared.compute_largest_difference(entry.name)
        cells = (entry.label, ratio.text(), figure.text(digits=3), f"{difference:.0e}")
        found.rows.append(cells)
        found.data[entry.name] = {"step_cpu": figure.data(), "over_hand": ratio.data(),
                                  "loss_difference": difference}  # fmt: skip
    found.notes = [f"{entry_name}: {why}" for entry_name, why in compared.failed.items()]
    found.data["failed"] = compared.failed
    found.targets = list(_iter_targets(compared))
    return found


def _iter_targets(compared: Compared) -> Iterator[Target]:
    """Yield the targets; a limit of 1 is raised by what DDP by hand differs from itself."""
    ratio, world = compared.compute_ratio, compared.world
    again = ratio("hand_again", "hand").rounds
    noise = Figure(tuple(abs(value - 1) for value in again)).median
    ranks = f"{world} process{'es' if world > 1 else ''}"
    yield Target(f"CPU a step, {ranks}: float32 ÷ by hand", ratio("ours", "hand"), "≤", 1 + noise)
    kinds = {"bf16": "bfloat16"} | {n: n for n in ("fsdp", "fsdp_bf16", "zero1", "zero3")}
    for kind, shown in kinds.items():
        if {f"ours_{kind}", f"hand_{kind}"} <= compared.runs.keys():
            split = ratio(f"ours_{kind}", f"hand_{kind}")
            yield Target(f"CPU a step, {ranks}: {shown} ÷ by hand", split, "≤", 1 + noise)
    for entry in [e for e in ENTRIES if e.framework and e.name in compared.runs]:
        what = f"CPU a step, {ranks}: default ÷ {entry.label}'s"
        yield Target(what, ratio("ours_bf16", entry.name), "≤", 0.55)
