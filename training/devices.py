"""What a device could do at most, and what memory was used on it."""

import re
from pathlib import Path

import torch

PEAKS: tuple[tuple[str, float], ...] = (
    (r"\bGB200\b", 2500e12),
    (r"\bB[23]00\b", 2250e12),
    (r"\bH200\b", 989e12),
    (r"\bH100 PCIe\b", 756e12),
    (r"\bH100 NVL\b", 835e12),
    (r"\bH100\b", 989e12),  # SXM: "NVIDIA H100 80GB HBM3"
    (r"\bA100\b", 312e12),
    (r"\bA10G\b", 70e12),
    (r"\bL40S\b", 362e12),
    (r"\bL4\b", 121e12),
    (r"\bV100-SXM", 125e12),  # float16: it has no bfloat16
    (r"\bV100-PCIE", 112e12),  # float16
    (r"\bT4\b", 65e12),  # float16
    (r"\bRTX PRO 6000\b", 500e12),
    (r"\bRTX PRO 4500\b", 203e12),
)
"""Device name → dense matrix operations per second in 16 bits, from NVIDIA's data sheets.

Where a sheet gives the figure "with sparsity" (H100, H200, L4, L40S, B200, B300), it is half of
that; of the RTX PRO, whose sheets do not say, too. ``trainyard/foresight/gpus.csv`` has the same
peaks, and does not travel into the container; the tests hold the two together.
"""


def peak(device: torch.device) -> float | None:
    """Floating-point operations per second at most; None for a device that is not in the table.

    Those of bfloat16 (float16 before it) whatever the training's precision is: what a training in
    float32 leaves unused is unused.
    """
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return peak_of(name)


def peak_of(name: str) -> float | None:
    """The same for a device's name as its driver gives it."""
    return next((value for pattern, value in PEAKS if re.search(pattern, name)), None)


def utilisation(units_per_second: float, flops: float, world: int, most: float) -> float:
    """Model FLOPs utilisation: units a second of all ranks × operations of a unit, forward and
    backward, of the whole model / (ranks × a device's peak). What is computed twice to save memory
    counts once (Chowdhery et al. 2022, PaLM, appendix B).
    """
    return units_per_second * flops / (world * most)


def peak_memory(device: torch.device) -> float:
    """Megabytes of this process at most so far: tensors on a CUDA device, else resident memory."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e6
    # Not getrusage: after an exec that still holds the peak of the process that forked.
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)[1]) * 1024 / 1e6
