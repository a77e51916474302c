"""Run processes (gloo) that save and load checkpoints, and measure what each act costs them."""

import ctypes
import json
import multiprocessing
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
from torch.distributed import TCPStore

from benchmarks.measured_process import make_rank_env

SECONDS = 1800


@dataclass(frozen=True)
class Act:
    """Saves and loads that every rank performs.

    Attributes:
        model: bytes of the state.
        weight: bytes of a weight.
        saves: number of saves in succession; the later ones find everything agreed and allocated.
        loads: whether the state is read back and compared.
        removes: whether the folder is deleted at the end.
    """

    contender: str
    folder: Path
    model: float
    weight: float
    saves: int = 0
    loads: bool = False
    removes: bool = False


def run_acts(scratch: Path, world: int, acts: list[Act]) -> list[list[dict[str, Any]]]:
    """Run the acts on ``world`` ranks; return the results as [act][rank] → dict.

    Each has ``saves``, ``load``, ``shard``, ``right`` and on rank 0 ``metadata``.

    Raises:
        RuntimeError: a rank failed; its traceback is on the standard error.
    """
    store = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.checkpoints.contenders", "torch.distributed.tensor",
                                    "torch.distributed.checkpoint", "psutil"])  # fmt: skip
    files = [scratch / f"rank-{rank}.json" for rank in range(world)]
    processes = [
        context.Process(target=_run_rank, args=(file, rank, world, store.port, acts), daemon=False)
        for rank, file in enumerate(files)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(SECONDS)
    codes = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
    if any(codes):
        raise RuntimeError(f"the ranks ended with {codes}")
    every = [json.loads(file.read_text()) for file in files]
    return [list(ranks) for ranks in zip(*every, strict=True)]


def _run_rank(file: Path, rank: int, world: int, port: int, acts: list[Act]) -> None:
    """Perform the acts as one rank; write the results to ``file`` as JSON."""
    os.environ |= make_rank_env(rank, world, port) | {"TORCHELASTIC_USE_AGENT_STORE": "True"}
    import torch
    import torch.distributed as dist

    from training.strategies.ranks import Ranks, connect_store

    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=connect_store(SECONDS), rank=rank, world_size=world,
                            timeout=timedelta(seconds=SECONDS))  # fmt: skip
    try:
        ranks = Ranks(rank, rank, world, torch.device("cpu"))
        file.write_text(json.dumps([_perform_act(act, ranks) for act in acts]))
    finally:
        dist.destroy_process_group()


def _perform_act(act: Act, ranks: Any) -> dict[str, Any]:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    from benchmarks.checkpoints.contenders import CONTENDERS, Size, TrainingState

    mesh = init_device_mesh("cpu", (ranks.world,))
    size = Size.from_byte_counts(act.model, act.weight, 8)
    contender = CONTENDERS[act.contender](act.folder, ranks)
    found: dict[str, Any] = {"model": size.bytes, "saves": []}
    if act.saves:
        state = TrainingState(size, mesh, filled=True)
        found["shard"] = state.shard
        for step in range(1, act.saves + 1):
            dist.barrier()
            found["saves"].append(_measure_save(contender, step, state.tensors))
    contender.close()
    if act.loads:
        contender = CONTENDERS[act.contender](act.folder, ranks)
        state = TrainingState(size, mesh, filled=False)
        dist.barrier()
        found["load"] = measure_cost(lambda: contender.load(state.tensors))
        found |= {"shard": state.shard, "right": state.is_right}
        contender.close()
    dist.barrier()
    if ranks.rank == 0:
        found["metadata"] = _count_metadata_bytes(act.folder)
        if act.removes:
            shutil.rmtree(act.folder)
    return found


def _measure_save(contender: Any, step: int, tensors: Any) -> dict[str, float]:
    waits: list = []
    return measure_cost(
        lambda: waits.append(contender.save(step, tensors)),
        lambda: waits[0](),  # noqa: PLW0108 - it is there only after the first
    )


def _count_metadata_bytes(folder: Path) -> int:
    """Return the newest checkpoint's bytes beside the tensors: marker and hashes, or .metadata."""
    newest = max(path for path in folder.rglob("*") if path.is_dir() or path == folder)
    return sum(path.stat().st_size for path in newest.iterdir()
               if path.suffix not in (".safetensors", ".distcp"))  # fmt: skip


OWN = Path("/proc/self")


def measure_cost(act: Callable[[], object], then: Callable[[], object] | None = None) -> dict:
    """Call ``act`` and then ``then``, if given; return their cost.

    Returns:
        ``seconds`` and ``cpu`` (seconds of a core) of both; ``stall`` and ``stall_cpu`` of ``act``
        alone, in the calling thread; ``peak``: by how many bytes memory grew at most; ``read``:
        bytes that read(2) returned to any thread (rchar of proc(5): from disk or page cache, but
        not from recv(2)).
    """
    ctypes.CDLL(None).malloc_trim(0)  # else what others freed would hide what is taken now
    (OWN / "clear_refs").write_text("5")  # proc(5): resets the peak, VmHWM
    read, memory, cpu = _count_read_bytes(), _read_memory_bytes("VmRSS"), _measure_cpu_seconds()
    began, thread = time.perf_counter(), time.thread_time()
    act()
    found = {"stall": time.perf_counter() - began, "stall_cpu": time.thread_time() - thread}
    if then is not None:
        then()
    found |= {"seconds": time.perf_counter() - began, "cpu": _measure_cpu_seconds() - cpu}
    peak, read = _read_memory_bytes("VmHWM") - memory, _count_read_bytes() - read
    return found | {"peak": peak, "read": read}


def _count_read_bytes() -> int:
    counters = dict(line.split(": ") for line in (OWN / "io").read_text().splitlines())
    return int(counters["rchar"])


def _read_memory_bytes(name: str) -> int:
    """Return a field of /proc/self/status, such as ``VmRSS``, in bytes."""
    lines = (OWN / "status").read_text().splitlines()
    line = next(line for line in lines if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


def _measure_cpu_seconds() -> float:
    """Return the CPU seconds of this process, its living children, and those that have ended."""
    times = os.times()
    living = [child.cpu_times() for child in psutil.Process().children(recursive=True)]
    ended = times.children_user + times.children_system
    return time.process_time() + ended + sum(one.user + one.system for one in living)
