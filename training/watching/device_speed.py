"""Measures the speed of a GPU and its links. Not run on a GPU so far; on a CPU in the tests."""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist
from torch import Tensor

SIZE = 8192
"""Rows and columns of the matrices: 1.1e12 operations per product, 134 MB per 16-bit matrix."""

PRODUCTS = 60
PAYLOAD = 256 * 10**6
"""Bytes of an all-reduce: enough to fill the links, and a second over slow ones."""

EXCHANGES = 8
WARM = 3
"""Runs before the timed ones, in which kernels are loaded, connections made, clocks raised."""


def precision(device: torch.device) -> torch.dtype:
    """Return bfloat16; float16 on GPUs before Ampere, which only emulate bfloat16."""
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < (8, 0):
        return torch.float16
    return torch.bfloat16


def matmul(device: torch.device, size: int = SIZE, times: int = PRODUCTS) -> tuple[float, int]:
    """Return (operations per second, sum of the product's bits), for the same numbers on each rank.

    Numbers are random, since a GPU is faster with zeros or small integers: switching bits takes
    power.
    """
    numbers = torch.Generator(device).manual_seed(0)  # not the training's
    kind = precision(device)
    a, b = (torch.randn(size, size, generator=numbers, device=device, dtype=kind) for _ in range(2))
    out = torch.empty_like(a)
    seconds = timed(device, lambda: torch.mm(a, b, out=out), times)
    return 2 * size**3 / seconds, int(out.view(torch.int16).sum(dtype=torch.int64))


def all_reduce(
    device: torch.device, group: dist.ProcessGroup | None = None, payload: int = PAYLOAD
) -> float:
    """Return a group's all-reduce bus bandwidth in bytes per second, as nccl-tests defines it."""
    n = dist.get_world_size(group)
    values = torch.zeros(payload // 2, dtype=precision(device), device=device)
    seconds = timed(device, lambda: dist.all_reduce(values, group=group), EXCHANGES)
    return payload / seconds * 2 * (n - 1) / n


def timed(device: torch.device, call: Callable[[], Tensor | None], times: int) -> float:
    """Return the median seconds of a call; on CUDA measured between events of the current stream,
    which waits for NCCL's after a collective.
    """
    for _ in range(WARM):
        call()
    if device.type != "cuda":
        return median(_seconds(call) for _ in range(times))
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(times + 1)]
    torch.cuda.synchronize(device)
    marks[0].record()
    for mark in marks[1:]:
        call()
        mark.record()
    torch.cuda.synchronize(device)
    pairs = zip(marks, marks[1:], strict=False)
    return median(begin.elapsed_time(end) / 1000 for begin, end in pairs)


def _seconds(call: Callable[[], Tensor | None]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


# If anything is missing, NCCL silently uses TCP, and a training is several times slower.
# What AWS sets, and when: sagemaker/train/container_drivers (SDK 3.27) torchrun_driver.py and
# mpi_utils.py. What is still needed: aws-samples/awsome-distributed-training, efa-cheatsheet.md;
# libfabric's fi_efa(7); NCCL's user guide, env.html.


FAMILIES = ("ml.p3dn.", "ml.p4d", "ml.p5", "ml.p6")
"""Prefixes of the instance types that have EFA, whatever their size."""

PLUGINS = ("/opt/amazon/ofi-nccl", "/opt/aws-ofi-nccl")
"""Folders in which EFA's installer and AWS's images put aws-ofi-nccl."""

UNSET = "take it out of the job's environment"


def instance_type(environment: Mapping[str, str] = os.environ) -> str:
    """Return the instance type, like ``ml.p4d.24xlarge``, from SageMaker's drivers or its resource
    configuration; empty if unknown.
    """
    if known := environment.get("SM_CURRENT_INSTANCE_TYPE"):
        return known
    return json.loads(environment.get("SM_RESOURCE_CONFIG") or "{}").get(
        "current_instance_type", ""
    )


def findings(
    instance: str, environment: Mapping[str, str] = os.environ, root: Path = Path("/")
) -> Iterator[str]:
    """Yield what keeps the traffic between machines of this type off EFA, each with its fix."""
    if not instance.startswith(FAMILIES):
        return
    devices = root / "sys/class/infiniband"
    if not devices.is_dir() or not any(devices.iterdir()):
        yield (
            f"EFA is off: {instance} has it, but /sys/class/infiniband lists no device here; on "
            "Kubernetes and HyperPod ask for vpc.amazonaws.com/efa, on SageMaker restart the job"
        )
    if (network := environment.get("NCCL_NET", "")).lower() == "socket":
        yield f"EFA is off: NCCL_NET is {network}; {UNSET}"
    provider = environment.get("FI_PROVIDER", "efa")
    if ("efa" in provider.lstrip("^").split(",")) == provider.startswith("^"):
        yield f"EFA is off: FI_PROVIDER is {provider}; set FI_PROVIDER=efa in the job's environment"
    yield from _plugin(environment, root)


def _plugin(environment: Mapping[str, str], root: Path) -> Iterator[str]:
    """Yield what keeps the loader from finding NCCL's EFA plugin."""
    wanted = environment.get("NCCL_NET_PLUGIN", "")
    if wanted.startswith("/"):
        return  # a file that NCCL opens by its path
    if wanted == "none":
        yield f"EFA is off: NCCL_NET_PLUGIN is none; {UNSET}"
        return
    name = f"libnccl-net-{wanted}.so" if wanted else "libnccl-net.so"
    if any((root / folder.lstrip("/") / name).is_file() for folder in _searched(environment, root)):
        return
    unused = [path for place in PLUGINS for path in (root / place.lstrip("/")).rglob(name)]
    if unused:
        folder = f"/{unused[0].parent.relative_to(root)}"
        yield (
            f"EFA is off: {name} of aws-ofi-nccl is in {folder}, where the loader does not look; "
            f"put {folder} on LD_LIBRARY_PATH"
        )
    else:
        yield f"EFA is off: the image has no {name} (aws-ofi-nccl); use one of AWS's images"


def _searched(environment: Mapping[str, str], root: Path) -> list[str]:
    """Return the loader's search folders, as in ld.so(8)."""
    listed = environment.get("LD_LIBRARY_PATH", "").split(":")
    for file in sorted(root.glob("etc/ld.so.conf.d/*.conf")):
        listed += file.read_text(encoding="utf-8", errors="replace").split()
    usual = ["/lib", "/usr/lib", "/usr/local/lib", "/lib64", "/usr/lib64"]
    usual += [f"{folder}/x86_64-linux-gnu" for folder in usual[:2]]
    return [folder for folder in (*listed, *usual) if folder.startswith("/")]
