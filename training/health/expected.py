"""What a healthy GPU, machine and fabric reach: what the check at the start is held against.

Peaks are in ``training.devices``; these are rates that somebody has measured, the best of many
shapes and sizes, and a quick check does not reach them.
"""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rates:
    """The best measured of a GPU; None where no measurement is known.

    Attributes:
        matmul: dense matrix products of bfloat16, operations a second.
        all_reduce: bus bandwidth of NCCL's all-reduce over the eight GPUs of a machine, bytes a
            second (nccl-tests, doc/PERFORMANCE.md: bytes / seconds × 2(n − 1)/n).
    """

    matmul: float | None
    all_reduce: float | None


MEASURED: tuple[tuple[str, Rates], ...] = (
    (r"\bB200\b", Rates(1745e12, None)),
    (r"\bH200\b", Rates(794.5e12, 367.6e9)),
    (r"\bH100 (PCIe|NVL)\b", Rates(None, None)),  # lower clocks, and NVLink between pairs at most
    (r"\bH100\b", Rates(794.5e12, 367.6e9)),
    (r"\bA100-SXM", Rates(271.2e12, 234.9e9)),
)
"""Device name → rates, from stas00/ml-engineering: compute/accelerator, "Maximum Achievable Matmul
FLOPS" (A100 of 312, H100 of 989, B200 of 2250 TFLOP/s) and network, all_reduce_bench.py (A100 of
300, H200 of 450 GB/s). H100 and H200 have the same cores and NVLink, so each has the other's."""

EFA: dict[str, float] = {
    **dict.fromkeys(("ml.g4dn.8xlarge", "ml.g4dn.12xlarge", "ml.g4dn.16xlarge"), 50),
    **dict.fromkeys(("ml.g5.8xlarge", "ml.g5.16xlarge"), 25),
    **{"ml.g5.12xlarge": 40, "ml.g5.24xlarge": 50, "ml.g5.48xlarge": 100},
    **dict.fromkeys(("ml.g6.8xlarge", "ml.g6.16xlarge"), 25),
    **{"ml.g6.12xlarge": 40, "ml.g6.24xlarge": 50, "ml.g6.48xlarge": 100},
    **{"ml.g6e.8xlarge": 25, "ml.g6e.12xlarge": 100, "ml.g6e.16xlarge": 35},
    **{"ml.g6e.24xlarge": 200, "ml.g6e.48xlarge": 400},
    **{"ml.g7.8xlarge": 80, "ml.g7.12xlarge": 175, "ml.g7.24xlarge": 350, "ml.g7.48xlarge": 700},
    **{"ml.g7e.8xlarge": 100, "ml.g7e.12xlarge": 400, "ml.g7e.24xlarge": 800},
    **{"ml.g7e.48xlarge": 1600, "ml.p3dn.24xlarge": 100},
    **dict.fromkeys(("ml.p4d.24xlarge", "ml.p4de.24xlarge"), 400),
    **{"ml.p5.4xlarge": 100},
    **dict.fromkeys(("ml.p5.48xlarge", "ml.p5e.48xlarge", "ml.p5en.48xlarge"), 3200),
    **{"ml.p6-b200.48xlarge": 3200, "ml.p6-b300.48xlarge": 6400, "ml.p6e-gb200.36xlarge": 1600},
}
"""GPU instance types with EFA → its Gbit/s a machine. ``trainyard/machines.csv`` has them from
EC2's pages, and does not travel into the container; the tests hold the two together."""

RDMA = ("ml.p4", "ml.p5", "ml.p6")
"""Families whose GPUs EFA reads from directly, as AWS's drivers and containers have it."""

WITHOUT_RDMA = ("ml.g4dn.", "ml.g5.", "ml.p3dn.")
"""Families whose EFA cannot: Nitro version 3 (EC2 user guide, efa.html, supported types)."""


def rates(device: str) -> Rates:
    """Those of a device's name as its driver gives it; nothing known of others."""
    found = (known for pattern, known in MEASURED if re.search(pattern, device))
    return next(found, Rates(None, None))


def fabric(instance: str) -> float | None:
    """Bytes a second that a machine's EFA sends; None for a type without, or an unknown one."""
    return EFA[instance] * 1e9 / 8 if instance in EFA else None
