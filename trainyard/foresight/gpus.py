"""The devices that a training can be predicted on, and their capabilities.

``gpus.csv`` has the bfloat16 (float16 before Ampere) and fp8 peaks without sparsity and the memory
bandwidths of NVIDIA's data sheets, as stas00/ml-engineering's accelerator table lists them
(2026-08). ``memory_gib`` is the part of the label's memory that PyTorch finds: 79.1 on p5, 39.39 on
p4d, 22.18 on g5, from error messages of real trainings; where it is scaled from those, column
``guessed`` says so.

``matmul_tflops`` are the best rates that products of large matrices were measured to reach (the
same book's MAMF, 2026-08); the guessed ones are the shares of the peak that H100 reaches: 80 %
in 16 bits, 71 % in fp8. A device that is limited to less power than its siblings (H100 of 500 W)
reaches their rate times the ratio of the limits: both of them are bound by it.
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from trainyard.instance_types import Machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A device, and the node that it usually comes in."""

    name: str
    """Label's memory included, as in ``H100-80``, and the power limit where it is unusual."""

    accelerator: str
    """Name in ``trainyard/instance_types.csv``; empty if no instance type has the device."""

    bf16_tflops: float
    """Peak of dense products, in 10¹² operations per second."""

    fp8_tflops: float
    """Peak of dense products in fp8, in 10¹² operations per second; 0 for a device without fp8."""

    matmul_tflops: float
    """Best rate that products of large matrices reach of ``bf16_tflops``."""

    matmul_fp8_tflops: float
    memory_gib: float
    """Part of the label's memory that PyTorch can use."""

    bandwidth_tb_s: float
    """Bandwidth of the memory, in 10¹² bytes per second."""

    link_gb_s: float
    """Bandwidth of NVLink in one direction, in 10⁹ bytes per second; 0 if there is only PCIe."""

    node_gbps: float
    """The node's network in 10⁹ bits per second, where a setting gives no other."""

    gpus_per_node: int


def _read(path: Path) -> dict[str, Gpu]:
    with path.open(encoding="utf-8", newline="") as file:
        rows = [*csv.DictReader(file)]
    kinds: dict[str, Any] = {field.name: field.type for field in fields(Gpu)}
    gpus = (Gpu(**{name: kind(row[name]) for name, kind in kinds.items()}) for row in rows)
    return {gpu.name: gpu for gpu in gpus}


GPUS: Mapping[str, Gpu] = _read(Path(__file__).with_suffix(".csv"))
"""Name → device."""


def device_of(machine: Machine) -> Gpu | None:
    """Return the GPU of an instance type, identified by name and memory.

    None if it has no GPU, one that is not in the table, or Trainium: the table has its peaks, but
    no training on it was measured here, and measurements on GPUs say nothing about it.
    """
    if machine.kind != "gpu":
        return None
    candidates = [gpu for gpu in GPUS.values() if machine.accelerator == gpu.accelerator != ""]
    return min(
        candidates,
        key=lambda gpu: abs(gpu.memory_gib - machine.accelerator_memory_gib),
        default=None,
    )
