"""Measures what this machine is capable of, for ``trainyard advise --machine probe.json``.

python -m training.probe [--ranks 2] [--threads 1] [--out probe.json]

As many ranks as a training would have here (one per GPU, else two) measure concurrently, since they
share cores and memory: products of several sizes and types, additions, all-reduces (NCCL, gloo).
On a processor, seconds are CPU seconds: a busy machine measures as fast as an
idle one, apart from shared caches and memory.
"""

import json
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import torch
import torch.distributed as dist
import typer

from training.cpu_cores import cores
from training.watching import device_speed
from trainyard.common import atomic_file

ROWS = {"cpu": (64, 512, 4096), "cuda": (1024, 4096, 16384)}
"""Rows of a product (tokens)."""

WIDTHS = {"cpu": (64, 256, 1024), "cuda": (1024, 4096, 8192)}
"""Inner width and columns of a product."""

SIZES = {"cpu": (2**20, 2**22, 2**24), "cuda": (2**22, 2**26, 2**30)}
"""Bytes of a tensor that is added to another."""

MESSAGES = {"cpu": (2**18, 2**22, 2**24), "cuda": (2**20, 2**26, 2**30)}
"""Bytes of an all-reduce's tensor."""

TYPES = (torch.float32, torch.bfloat16)
SECONDS = 0.02
"""Approximate duration of a block of calls that is measured together, in seconds."""

BLOCKS = 5


def main(
    ranks: Annotated[int, typer.Option(min=0, help="0: one per GPU, else two.")] = 0,
    threads: Annotated[int, typer.Option(min=0, help="Of a rank; 0: its share of cores.")] = 0,
    out: Annotated[Path | None, typer.Option(help="File to write instead of the terminal.")] = None,
) -> None:
    """Measure, and print JSON."""
    text = json.dumps(probed(ranks, threads), indent=1) + "\n"
    if out is None:
        sys.stdout.write(text)
    else:
        atomic_file.write(out, text.encode())


def probed(ranks: int = 0, threads: int = 0) -> dict[str, Any]:
    """Return what every rank measured, and the resulting device: the slowest rank's rates."""
    gpus = torch.cuda.device_count()
    world = ranks or gpus or 2
    each = threads or max(1, cores() // world)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with ProcessPoolExecutor(world, mp_context=get_context("spawn")) as processes:
        given = [(number, world, each, port) for number in range(world)]
        found = [*processes.map(_rank, *zip(*given, strict=True))]
    said = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "processor": processor(),
        "device": torch.cuda.get_device_name(0) if gpus else "cpu",
        "torch": torch.__version__,
        "ranks": world,
        "threads": each,
        "cores": cores(),
    }
    return said | {"gpu": summary(found, gpus), "measured": found}


def _rank(number: int, world: int, threads: int, port: int) -> dict[str, Any]:
    torch.set_num_threads(threads)
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", number) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    if not cuda:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("nccl" if cuda else "gloo", rank=number, world_size=world)
    try:
        return measured(device)
    finally:
        dist.destroy_process_group()


def measured(device: torch.device) -> dict[str, Any]:
    """Measure all rates of a rank; seconds per call, by its arguments.

    All-reduces are included if the process is in a group of several ranks.
    """
    found = {"matmul": [*_matmul(device)], "moved": [*_moved(device)]}
    if dist.is_initialized() and dist.get_world_size() > 1:
        found["all_reduce"] = [*_all_reduce(device)]
    return found


def _matmul(device: torch.device) -> Iterator[dict[str, Any]]:
    """Measure a linear layer's product and both of its backward pass; yield their mean."""
    kind = device.type
    for dtype in TYPES:
        for rows, inner, columns in product(ROWS[kind], WIDTHS[kind], WIDTHS[kind]):
            x, weight, y = (
                torch.randn(shape, device=device).to(dtype)
                for shape in ((rows, inner), (columns, inner), (rows, columns))
            )
            calls = (lambda: x @ weight.T, lambda: y @ weight, lambda: y.T @ x)  # noqa: B023
            mean = sum(seconds(device, call) for call in calls) / len(calls)
            sizes = {"rows": rows, "inner": inner, "columns": columns}
            yield {"dtype": str(dtype).removeprefix("torch."), **sizes, "seconds": mean}


