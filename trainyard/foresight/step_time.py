"""Predict the time of an optimizer step: the work of ``rank_work.py`` on devices that fall short of
ideal.

By how much they fall short is in ``constants.json``, which ``python -m benchmarks.foresight --fit``
writes.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainyard.foresight import rank_work
from trainyard.foresight.interval import Spread
from trainyard.foresight.model_shapes import Shapes
from trainyard.foresight.rank_work import Work
from trainyard.foresight.setting import Setting

OPTIMIZER = 0.8
"""Share of the memory bandwidth that an optimizer's kernels reach; too short to be fitted."""


@dataclass(frozen=True, slots=True)
class Constants:
    """Fitted constants; each holds for all devices and frameworks."""

    matmul: float
    """Share of the best measured rate that products reach on Ampere, in a model that is wide."""

    matmul_hopper: float
    matmul_hopper_fp8: float
    matmul_blackwell: float
    narrow: float
    """Extra time of a product in a model of width 1,000, as a share."""

    few: float
    """Extra time of products of a micro-batch of 1,000 tokens over those of many, as a share."""

    flash1: float
    """Share of the products' best rate that attention reaches by kernels of before mid-2023."""

    flash1_hopper: float
    flash1_backward: float
    """Time of its backward pass over that of its forward pass."""

    flash2: float
    """Share of the products' best rate that FlashAttention 2 reaches on Ampere."""

    flash2_hopper: float
    cudnn: float
    """Share that cuDNN's attention reaches on Hopper and Blackwell."""

    scores: float
    """Share that attention reaches which keeps its scores."""

    elementwise: float
    """Seconds of all but the products, over their bytes ÷ memory bandwidth."""

    casts: float
    """Bytes that casts to fp8 move, over those of the activations."""

    link: float
    """Share of NVLink's rate that a collective reaches."""

    asynchronous: float
    """Share of tensor parallelism's exchange that asynchronous products leave exposed."""

    network: float
    """Share of the network's rate that a collective reaches."""

    message_us: float
    """Latency of an all-reduce of tensor parallelism, in microseconds."""

    hop_us: float
    """Latency of a rank in a ring, in microseconds."""

    overlap: float
    """Share of the shorter that is lost where exchange and computation overlap."""

    nodes: float
    """Cost of more nodes: the share of the step for each e-fold of the number of nodes."""

    launch_us: float
    """The host's time for the kernels of one block's forward pass, in microseconds."""

    micro_batch_ms: float
    """Extra time of a micro-batch, in milliseconds."""

    step_ms: float
    """Extra time of a step, in milliseconds: clipping, synchronising, logging."""

    low: float
    """p10 over the median, on devices with published rows, for a source without a row: a cluster
    and code of your own. ``benchmarks.foresight.holding_out.reach`` computes it."""

    high: float
    low_elsewhere: float
    """p10 over the median, on devices without any row."""

    high_elsewhere: float


FITTED_ON = frozenset({"A100-40", "A100-80", "H100-80", "H100-96-500W", "H200", "B200"})
"""Devices that the benchmark has rows of; a test compares it with them."""

_TABLE = json.loads(Path(__file__).with_name("constants.json").read_text(encoding="utf-8"))
CONSTANTS = Constants(**_TABLE["time"])


@dataclass(frozen=True, slots=True)
class Time:
    """Time of a step, and its parts."""

    step_seconds: Spread
    parts: Mapping[str, float]
    """Seconds per step that each part adds."""

    tokens_per_second_per_gpu: Spread
    mfu: float
    """Share of the devices' 16-bit peak, by 6N + 12·L·h·s operations per token (Chowdhery et al.
    2022, appendix B); recomputation is not counted."""


def seconds(work: Work, c: Constants) -> dict[str, Any]:
    """Return seconds per step by part; ``work`` has numbers, or arrays for as many settings."""
    compute = (
        (work.matmul + work.narrow * c.narrow) / c.matmul
        + work.matmul_hopper / c.matmul_hopper
        + work.matmul_hopper_fp8 / c.matmul_hopper_fp8
        + work.matmul_blackwell / c.matmul_blackwell
    ) * (1 + work.few * c.few)
    attention = (
        (work.flash1 + work.flash1_back * c.flash1_backward) / c.flash1
        + (work.flash1_hopper + work.flash1_hopper_back * c.flash1_backward) / c.flash1_hopper
        + work.flash2 / c.flash2
        + work.flash2_hopper / c.flash2_hopper
        + work.cudnn / c.cudnn
        + work.scores / c.scores
    )
    memory_time = work.elementwise * c.elementwise + work.casts * c.casts
    tensor = (work.tensor + work.tensor_async * c.asynchronous) / c.link
    tensor = tensor + work.tensor_nodes / c.network + work.messages * c.message_us * 1e-6
    device = compute + attention + memory_time
    host = _longer(device, work.passes * c.launch_us * 1e-6) - device
    busy = device + host + tensor
    exchange = work.exchange / c.network + work.hops * c.hop_us * 1e-6
    return {
        "compute": compute,
        "attention": attention,
        "element-wise": memory_time,
        "host": host + (work.micro_batches * c.micro_batch_ms + c.step_ms) * 1e-3,
        "tensor parallel": tensor,
        "data parallel": _compute_exposed(busy, exchange, c.overlap) + work.reduction / c.network,
        "pipeline": work.boundary / c.network,
        "optimizer": work.optimizer / OPTIMIZER + work.offload,
        "stragglers": busy * work.nodes * c.nodes,
    }


def _longer(device: Any, host: Any) -> Any:
    """Return the longer of two times that run beside each other; near the tie a little more."""
    return (device**4 + host**4) ** 0.25


def _compute_exposed(busy: Any, exchange: Any, lost: float) -> Any:
    """Return what an exchange adds to the computation that hides it: the excess, and a share."""
    gap = abs(exchange - busy)
    shorter = (busy + exchange - gap) / 2
    longer = (busy + exchange + gap) / 2
    return longer - busy + lost * shorter


def foresee(
    setting: Setting, shapes: Shapes | None = None, efficiency: Constants | None = None
) -> Time:
    """Predict the time of a step of ``setting``.

    Args:
        shapes: the model's, where it is not the GPT or Llama that the setting's fields describe.
        efficiency: constants of a measured machine; else those of ``constants.json``.
    """
    c = efficiency or CONSTANTS
    work = rank_work.from_setting(setting, shapes)
    parts = seconds(work, c)
    step = sum(parts.values())
    is_fitted = setting.gpu in FITTED_ON
    deciles = (c.low, c.high) if is_fitted else (c.low_elsewhere, c.high_elsewhere)
    spread = Spread.around(step, *deciles)
    tokens = setting.tokens / setting.gpus
    peak = setting.device.bf16_tflops * 1e12
    return Time(spread, parts, spread.inverse(tokens), work.flops * tokens / step / peak)
