"""The device that ranks have measured, with the fields of ``trainyard.foresight.gpus.Gpu``."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

NAME = "here"
"""What the device is called in a setting."""

NETWORK = 0.0
"""Gbit/s to other machines: nothing here measures it."""


def summary(found: Sequence[Mapping[str, Any]], gpus: int) -> dict[str, Any]:
    """The slowest rank's rates: a training waits for it.

    ``bf16_tflops`` is the best rate of any product in bfloat16. The device's own peak is not
    known, so the rate that products reach is all of it.
    """
    best = min(_best(one["matmul"]) for one in found)
    largest = [max(one["moved"], key=lambda row: row["bytes"]) for one in found]
    moved = min(row["bytes"] / row["seconds"] for row in largest)
    return {
        "name": NAME,
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
        "node_gbps": NETWORK,
        "gpus_per_node": len(found),
        "guessed": ["fp8_tflops", "watts", "node_gbps"],
    }


def rate(row: Mapping[str, Any]) -> float:
    """Operations a second of a measured product."""
    return 2 * row["rows"] * row["inner"] * row["columns"] / row["seconds"]


def _best(rows: Sequence[Mapping[str, Any]], dtype: str = "bfloat16") -> float:
    return max(rate(row) for row in rows if row["dtype"] == dtype)


def _link(found: Sequence[Mapping[str, Any]]) -> float:
    """Bytes a second of the largest all-reduce that leave a rank, in a ring; 0 of one rank."""
    n, rows = len(found), [row for one in found for row in one.get("collective", ())]
    reduced = [row for row in rows if row["kind"] == "all_reduce"]
    if not reduced:
        return 0.0
    size = max(row["bytes"] for row in reduced)
    slowest = max(row["seconds"] for row in reduced if row["bytes"] == size)
    return 2 * (n - 1) / n * size / slowest


def _memory(gpus: int, ranks: int) -> float:
    """GiB of a rank: its GPU's, or its share of the machine's."""
    if gpus:
        return float(torch.cuda.get_device_properties(0).total_memory / 2**30)
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return pages * size / ranks / 2**30


def processor() -> str:
    """Its name, and whether it multiplies in bfloat16 by itself: AMX, AVX-512, or not."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:  # not Linux
        return "unknown"
    name = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    known = [flag for flag in ("amx_bf16", "avx512_bf16") if re.search(rf"\b{flag}\b", text)]
    return f"{name[1] if name else 'unknown'} ({', '.join(known) or 'no bfloat16 products'})"
