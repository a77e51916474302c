"""How long one example takes, alone, as a request to an endpoint brings it."""

import time
from typing import Any

import numpy as np
import torch
from torch import nn

from training.data.dataset import Dataset
from training.workloads import Workload

WARM, REQUESTS = 10, 100


def latency(workload: Workload, model: nn.Module, test: Dataset) -> dict[str, Any]:
    """``p50_ms`` and ``p95_ms`` of REQUESTS samples, one at a time, spread over the test split.

    From stored arrays in memory to the outputs in memory, on the model's device: no network, no
    parsing. The first WARM requests do not count.
    """
    device = next(model.parameters()).device
    indices = np.linspace(0, len(test) - 1, WARM + REQUESTS).astype(np.int64)
    seconds = [_seconds(workload, model, test, index, device) for index in indices]
    p50, p95 = (np.percentile(seconds[WARM:], [50, 95]) * 1000).tolist()
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return {"p50_ms": p50, "p95_ms": p95, "samples": REQUESTS, "device": name}


@torch.inference_mode()
def _seconds(
    workload: Workload, model: nn.Module, test: Dataset, index: int, device: torch.device
) -> float:
    samples = test.read([index])
    began = time.perf_counter()
    batch = {name: torch.from_numpy(array).to(device) for name, array in samples.items()}
    model(*workload.inputs(batch)).cpu()  # waits for the device
    return time.perf_counter() - began
