"""How long one example takes, alone, as a request to an endpoint brings it."""

import time
from typing import Any

import numpy as np
import torch
from torch import nn

from steps.evaluate.quiet import REQUESTS, WARM, quietest, timed
from training.data.dataset import Dataset
from training.data.preparation import Preparation
from training.workloads import Workload


def latency(workload: Workload, model: nn.Module, test: Dataset) -> dict[str, Any]:
    """``p50_ms`` and ``p95_ms`` of REQUESTS samples, one at a time, spread over the test split.

    From stored arrays in memory to the outputs in memory, on the model's device, the workload's
    ``prepare`` between them: no network, no parsing. The first WARM requests do not count.

    Whatever else runs on the machine makes it longer, never shorter. ``waited_share`` is the part
    of the time in which the process wanted a core and had none, null where the kernel does not say;
    with more than BUSY all is measured again, and the quietest of ``rounds`` counts. ``busy``: that
    one, too, was disturbed, so the figures are upper limits. Another process on the same GPU is not
    noticed.
    """
    device = next(model.parameters()).device
    indices = np.linspace(0, len(test) - 1, WARM + REQUESTS).astype(np.int64)
    preparation = Preparation.of(workload, threads=1)
    for index in indices[:WARM]:
        _seconds(workload, model, test, index, preparation)

    def request(number: int) -> float:
        return _seconds(workload, model, test, indices[WARM + number], preparation)

    best, rounds = quietest(lambda: timed(request, len(indices) - WARM))
    p50, p95 = (np.percentile(best.seconds, [50, 95]) * 1000).tolist()
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return {
        "p50_ms": p50,
        "p95_ms": p95,
        "samples": REQUESTS,
        "device": name,
        "threads": torch.get_num_threads(),
        "waited_share": best.waited,
        "busy": best.busy,
        "rounds": rounds,
    }


@torch.inference_mode()
def _seconds(
    workload: Workload,
    model: nn.Module,
    test: Dataset,
    index: int,
    preparation: Preparation,
) -> float:
    device = next(model.parameters()).device
    samples = test.read([index])
    began = time.perf_counter()
    prepared = preparation.batch(samples)
    batch = {name: tensor.to(device) for name, tensor in prepared.items()}
    model(*workload.inputs(batch)).cpu()  # waits for the device
    return time.perf_counter() - began
