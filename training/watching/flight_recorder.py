"""torch's flight recorder: each rank's last collectives, kept where they survive a failed job.

    attempt-<a>-rank-<n>.json      to read
    attempt-<a>-trace-rank-<n>     NCCL's, for ``torchfrtrace``, which compares the ranks

The watchdog writes both when another rank is lost. In a hang inside NCCL no Python code runs:
torch's own monitor then writes the second one on every rank, and ends the process.

The variables' names are those of torch 2.13 (FlightRecorder.hpp, its library's strings) and of
releases before ``FlightRecorderDetail.hpp``, whose FlightRecorder.cpp has the older names. In those
releases the monitor writes only if ``TORCH_NCCL_DUMP_ON_TIMEOUT`` is set (ProcessGroupNCCL.cpp).
"""

import json
import os
import sys
import threading
import time
from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass
from linecache import getline
from operator import itemgetter
from pathlib import Path
from traceback import walk_stack, walk_tb
from types import FrameType

import torch
from torch._C import _distributed_c10d as c10d

from training.in_place_restart import Attempt
from trainyard.common import atomic_file

COLLECTIVES = 2000
"""Number of collectives that the recorder keeps per rank: torch's default, which covers several
steps of a model of 80 blocks.
"""

BUFFER_VARIABLES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
PLACE = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
"""Current name of the variable, and its name before torch 2.9; newer versions warn of the old
one.
"""

AT_TIMEOUT = "TORCH_NCCL_DUMP_ON_TIMEOUT"
RENAMED_SINCE = (2, 10)
"""First release known to have only the new names; 2.9 was not checked."""


def record_collectives(
    folder: Path | None = None, environment: MutableMapping[str, str] = os.environ
) -> None:
    """Make torch record collectives; call it before the ranks meet.

    Variables that are already set in the job's environment are left unchanged.

    Args:
        folder: where torch writes the record if NCCL hangs; None for nowhere.
    """
    _set_variable(environment, BUFFER_VARIABLES, str(COLLECTIVES))
    environment.setdefault(AT_TIMEOUT, "1")
    # Gloo has no monitor that would write a record.
    if folder is not None and torch.cuda.is_available():
        folder.mkdir(parents=True, exist_ok=True)  # torch does not create it
        _set_variable(environment, PLACE, str(folder / build_trace_prefix()))


def build_trace_prefix() -> str:
    """Return the prefix of a trace's file name in this attempt; the rank follows."""
    return f"attempt-{Attempt.from_environment().number}-trace-rank-"


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """What a rank is doing at one moment."""

    waits: bool
    """True if it has entered a collective, a send or a receive that has not ended."""
    location: str
    """The collective that it is in, followed by the innermost lines of its main thread outside
    of torch.
    """
    seconds: float = 0.0
    """Age of the oldest collective that has not ended; 0 if torch records none."""


def find_whereabouts() -> Whereabouts:
    """Return what the main thread of this rank is doing; call it from another thread.

    The recorder knows the collectives, including those that run at the same time as the main
    thread; gloo's sends and receives are only on the stack.
    """
    frames = [*walk_stack(sys._current_frames()[threading.main_thread().ident or 0])]
    content = _read_record()
    # Before the first collective torch's recorder has no entries.
    entries = [] if content is None else json.loads(content).get("entries", [])
    running = [e for e in entries if not e["retired"] and e["state"] != "completed"]
    if not running:
        call = _describe_call(frames)
        return Whereabouts(bool(call), f"{call} {_format_frames(frames)}".strip())
    oldest = min(running, key=itemgetter("time_created_ns"))
    name = oldest["profiling_name"].partition(":")[2]  # e.g. gloo:all_reduce
    operation = (
        f"in {name} {oldest['collective_seq_id']} of group {' '.join(oldest['process_group'])},"
    )
    seconds = max(0.0, time.time() - oldest["time_created_ns"] / 1e9)
    return Whereabouts(True, f"{operation} {_format_frames(frames)}", seconds)


def locate_failure(error: BaseException) -> Whereabouts:
    """Return where this rank waited until a collective failed with ``error``."""
    frames = [*walk_tb(error.__traceback__)][::-1]
    return Whereabouts(True, f"{_describe_call(frames)} {_format_frames(frames)}".strip())


TORCH = Path(torch.__file__).parent
SHOWN_LINES = 2
"""Number of a stack's lines in a message; the log has the whole stack."""


def _describe_call(frames: Iterable[tuple[FrameType, int]]) -> str:
    """Return ``in recv,`` if the innermost function is torch.distributed's; otherwise "".

    Args:
        frames: frames and line numbers, innermost first.
    """
    for frame, _ in frames:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(TORCH / "distributed"):
            return f"in {frame.f_code.co_name},"
        if not path.is_relative_to(TORCH) or path.is_relative_to(TORCH / "nn"):
            return ""  # the model is computing
    return ""


def _format_frames(frames: Iterable[tuple[FrameType, int]]) -> str:
    """Return ``at loop.py:181 in _units_of, of loop.py:150 in _train_step: code``."""
    own_frames = [
        (Path(frame.f_code.co_filename), line, frame.f_code.co_name)
        for frame, line in frames
        if not Path(frame.f_code.co_filename).is_relative_to(TORCH)
    ][:SHOWN_LINES]
    descriptions = [
        f"{'/'.join(path.parts[-2:])}:{line} in {name}" for path, line, name in own_frames
    ]
    code = "".join(getline(str(path), line).strip() for path, line, _ in own_frames[:1])
    return f"at {', of '.join(descriptions)}: {code}"


def _read_record() -> bytes | None:
    """Return the recorder's content, or None if torch has no recorder.

    torch has a recorder for NCCL and one for gloo, whose collectives are not recorded before 2.8.
    """
    name = f"{_find_record_function()}_json"
    if not hasattr(c10d, name):
        return None
    content = getattr(c10d, name)()
    return content.encode() if isinstance(content, str) else content


def _find_record_function() -> str:
    """Return the name of torch's function that returns the record: NCCL's or the general one."""
    nccl = torch.cuda.is_available() and hasattr(c10d, "_dump_nccl_trace")
    return "_dump_nccl_trace" if nccl else "_dump_fr_trace"


def dump_collectives(folder: Path, rank: int) -> Path | None:
    """Write this rank's last collectives, with NCCL also as a trace; return the readable file,
    or None if torch has no recorder.
    """
    content = _read_record()
    if content is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    readable = folder / f"attempt-{Attempt.from_environment().number}-rank-{rank}.json"
    atomic_file.write_file(readable, content)
    trace = folder / f"{build_trace_prefix()}{rank}"
    # torchfrtrace cannot read the trace of torch 2.13's gloo, which does not say which ranks a
    # group has.
    # If it exists, the monitor has written it.
    if _find_record_function() == "_dump_nccl_trace" and not trace.exists():
        atomic_file.write_file(trace, getattr(c10d, _find_record_function())())
    return readable


def _set_variable(
    environment: MutableMapping[str, str], names: tuple[str, str], value: str
) -> None:
    """Set a variable under the names that this torch reads, unless one of them is set."""
    if not any(name in environment for name in names):
        release = tuple(int(part) for part in torch.__version__.split(".")[:2])
        for name in names[: 1 if release >= RENAMED_SINCE else 2]:
            environment[name] = value
