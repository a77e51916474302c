"""Predict the time of an optimizer step: the work of ``rank_work.py`` on devices that fall short of
ideal.

By how much they fall short is in ``constants.json``, which ``python -m benchmarks.foresight --fit``
writes.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from trainyard.foresight import model_shapes
from trainyard.foresight.interval import Spread
from trainyard.foresight.setting import Setting
from trainyard.foresight.transformer_formulas import WIDTH, Shapes, Unit

# Compute one rank's work in an optimizer step, in seconds of an ideal device.
#
# ``from_setting`` counts operations, bytes and messages (``step_traffic.py``) along the longest
# path through a step: m micro-batches of the fullest pipeline stage, and each other stage once, 1/v
# of it where stages are interleaved (bubble (p − 1)/(v·m), Narayanan et al. 2021, section 2.2).
# ``step_time.py`` knows which share of its ideal a device reaches.

OPTIMIZER_BYTES = {
    **{"adamw": 30.0, "adamw_8bit": 18.0, "momentum": 22.0, "sgd": 14.0, "none": 0.0}
}
"""Bytes read and written per parameter in a step: float32 gradient, weight and state, 16-bit
copy."""

FLASH_BACKWARD = 2.5
"""Operations of the backward over the forward pass: scores are computed again (Dao 2023, section
3.1)."""

HOST_BYTES = 1e11
"""Bytes per second that the processors of a node read and write. A guess: eight channels of DDR4
have 200 GB/s, and half of that is reached."""

DEQUANTIZED_BYTES = 10.7
"""Bytes that a quantized weight takes per product, at the rate of element-wise kernels. The
weight and its 16 bits are 4.5; bitsandbytes took longer: 35 ms (3B), 79 (7B) and 191 (13B) more per
iteration with nf4 in litgpt's table of LoRA on an A100 (tutorials/resource-tables.md, 2023-10-20),
with two products per weight. With 10.7 they are 43, 81 and 158."""

ARCHITECTURES: dict[str, Literal["hopper", "blackwell"]] = {
    "H100-80": "hopper",
    "H100-96-500W": "hopper",
    "H200": "hopper",
    "B200": "blackwell",
    "B300": "blackwell",
    "GB200": "blackwell",
}
"""Devices whose products have constants of their own; the others count as Ampere."""


@dataclass(slots=True)
class Work:
    """Seconds of ideal devices and links, or counts if a field says so, per optimizer step."""

    matmul: float = 0.0
    """Products with weights on Ampere (and all without a constant of their own), at the best
    measured rate."""

    matmul_hopper: float = 0.0
    matmul_hopper_fp8: float = 0.0
    matmul_blackwell: float = 0.0
    narrow: float = 0.0
    """All products ÷ (width of the model ÷ 1,000): small products reach less."""

    few: float = 0.0
    """1,000 ÷ tokens of a micro-batch: with few tokens, products leave part of a device idle."""

    flash1: float = 0.0
    """Attention forward by kernels of before mid-2023, at the best rate of products; half of the
    scores are masked and skipped."""

    flash1_hopper: float = 0.0
    flash1_back: float = 0.0
    """The forward pass's seconds again, as often as a backward pass is computed."""

    flash1_hopper_back: float = 0.0
    flash2: float = 0.0
    """Both passes of FlashAttention 2."""

    flash2_hopper: float = 0.0
    cudnn: float = 0.0
    """Both passes of cuDNN's (or FlashAttention 3's) on Hopper and Blackwell."""

    scores: float = 0.0
    """Attention that keeps its scores; none is skipped."""

    elementwise: float = 0.0
    """Bytes of everything but products ÷ memory bandwidth."""

    casts: float = 0.0
    """Bytes of activations that are cast to fp8 ÷ memory bandwidth."""

    tensor: float = 0.0
    """All-reduces of tensor parallelism over NVLink (or PCIe)."""

    tensor_async: float = 0.0
    """All-reduces of tensor parallelism that products overlap."""

    tensor_nodes: float = 0.0
    """All-reduces of tensor parallelism between nodes."""

    messages: float = 0.0
    """All-reduces of tensor parallelism, one after the other: a count."""

    boundary: float = 0.0
    """Activations between pipeline stages, waited for."""

    exchange: float = 0.0
    """Traffic that computation hides: weights gathered, gradients scattered, keys and values that
    go around, boundaries of interleaved stages."""

    hops: float = 0.0
    """Ranks that the gathers' messages pass, one after the other: a count."""

    reduction: float = 0.0
    """Sums of gradients once per step, after the last backward pass."""

    optimizer: float = 0.0
    offload: float = 0.0
    """Copies to and from the host's memory, and its optimizer."""

    passes: float = 0.0
    """Forward passes of one block whose kernels the host launches (a backward pass counts two)."""

    micro_batches: float = 0.0
    """Micro-batches of the path."""

    nodes: float = 0.0
    """Logarithm of the number of nodes."""

    flops: float = 0.0
    """Operations per token, by 6N + 12·L·h·s, without gradients that frozen weights do not have:
    for MFU."""


