"""How long one example takes, alone, as a request to an endpoint brings it."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from training.cores import Waited
from training.data.dataset import Dataset
from training.data.preparation import Preparation
from training.workloads import Workload

WARM, REQUESTS = 10, 100
ROUNDS, PATIENCE = 5, 30.0
"""A busy machine is measured again, up to so often and for so many seconds in all."""
BUSY = 0.2
"""Beyond this share of the wanted time without a core, and requests take 1 / (1 - 0.2) as long."""


@dataclass(frozen=True, slots=True)
class Round:
    """``seconds`` of each request; ``waited``: see :meth:`training.cores.Waited.share_since`."""

    seconds: list[float]
    waited: float | None

    @property
    def busy(self) -> bool:
        """Whether something else had the cores."""
        return self.waited is not None and self.waited > BUSY


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

    def measure() -> Round:
        before = Waited.now()
        seconds = [_seconds(workload, model, test, index, preparation) for index in indices[WARM:]]
        after = Waited.now()
        return Round(seconds, after.share_since(before) if before and after else None)

    best, rounds = quietest(measure)
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


def quietest(measure: Callable[[], Round]) -> tuple[Round, int]:
    """The first round that is not busy, else the quietest; and how many there were."""
    best = measure()
    rounds, spent = 1, sum(best.seconds)
    while best.busy and rounds < ROUNDS and spent < PATIENCE:
        one = measure()
        rounds, spent = rounds + 1, spent + sum(one.seconds)
        best = min(best, one, key=lambda r: r.waited or 0.0)
    return best, rounds


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