def _moved(device: torch.device) -> Iterator[dict[str, Any]]:
    """Measure adding one tensor to another: three times its bytes are read and written."""
    for size in SIZES[device.type]:
        a, b = (torch.randn(size // 4, device=device) for _ in range(2))
        yield {"bytes": 3 * size, "seconds": seconds(device, lambda: a + b)}  # noqa: B023


def _all_reduce(device: torch.device) -> Iterator[dict[str, Any]]:
    """Measure a rank's all-reduces: on a CPU the seconds of computing, not of waiting."""
    for size in MESSAGES[device.type]:
        whole = torch.zeros(size // 4, device=device)
        dist.barrier()
        if device.type == "cuda":
            took = seconds(device, lambda: dist.all_reduce(whole))  # noqa: B023
        else:  # every rank makes as many calls
            used(lambda: dist.all_reduce(whole), 2)  # noqa: B023
            took = min(used(lambda: dist.all_reduce(whole), 8) / 8 for _ in range(BLOCKS))  # noqa: B023
        yield {"bytes": size, "seconds": took}


def seconds(device: torch.device, call: Callable[[], object]) -> float:
    """Return the seconds of one call: the median of some blocks of calls, after a warm-up; on a GPU
    by its own events, on a CPU by the CPU time used.
    """
    if device.type == "cuda":

        def called() -> None:
            call()

        return device_speed.timed(device, called, BLOCKS * 4)
    used(call, 2)
    times = max(1, min(10_000, round(SECONDS / max(used(call, 1), 1e-7))))
    return median(used(call, times) / times for _ in range(BLOCKS))


def used(call: Callable[[], object], times: int) -> float:
    """Return the CPU seconds of ``times`` calls, over the process's computing threads."""
    began = time.process_time()
    for _ in range(times):
        call()
    return (time.process_time() - began) / torch.get_num_threads()


def summary(found: Sequence[Mapping[str, Any]], gpus: int) -> dict[str, Any]:
    """Return the device, with the fields of ``trainyard.foresight.gpus.Gpu``, at the slowest rank's
    rates, since a training waits for that rank.

    ``bf16_tflops`` is the best rate of any product in bfloat16. The device's own peak is not
    known, so the rate that products reach counts as the peak.
    """
    best = min(
        max(rate(row) for row in one["matmul"] if row["dtype"] == "bfloat16") for one in found
    )
    largest = [max(one["moved"], key=lambda row: row["bytes"]) for one in found]
    moved = min(row["bytes"] / row["seconds"] for row in largest)
    return {
        "name": "here",
        "accelerator": "",
        "driver": "",
        "bf16_tflops": best / 1e12,
        "fp8_tflops": 0.0,
        "matmul_tflops": best / 1e12,
        "matmul_fp8_tflops": 0.0,
        "memory_gib": _memory(gpus, len(found)),
        "bandwidth_tb_s": moved / 1e12,
        "link_gb_s": _link(found) / 1e9,
        "watts": 0.0,
        "node_gbps": 0.0,  # to other machines: not measured here
        "gpus_per_node": len(found),
        "guessed": ["fp8_tflops", "watts", "node_gbps"],
    }


def rate(row: Mapping[str, Any]) -> float:
    """Return the operations per second of a measured product."""
    return 2 * row["rows"] * row["inner"] * row["columns"] / row["seconds"]


def _link(found: Sequence[Mapping[str, Any]]) -> float:
    """Return the bytes per second leaving a rank in the largest ring all-reduce; 0 for one rank."""
    n, rows = len(found), [row for one in found for row in one.get("all_reduce", ())]
    if not rows:
        return 0.0
    size = max(row["bytes"] for row in rows)
    slowest = max(row["seconds"] for row in rows if row["bytes"] == size)
    return 2 * (n - 1) / n * size / slowest


def _memory(gpus: int, ranks: int) -> float:
    """Return the GiB of a rank: its GPU's, or its share of the machine's."""
    if gpus:
        return float(torch.cuda.get_device_properties(0).total_memory / 2**30)
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return pages * size / ranks / 2**30


def processor() -> str:
    """Return the CPU's name, and whether it multiplies bfloat16 natively (AMX, AVX-512)."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:  # not Linux
        return "unknown"
    name = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    known = [flag for flag in ("amx_bf16", "avx512_bf16") if re.search(rf"\b{flag}\b", text)]
    return f"{name[1] if name else 'unknown'} ({', '.join(known) or 'no bfloat16 products'})"


if __name__ == "__main__":
    typer.run(main)
