"""torch's flight recorder: each rank's last collectives, kept where they survive a failed job.

    attempt-<a>-rank-<n>.json      to read
    attempt-<a>-trace-rank-<n>     NCCL's, for ``torchfrtrace``, which compares the ranks

The watchdog writes both when another rank is lost. In a hang inside NCCL no Python code runs:
torch's own monitor writes the second one on every rank, and ends the process.

The names are those of torch 2.13 (FlightRecorder.hpp, its library's strings) and of releases before
``FlightRecorderDetail.hpp``, whose FlightRecorder.cpp has the older ones; there the monitor writes
only if ``TORCH_NCCL_DUMP_ON_TIMEOUT`` is set (ProcessGroupNCCL.cpp).
"""

import os
from collections.abc import MutableMapping
from pathlib import Path

import torch
from torch._C import _distributed_c10d as c10d

from training.in_place_restart import Attempt
from trainyard.common import atomic_file

COLLECTIVES = 2000
"""Collectives that the recorder keeps per rank: torch's default, several steps of a model of 80
blocks."""

KEPT = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
PLACE = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
"""Names of the variable now and before torch 2.9; newer versions warn of the old name."""

AT_TIMEOUT = "TORCH_NCCL_DUMP_ON_TIMEOUT"
RENAMED = (2, 10)
"""First release known to have only the new names: 2.9 was not checked."""


def record(folder: Path | None = None, environment: MutableMapping[str, str] = os.environ) -> None:
    """Ask torch to record, before the ranks meet; with a folder, to write there at a hang.

    Variables that the job's environment sets already are left unchanged.
    """
    _ask(environment, KEPT, str(COLLECTIVES))
    environment.setdefault(AT_TIMEOUT, "1")
    if folder is not None and torch.cuda.is_available():  # gloo has no monitor that would write
        folder.mkdir(parents=True, exist_ok=True)  # torch does not create it
        _ask(environment, PLACE, str(folder / trace_prefix()))


def trace_prefix() -> str:
    """Return the prefix of a trace's name in this attempt: the rank follows."""
    return f"attempt-{Attempt.read().number}-trace-rank-"


def dump(folder: Path, rank: int) -> Path | None:
    """Write this rank's last collectives; return the file to read, or None if torch keeps none.

    torch has a recorder for NCCL and one for gloo, whose collectives are not recorded before 2.8.
    """
    nccl = torch.cuda.is_available() and hasattr(c10d, "_dump_nccl_trace")
    name = "_dump_nccl_trace" if nccl else "_dump_fr_trace"
    if not hasattr(c10d, name):
        return None
    folder.mkdir(parents=True, exist_ok=True)
    readable = folder / f"attempt-{Attempt.read().number}-rank-{rank}.json"
    said = getattr(c10d, f"{name}_json")()
    atomic_file.write(readable, said.encode() if isinstance(said, str) else said)
    trace = folder / f"{trace_prefix()}{rank}"
    # torch 2.13's gloo does not say which ranks a group has, and torchfrtrace cannot read that.
    if nccl and not trace.exists():  # otherwise the monitor has written it already
        atomic_file.write(trace, getattr(c10d, name)())
    return readable


def _ask(environment: MutableMapping[str, str], names: tuple[str, str], value: str) -> None:
    if not any(name in environment for name in names):
        release = tuple(int(part) for part in torch.__version__.split(".")[:2])
        for name in names[: 1 if release >= RENAMED else 2]:
            environment[name] = value
