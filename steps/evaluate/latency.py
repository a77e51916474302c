"""Time requests one by one; without torch.

This is a separate module because the evaluation of a script has no torch.
"""

from collections.abc import Callable
from statistics import quantiles
from typing import Any

WARM, REQUESTS = 10, 100


def measure_latency(
    time_request: Callable[[int], float], device: str, threads: int
) -> dict[str, Any]:
    """Return the latency for evaluation.json. The first WARM requests do not count.

    Other load on the machine makes it longer, never shorter.

    Args:
        time_request: function that runs the request with a given number and returns its seconds.
    """
    durations = [time_request(number) for number in range(WARM + REQUESTS)][WARM:]
    shares = quantiles(durations, n=100, method="inclusive")
    return {
        "p50_ms": shares[49] * 1000,
        "p95_ms": shares[94] * 1000,
        "samples": REQUESTS,
        "device": device,
        "threads": threads,
    }
