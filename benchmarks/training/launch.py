"""One training in processes of its own: its losses, its time, the CPU and the memory it took."""

import os
import re
import shutil
import socket
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.training.entries import Entry
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
    found, port = Run(), _free_port()
    began = time.perf_counter()
    ranks = [_start(entry, command, rank, world, port, root) for rank in range(world)]
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


def _start(
    entry: Entry, command: list[str], rank: int, world: int, port: int, root: Path
) -> subprocess.Popen:
    """As torchrun starts a rank."""
    environment = os.environ | {
        "PYTHONPATH": str(entry.checkout),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "GROUP_RANK": "0",
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world),
        "TORCHELASTIC_RUN_ID": "benchmark",
        "DS_ACCELERATOR": "cpu",
        "HF_HUB_OFFLINE": "1",
        "PYTHONWARNINGS": "ignore",
    }
    with (root / f"rank-{rank}.log").open("w") as log:
        out = subprocess.PIPE if rank == 0 else log
        return subprocess.Popen(
            command, cwd=entry.checkout, env=environment, stdout=out, stderr=log, text=True
        )


def _follow(
    ranks: list[subprocess.Popen], setting: Setting, found: Run, began: float, log: Path
) -> None:
    """Read rank 0's lines to their end; what is no loss goes to the log."""
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
        _, status, usage = os.wait4(rank.pid, 0)
        rank.returncode = os.waitstatus_to_exitcode(status)
        found.peak_bytes = max(found.peak_bytes, usage.ru_maxrss * 1024)
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


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]