@dataclass(frozen=True, slots=True)
class _Path:
    """Number of times that the longest path through a step passes a block, and the first and
    last units.
    """

    blocks: float
    ends: float


def _path(setting: Setting, block: Unit, ends: float) -> _Path:
    """Return the longest path; ``ends``: matmul FLOPs of the units that stand once."""
    ranks, m, layers = setting.pipeline, setting.accumulation, block.count
    if ranks == 1:
        return _Path(layers * m, m)
    most, least = -(-layers // ranks), layers // ranks
    last_is_fullest = least * block.matmul_flops + ends >= most * block.matmul_flops
    full = least if last_is_fullest else most
    once = 1 / setting.interleave
    return _Path(m * full + (layers - full) * once, m if last_is_fullest else once)


def from_setting(setting: Setting, shapes: Shapes | None = None) -> Work:
    """Return the work of a setting's step; ``shapes`` where its model isn't GPT's or Llama's."""
    model = shapes or model_shapes.from_setting(setting)
    block = max(model.units, key=lambda unit: unit.count * unit.matmul_flops)
    ends = [unit for unit in model.units if unit is not block]
    path = _path(setting, block, sum(unit.matmul_flops * unit.count for unit in ends))
    # Forward passes of products that the backward pass repeats: torchtitan's selective policy keeps
    # every other product, that for full attention all but the scores.
    selective = 0.0 if setting.attention == "full" else 0.5
    repeats = {"full": 1.0, "selective": selective}.get(setting.recompute, 0.0)
    tokens = setting.micro_batch * model.sequence / setting.context
    passes = path.blocks * (3 + repeats)
    # A frozen weight is multiplied forward and for its input's gradient, and not for its own.
    frozen = sum(
        unit.matmul_flops * unit.count * (1 - unit.trained / unit.parameters)
        for unit in model.units
        if unit.parameters
    )
    work = Work(
        flops=3 * model.matmul_flops + 3 * model.attention_flops - frozen,
        few=1000 / tokens,
        passes=passes,
        messages=2 * passes if setting.tensor > 1 else 0.0,
        micro_batches=setting.accumulation + setting.pipeline - 1,
        nodes=math.log(setting.nodes),
    )
    _compute(work, setting, block, path.blocks * tokens, repeats)
    for unit in ends:
        _compute(work, setting, unit, path.ends * unit.count * tokens, 0.0)
    _communicate(work, setting, model, block, path.blocks * tokens)
    _update(work, setting, model)
    return work


def _compute(work: Work, setting: Setting, unit: Unit, times: float, repeats: float) -> None:
    """Add the work of ``times`` tokens through the unit, forward, backward and ``repeats``."""
    trained_share = unit.trained / unit.parameters if unit.parameters else 1.0
    passes = 2 + trained_share + repeats
    fp8 = setting.precision == "fp8" and unit.count > 1 and setting.device.matmul_fp8_tflops > 0
    _multiply(work, setting, unit, times * passes, fp8=fp8)
    _attend(work, setting, unit, times)
    bandwidth = setting.device.bandwidth_tb_s * 1e12
    activation = unit.kept["none"]
    both = activation.whole + activation.split
    # A traced embedding keeps nothing.
    whole_share = activation.whole / both if both else 1.0
    share = whole_share / (setting.tensor if setting.sequence_parallel else 1)
    share += (1 - whole_share) / setting.tensor
    work.elementwise += unit.elementwise_bytes * times * (3 + repeats) * share / bandwidth
    if fp8:
        work.casts += both * times * passes * share / bandwidth
    if setting.quantization != "none":
        tokens = setting.micro_batch * setting.sequence
        traffic = DEQUANTIZED_BYTES * unit.parameters * times / tokens / setting.tensor
        # The weights are written out in 16 bits before each product.
        work.elementwise += traffic * passes / bandwidth


def _multiply(work: Work, setting: Setting, unit: Unit, times: float, *, fp8: bool) -> None:
    device = setting.device
    rate = 1e12 * (device.matmul_fp8_tflops if fp8 else device.matmul_tflops)
    # An eighth of the 16-bit rate: float32 without TF32.
    rate /= 8 if setting.precision == "fp32" else 1
    product = unit.matmul_flops * times / setting.tensor / rate
    architecture = ARCHITECTURES.get(setting.gpu)
    if architecture == "blackwell":
        work.matmul_blackwell += product
    elif architecture == "hopper" and fp8:
        work.matmul_hopper_fp8 += product
    elif architecture == "hopper":
        work.matmul_hopper += product
    else:
        work.matmul += product
    if unit.count > 1:
        work.narrow += product / (unit.output_bytes / WIDTH[setting.precision] / 1000)


def attention_kernel(setting: Setting) -> Literal["flash1", "flash2", "cudnn", "full"]:
    """Return the attention kernel, also where the setting says only "flash".

    GPT's shape with learned positions: the Triton kernel of the GPTs of before mid-2023. Else
    cuDNN's where Transformer Engine is likely (fp8 that is not compiled, or Megatron's ways of
    sharing), and PyTorch's FlashAttention 2 where it isn't, and before Hopper.
    """
    if setting.attention != "flash":
        return setting.attention
    if setting.positions == "learned":
        return "flash1"
    megatron = setting.precision == "fp8" or setting.shard != "full"
    modern = setting.gpu in ARCHITECTURES and megatron and not setting.compile
    return "cudnn" if modern else "flash2"


def _attend(work: Work, setting: Setting, unit: Unit, times: float) -> None:
    forward = unit.attention_flops * times / setting.tensor
    forward /= setting.device.matmul_tflops * 1e12
    kernel = attention_kernel(setting)
    if kernel == "full":
        work.scores += forward * (3 + (setting.recompute != "none"))
        return
    # These kernels skip the half of the scores that is masked.
    forward /= 2
    first = 1 + (setting.recompute == "full")
    hopper = setting.gpu in ARCHITECTURES
    if kernel == "cudnn":
        work.cudnn += forward * (first + FLASH_BACKWARD)
    elif kernel == "flash2" and hopper:
        work.flash2_hopper += forward * (first + FLASH_BACKWARD)
    elif kernel == "flash2":
        work.flash2 += forward * (first + FLASH_BACKWARD)
    elif hopper:
        work.flash1_hopper += forward * first
        work.flash1_hopper_back += forward
    else:
        work.flash1 += forward * first
        work.flash1_back += forward


def _communicate(work: Work, setting: Setting, model: Shapes, block: Unit, times: float) -> None:
    """Add the communication; ``times``: tokens that pass a block, over all blocks of the path."""
    if setting.tensor > setting.node_size:
        work.tensor_nodes = tensor_transfer(setting, block, times)
    elif setting.async_tp and setting.device.link_gb_s:
        work.tensor_async = tensor_transfer(setting, block, times)
    else:
        work.tensor = tensor_transfer(setting, block, times)
    boundary = boundary_transfer(setting, block, model.sequence)
    if setting.interleave == 1:
        work.boundary = boundary
        boundary = 0.0
    data = data_transfer(setting, model, block)
    work.exchange = data.hidden + boundary + context_transfer(setting, block, times)
    work.reduction, work.hops = data.waiting, data.hops


def _update(work: Work, setting: Setting, model: Shapes) -> None:
    """Add the optimizer's work, on the device or on the host, and the copies between them."""
    shard_ranks = setting.sharded_over if setting.shard != "none" else 1
    trained_parameters = model.trained / (setting.tensor * setting.pipeline * shard_ranks)
    optimizer_bytes = trained_parameters * OPTIMIZER_BYTES[setting.optimizer]
    if setting.offload == "none":
        work.optimizer = optimizer_bytes / (setting.device.bandwidth_tb_s * 1e12)
        return
    width = WIDTH[setting.precision]
    copy_bytes = 2 * width * trained_parameters
    if setting.offload == "all":
        rank_parameters = model.parameters / (setting.tensor * setting.pipeline * shard_ranks)
        copy_bytes += 2 * width * rank_parameters * setting.accumulation
    work.offload = copy_bytes / PCIE + optimizer_bytes / (HOST_BYTES / setting.node_size)


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
    launch = work.passes * c.launch_us * 1e-6
    # The longer of two that run beside each other; near the tie a little more.
    host = (device**4 + launch**4) ** 0.25 - device
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
    work = from_setting(setting, shapes)
    parts = seconds(work, c)
    step = sum(parts.values())
    is_fitted = setting.gpu in FITTED_ON
    deciles = (c.low, c.high) if is_fitted else (c.low_elsewhere, c.high_elsewhere)
    spread = Spread.around(step, *deciles)
    tokens = setting.tokens / setting.gpus
    peak = setting.device.bf16_tflops * 1e12
    return Time(spread, parts, spread.inverse(tokens), work.flops * tokens / step / peak)


# Compute the traffic between a training's ranks in a step, in seconds of ideal links.
#
# Ranks are laid out tensor first, then context and data, then pipeline, as Megatron's and
# torchtitan's are, so that a node holds as many tensor-parallel groups as fit.

PCIE = 2.5e10
"""Bytes per second of PCIe 4 × 16 in one direction, of the standard's 31.5 GB/s."""


@dataclass(frozen=True, slots=True)
class DataTraffic:
    """Traffic of data-parallel ranks in a step."""

    hidden: float = 0.0
    """Seconds that the device's computation hides."""

    waiting: float = 0.0
    """Seconds after the last backward pass."""

    hops: float = 0.0
    """Ranks that the hidden messages pass, one after the other."""


def link_bandwidth(setting: Setting) -> float:
    """Return bytes per second of a rank to others of its node; PCIe's where there is no NVLink."""
    return setting.device.link_gb_s * 1e9 or PCIE


def network_bandwidth(setting: Setting) -> float:
    """Return bytes per second of a node to others."""
    return (setting.node_gbps or setting.device.node_gbps) / 8 * 1e9


def _to_a_neighbour(setting: Setting, ranks: int) -> float:
    """Return bytes per second to a rank that is ``ranks`` away."""
    inside = ranks < setting.node_size
    return link_bandwidth(setting) if inside else network_bandwidth(setting) / setting.node_size


def tensor_transfer(setting: Setting, block: Unit, times: float) -> float:
    """Return the seconds of tensor parallelism's exchange.

    Two all-reduces of a block's output forward and two backward (Shoeybi et al. 2019, section
    3), and two where the forward pass is repeated; 2(t − 1)/t of the bytes on a link. With sequence
    parallelism each is a gather and a scatter of as many bytes in all (Korthikanti et al. 2022).

    ``times``: tokens through a block, over all blocks.
    """
    t = setting.tensor
    if t == 1:
        return 0.0
    reductions = 4 + 2 * (setting.recompute == "full")
    volume = reductions * 2 * (t - 1) / t * block.output_bytes * times
    return volume / (
        network_bandwidth(setting) if t > setting.node_size else link_bandwidth(setting)
    )


def context_transfer(setting: Setting, block: Unit, times: float) -> float:
    """Return the seconds to send all keys and values: once forward, twice backward."""
    c = setting.context
    if c == 1:
        return 0.0
    heads = setting.heads or max(1, setting.hidden // 128)
    kv_share = (setting.kv_heads or heads) / heads
    volume = 3 * (c - 1) * 2 * kv_share * block.output_bytes * times / setting.tensor
    return volume / _to_a_neighbour(setting, setting.tensor * (c - 1))


def boundary_transfer(setting: Setting, block: Unit, sequence: int) -> float:
    """Return the seconds of a block's output to the next stage and its gradient back, for each
    micro-batch; tensor-parallel ranks send a share each (Narayanan et al. 2021, section 4.1).
    """
    p = setting.pipeline
    if p == 1:
        return 0.0
    tokens = setting.micro_batch * sequence / setting.context
    times = 2 * (setting.accumulation + p - 1) * setting.interleave
    volume = times * block.output_bytes * tokens / setting.tensor
    return volume / _to_a_neighbour(setting, setting.gpus // p)


def data_transfer(setting: Setting, model: Shapes, block: Unit) -> DataTraffic:
    """Return the traffic of summing gradients, and of gathering weights where they are shared.

    Shared weights are gathered and gradients scattered in each micro-batch (FSDP: gathered twice
    where weights are not kept after the forward pass), in a pipeline once per step, as
    torchtitan and Megatron do. Context-parallel ranks hold the same weights, and take part.
    """
    ranks = setting.data_parallel * setting.context
    if ranks == 1:
        return DataTraffic()
    rank_parameters = model.parameters / (setting.tensor * setting.pipeline)
    trained_parameters = model.trained / (setting.tensor * setting.pipeline)
    width, gradient = WIDTH[setting.precision], WIDTH[setting.gradients_in]
    if setting.shard == "none":
        seconds = _ring(setting, 2 * trained_parameters * gradient, ranks)
        # torch's DDP sums gradients during the backward pass; Megatron's waited for its end.
        alone = setting.tensor * setting.pipeline == 1
        return DataTraffic(hidden=seconds) if alone else DataTraffic(waiting=seconds)
    if setting.shard == "optimizer":
        return DataTraffic(hidden=_ring(setting, trained_parameters * (gradient + width), ranks))
    full = setting.shard == "full"
    shard_ranks = setting.sharded_over
    times = 1 if setting.pipeline > 1 else setting.accumulation
    sent_bytes = rank_parameters * width
    if full and setting.float8_gather and setting.precision == "fp8":
        blocks = block.parameters * block.count / (setting.tensor * setting.pipeline)
        # Norms stay in 16 bits, but are a ten-thousandth of a block.
        sent_bytes -= (width - 1) * blocks
    volume = (sent_bytes * (1 + full) + trained_parameters * width) * times
    hops = (2 + full) * block.count / setting.pipeline * times * (shard_ranks - 1)
    between = _between(setting, 2 * trained_parameters * width / shard_ranks, ranks // shard_ranks)
    return DataTraffic(_ring(setting, volume, shard_ranks), between, hops)


def _ring(setting: Setting, volume: float, ranks: int) -> float:
    """Return the seconds in which ``ranks`` gather (or reduce and scatter) ``volume`` bytes.

    A ring passes each link once: NVLink within a node, and between nodes the node's network, which
    the rings of all the node's groups share.
    """
    inside = min(ranks, max(1, setting.node_size // setting.tensor))
    volume *= (ranks - 1) / ranks
    seconds = volume / link_bandwidth(setting) if inside > 1 else 0.0
    if ranks > inside:
        rings = min(setting.node_size, setting.gpus) / inside
        seconds = max(seconds, rings * volume / network_bandwidth(setting))
    return seconds


def _between(setting: Setting, volume: float, groups: int) -> float:
    """Return the seconds in which the groups of hybrid sharding sum their shards."""
    if groups == 1:
        return 0.0
    volume *= (groups - 1) / groups
    if setting.nodes == 1:
        return volume / link_bandwidth(setting)
    return volume * setting.node_size / network_bandwidth(setting)
