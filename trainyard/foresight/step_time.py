"""Predict the time of an optimizer step: compute one rank's work in seconds of ideal devices and
links (``Work``), and divide by the shares of the ideal rates that real ones reach (``Constants``).

The constants are in ``constants.json``, which ``python -m benchmarks.foresight --fit`` writes.
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
# ``compute_work`` counts operations, bytes and messages along the longest path through a step. With
# p pipeline ranks and m micro-batches, these are m micro-batches of the fullest pipeline stage, and
# one of each other stage; with v interleaved stages per rank only 1/v of that (bubble
# (p − 1)/(v·m), Narayanan et al. 2021, section 2.2).

OPTIMIZER_BYTES = {
    **{"adamw": 30.0, "adamw_8bit": 18.0, "momentum": 22.0, "sgd": 14.0, "none": 0.0}
}
"""Bytes that each optimizer reads and writes per parameter in a step: float32 gradient, weight and
state, and the 16-bit copy of the weight."""

FLASH_BACKWARD = 2.5
"""Operations of flash attention's backward pass over those of its forward pass: the scores are
computed again (Dao 2023, section 3.1)."""

HOST_BYTES = 1e11
"""Bytes per second that the processors of a node read and write. This is a guess: eight channels of
DDR4 have 200 GB/s, of which half is reached."""

DEQUANTIZED_BYTES = 10.7
"""Bytes of memory traffic that count for a quantized weight in each product, at the rate of
element-wise kernels. The weight and its 16-bit copy would be 4.5, but bitsandbytes takes longer: in
litgpt's table of LoRA on an A100 (tutorials/resource-tables.md, 2023-10-20), nf4 adds 35 ms (3B),
79 ms (7B) and 191 ms (13B) per iteration, with two products per weight. With 10.7, the prediction
is 43, 81 and 158 ms."""

ARCHITECTURES: dict[str, Literal["hopper", "blackwell"]] = {
    "H100-80": "hopper",
    "H100-96-500W": "hopper",
    "H200": "hopper",
    "B200": "blackwell",
    "B300": "blackwell",
    "GB200": "blackwell",
}
"""Mapping of a device to its architecture, if that has constants of its own. The other devices use
those of Ampere."""


@dataclass(slots=True)
class Work:
    """One rank's work per optimizer step, along the longest path.

    The figures are seconds of ideal devices and links, or counts if the field says so.
    """

    matmul: float = 0.0
    """Matrix products with weights on Ampere, and on all devices without constants of their own, at
    the best measured rate."""

    matmul_hopper: float = 0.0
    """Matrix products with weights on Hopper GPUs, except those in fp8."""

    matmul_hopper_fp8: float = 0.0
    """Matrix products with weights on Hopper GPUs, in fp8."""

    matmul_blackwell: float = 0.0
    """Matrix products with weights on Blackwell GPUs."""

    narrow: float = 0.0
    """All matrix products of blocks ÷ (width of the model ÷ 1,000), because small products reach a
    lower rate."""

    few: float = 0.0
    """1,000 ÷ tokens of a micro-batch, because products of few tokens leave part of a device
    idle."""

    flash1: float = 0.0
    """Forward passes of attention by kernels before mid-2023, at the best rate of matrix products.
    The half of the scores that is masked is skipped."""

    flash1_hopper: float = 0.0
    """As ``flash1``, on Hopper and Blackwell GPUs: attention kernels from before mid-2023."""

    flash1_back: float = 0.0
    """The seconds of one forward pass of these kernels, for each backward pass."""

    flash1_hopper_back: float = 0.0
    """The seconds of one of those forward passes, for each backward pass on Hopper and Blackwell
    GPUs."""

    flash2: float = 0.0
    """Forward and backward passes of FlashAttention 2."""

    flash2_hopper: float = 0.0
    """Forward and backward passes of FlashAttention 2 on Hopper and Blackwell GPUs."""

    cudnn: float = 0.0
    """Forward and backward passes of cuDNN's attention (or FlashAttention 3)."""

    scores: float = 0.0
    """Attention that keeps its scores; no scores are skipped."""

    elementwise: float = 0.0
    """Bytes of memory traffic of everything but matrix products ÷ memory bandwidth."""

    casts: float = 0.0
    """Bytes of activations that are cast to fp8 ÷ memory bandwidth."""

    tensor: float = 0.0
    """All-reduces of tensor parallelism over NVLink (or PCIe)."""

    tensor_async: float = 0.0
    """All-reduces of tensor parallelism that overlap with matrix products."""

    tensor_nodes: float = 0.0
    """All-reduces of tensor parallelism between nodes."""

    messages: float = 0.0
    """Number of all-reduces of tensor parallelism, which follow one another."""

    boundary: float = 0.0
    """Transfers of activations between pipeline stages, for which ranks wait."""

    exchange: float = 0.0
    """Communication that overlaps with computation: gathered weights, scattered gradients, keys and
    values of context parallelism, boundaries of interleaved stages."""

    hops: float = 0.0
    """Number of ranks that the messages of gathers pass, one after the other."""

    reduction: float = 0.0
    """Sums of gradients once per step, after the last backward pass."""

    optimizer: float = 0.0
    """The optimizer's memory traffic ÷ memory bandwidth."""

    offload: float = 0.0
    """Copies to and from the host's memory, and the optimizer's work on the host."""

    passes: float = 0.0
    """Number of forward passes of one block whose kernels the host launches; a backward pass counts
    as two."""

    micro_batches: float = 0.0
    """Number of micro-batches on the path."""

    nodes: float = 0.0
    """Natural logarithm of the number of nodes."""

    flops: float = 0.0
    """Operations per token for MFU, by 6N + 12·L·h·s, without gradients of frozen weights."""


@dataclass(frozen=True, slots=True)
class _Path:
    """The longest path through a step: how often it passes blocks, and the first and last units."""

    blocks: float
    """Number of passes through a block, over all blocks and micro-batches."""

    ends: float
    """Number of passes through the units that the model has once, such as embedding and head."""


def _find_longest_path(setting: Setting, block: Unit, ends: float) -> _Path:
    """Return the longest path through a step.

    ``ends`` are the FLOPs of matrix products in the units that the model has once.
    """
    ranks, m, layers = setting.pipeline, setting.accumulation, block.count
    if ranks == 1:
        return _Path(layers * m, m)
    max_layers, min_layers = -(-layers // ranks), layers // ranks
    last_is_fullest = min_layers * block.matmul_flops + ends >= max_layers * block.matmul_flops
    full = min_layers if last_is_fullest else max_layers
    once = 1 / setting.interleave
    return _Path(m * full + (layers - full) * once, m if last_is_fullest else once)


def compute_work(setting: Setting, shapes: Shapes | None = None) -> Work:
    """Return the work of one rank in an optimizer step of a setting.

    ``shapes`` are those of the model if it is not the GPT or Llama that the setting describes.
    """
    model = shapes or model_shapes.derive_shapes(setting)
    block = max(model.units, key=lambda unit: unit.count * unit.matmul_flops)
    ends = [unit for unit in model.units if unit is not block]
    path = _find_longest_path(setting, block, sum(unit.matmul_flops * unit.count for unit in ends))
    # Share of the forward pass's matrix products that the backward pass repeats: torchtitan's
    # selective policy keeps every other product, that for full attention all but the scores.
    selective = 0.0 if setting.attention == "full" else 0.5
    repeats = {"full": 1.0, "selective": selective}.get(setting.recompute, 0.0)
    tokens = setting.micro_batch * model.sequence / setting.context
    passes = path.blocks * (3 + repeats)
    # A frozen weight needs a product in the forward pass and one for the gradient of its input, but
    # none for its own gradient.
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
    _add_computation(work, setting, block, path.blocks * tokens, repeats)
    for unit in ends:
        _add_computation(work, setting, unit, path.ends * unit.count * tokens, 0.0)
    _add_communication(work, setting, model, block, path.blocks * tokens)
    _add_optimizer_update(work, setting, model)
    return work


def _add_computation(
    work: Work, setting: Setting, unit: Unit, times: float, repeats: float
) -> None:
    """Add the computation of a unit to ``work``.

    ``times`` is the number of tokens that pass the unit, ``repeats`` the share of the forward pass
    that the backward pass repeats.
    """
    trained_share = unit.trained / unit.parameters if unit.parameters else 1.0
    passes = 2 + trained_share + repeats
    fp8 = setting.precision == "fp8" and unit.count > 1 and setting.device.matmul_fp8_tflops > 0
    _add_matrix_products(work, setting, unit, times * passes, fp8=fp8)
    _add_attention(work, setting, unit, times)
    bandwidth = setting.device.bandwidth_tb_s * 1e12
    activation = unit.kept["none"]
    both = activation.whole + activation.split
    # The embedding of a traced model keeps nothing.
    whole_share = activation.whole / both if both else 1.0
    share = whole_share / (setting.tensor if setting.sequence_parallel else 1)
    share += (1 - whole_share) / setting.tensor
    work.elementwise += unit.elementwise_bytes * times * (3 + repeats) * share / bandwidth
    if fp8:
        work.casts += both * times * passes * share / bandwidth
    if setting.quantization != "none":
        tokens = setting.micro_batch * setting.sequence
        traffic = DEQUANTIZED_BYTES * unit.parameters * times / tokens / setting.tensor
        # The quantized weights are expanded to 16 bits in memory before each product.
        work.elementwise += traffic * passes / bandwidth


def _add_matrix_products(
    work: Work, setting: Setting, unit: Unit, times: float, *, fp8: bool
) -> None:
    """Add the matrix products with the unit's weights, for ``times`` tokens, to ``work``."""
    device = setting.device
    rate = 1e12 * (device.matmul_fp8_tflops if fp8 else device.matmul_tflops)
    # float32 without TF32 has an eighth of the 16-bit rate.
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


def choose_attention_kernel(setting: Setting) -> Literal["flash1", "flash2", "cudnn", "full"]:
    """Return the attention kernel of a setting; if it says only "flash", the likely one.

    With learned positions this is the Triton kernel that GPTs before mid-2023 used. Else, on Hopper
    and Blackwell, it is cuDNN's if Transformer Engine is likely (not compiled, and fp8 or sharded
    as Megatron does). In all other cases it is PyTorch's FlashAttention 2.
    """
    if setting.attention != "flash":
        return setting.attention
    if setting.positions == "learned":
        return "flash1"
    megatron = setting.precision == "fp8" or setting.shard != "full"
    modern = setting.gpu in ARCHITECTURES and megatron and not setting.compile
    return "cudnn" if modern else "flash2"


def _add_attention(work: Work, setting: Setting, unit: Unit, times: float) -> None:
    """Add the attention of a unit, for ``times`` tokens, to ``work``."""
    forward = unit.attention_flops * times / setting.tensor
    forward /= setting.device.matmul_tflops * 1e12
    kernel = choose_attention_kernel(setting)
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


def _add_communication(
    work: Work, setting: Setting, model: Shapes, block: Unit, times: float
) -> None:
    """Add the communication to ``work``; ``times`` is the number of tokens that pass a block,
    summed over all blocks of the path.
    """
    if setting.tensor > setting.node_size:
        work.tensor_nodes = estimate_tensor_transfer(setting, block, times)
    elif setting.async_tp and setting.device.link_gb_s:
        work.tensor_async = estimate_tensor_transfer(setting, block, times)
    else:
        work.tensor = estimate_tensor_transfer(setting, block, times)
    boundary = estimate_boundary_transfer(setting, block, model.sequence)
    if setting.interleave == 1:
        work.boundary = boundary
        boundary = 0.0
    data = estimate_data_transfer(setting, model, block)
    work.exchange = data.hidden + boundary + estimate_context_transfer(setting, block, times)
    work.reduction, work.hops = data.waiting, data.hops


def _add_optimizer_update(work: Work, setting: Setting, model: Shapes) -> None:
    """Add the optimizer's work, on the device or on the host, and the copies between them, to
    ``work``.
    """
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
"""Share of the memory bandwidth that an optimizer's kernels reach. It is not fitted, because the
optimizer's time is too short."""


@dataclass(frozen=True, slots=True)
class Constants:
    """Fitted constants, which are used for all devices and frameworks."""

    matmul: float
    """Share of the best measured rate that matrix products reach on Ampere in a wide model."""

    matmul_hopper: float
    matmul_hopper_fp8: float
    matmul_blackwell: float
    narrow: float
    """Extra time of a matrix product in a model of width 1,000, as a share of its time."""

    few: float
    """Extra time of matrix products in a micro-batch of 1,000 tokens, as a share of their time in
    a very large one."""

    flash1: float
    """Share of the best rate of matrix products that attention kernels before mid-2023 reach."""

    flash1_hopper: float
    flash1_backward: float
    """Time of these kernels' backward pass over that of their forward pass."""

    flash2: float
    """Share of the best rate of matrix products that FlashAttention 2 reaches on Ampere."""

    flash2_hopper: float
    cudnn: float
    """Share of that rate that cuDNN's attention reaches on Hopper and Blackwell."""

    scores: float
    """Share of that rate that attention reaches if it keeps its scores."""

    elementwise: float
    """Time of everything but matrix products, over its bytes ÷ memory bandwidth."""

    casts: float
    """Bytes that casts to fp8 move, over those of the activations."""

    link: float
    """Share of NVLink's rate that a collective reaches."""

    asynchronous: float
    """Share of tensor parallelism's communication that does not overlap with asynchronous
    products."""

    network: float
    """Share of the network's rate that a collective reaches."""

    message_us: float
    """Latency of an all-reduce of tensor parallelism, in microseconds."""

    hop_us: float
    """Latency of a rank in a ring, in microseconds."""

    overlap: float
    """Time that is lost if communication and computation overlap, as a share of the shorter of
    both."""

    nodes: float
    """Time that more nodes cost, as a share of the step per e-fold of the number of nodes."""

    launch_us: float
    """The host's time for launching the kernels of one block's forward pass, in microseconds."""

    micro_batch_ms: float
    """Extra time of a micro-batch, in milliseconds."""

    step_ms: float
    """Extra time of a step, in milliseconds, such as for clipping, synchronising and logging."""

    low: float
    """p10 over the median, on a device with published rows, for a cluster and code that have none,
    such as the user's own. ``benchmarks.foresight.holding_out.compute_reach`` computes it."""

    high: float
    """p90 over the median, as above."""

    low_elsewhere: float
    """p10 over the median, on a device without published rows."""

    high_elsewhere: float
    """p90 over the median, on a device without published rows."""


FITTED_ON = frozenset({"A100-40", "A100-80", "H100-80", "H100-96-500W", "H200", "B200"})
"""Devices for which the benchmark has published rows. A test compares this with the rows."""

_TABLE = json.loads(Path(__file__).with_name("constants.json").read_text(encoding="utf-8"))
CONSTANTS = Constants(**_TABLE["time"])


@dataclass(frozen=True, slots=True)
class Time:
    """The predicted time of an optimizer step, and its parts."""

    step_seconds: Spread
    parts: Mapping[str, float]
    """Mapping of a part's name to the seconds that it adds to a step."""

    tokens_per_second_per_gpu: Spread
    mfu: float
    """Model FLOPs utilization: the share of the devices' 16-bit peak rate that is used, with
    6N + 12·L·h·s operations per token (Chowdhery et al. 2022, appendix B). Recomputation does not
    count."""


def compute_seconds(work: Work, c: Constants) -> dict[str, Any]:
    """Return a mapping of each part of a step to its seconds.

    The fields of ``work`` are numbers, or arrays with an entry per setting; so are the results.
    """
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
    # Device and host work concurrently, so the longer time counts; a little more if they are close
    # (a 4-norm).
    host = (device**4 + launch**4) ** 0.25 - device
    busy = device + host + tensor
    exchange = work.exchange / c.network + work.hops * c.hop_us * 1e-6
    return {
        "compute": compute,
        "attention": attention,
        "element-wise": memory_time,
        "host": host + (work.micro_batches * c.micro_batch_ms + c.step_ms) * 1e-3,
        "tensor parallel": tensor,
        "data parallel": _compute_exposed_time(busy, exchange, c.overlap)
        + work.reduction / c.network,
        "pipeline": work.boundary / c.network,
        "optimizer": work.optimizer / OPTIMIZER + work.offload,
        "stragglers": busy * work.nodes * c.nodes,
    }


def _compute_exposed_time(busy: Any, exchange: Any, lost: float) -> Any:
    """Return the time that an exchange adds to the computation with which it overlaps.

    It is the time by which the exchange is longer, and the share ``lost`` of the shorter of both.
    The arithmetic works for arrays as well.
    """
    gap = abs(exchange - busy)
    shorter = (busy + exchange - gap) / 2
    longer = (busy + exchange + gap) / 2
    return longer - busy + lost * shorter


def predict_step_time(
    setting: Setting, shapes: Shapes | None = None, efficiency: Constants | None = None
) -> Time:
    """Predict the time of an optimizer step of ``setting``.

    Args:
        setting: the training run.
        shapes: shapes of the model, if it is not the GPT or Llama that the setting describes.
        efficiency: constants of a measured machine; None for those of ``constants.json``.
    """
    c = efficiency or CONSTANTS
    work = compute_work(setting, shapes)
    parts = compute_seconds(work, c)
    step = sum(parts.values())
    is_fitted = setting.gpu in FITTED_ON
    deciles = (c.low, c.high) if is_fitted else (c.low_elsewhere, c.high_elsewhere)
    spread = Spread.from_median(step, *deciles)
    tokens = setting.tokens / setting.gpus
    peak = setting.device.bf16_tflops * 1e12
    return Time(spread, parts, spread.invert(tokens), work.flops * tokens / step / peak)


# Compute the communication between the ranks in a step, in seconds of ideal links.
#
# Ranks are ordered by tensor, then context and data, then pipeline, as in Megatron and torchtitan,
# so that a node contains as many whole tensor-parallel groups as fit.

PCIE = 2.5e10
"""Bytes per second that PCIe 4 × 16 reaches in one direction, of the standard's 31.5 GB/s."""


@dataclass(frozen=True, slots=True)
class DataTraffic:
    """The communication of data-parallel ranks in a step."""

    hidden: float = 0.0
    """Seconds of communication that overlaps with computation."""

    waiting: float = 0.0
    """Seconds of communication after the last backward pass."""

    hops: float = 0.0
    """Number of ranks that the overlapping messages pass, one after the other."""


def compute_link_bandwidth(setting: Setting) -> float:
    """Return the bytes per second from a rank to others of its node: PCIe's if the device has no
    NVLink.
    """
    return setting.device.link_gb_s * 1e9 or PCIE


def compute_network_bandwidth(setting: Setting) -> float:
    """Return the bytes per second from a node to other nodes."""
    return (setting.node_gbps or setting.device.node_gbps) / 8 * 1e9


def _compute_neighbour_bandwidth(setting: Setting, ranks: int) -> float:
    """Return the bytes per second from a rank to the one that is ``ranks`` further in the order."""
    inside = ranks < setting.node_size
    return (
        compute_link_bandwidth(setting)
        if inside
        else compute_network_bandwidth(setting) / setting.node_size
    )


def estimate_tensor_transfer(setting: Setting, block: Unit, times: float) -> float:
    """Return the seconds of tensor parallelism's communication in a step.

    A block needs two all-reduces of its output in the forward pass and two in the backward pass
    (Shoeybi et al. 2019, section 3), and two more if the forward pass is repeated. Each sends
    2(t − 1)/t of the bytes over a link. With sequence parallelism, each is a gather and a scatter
    of as many bytes in all (Korthikanti et al. 2022).

    ``times`` is the number of tokens that pass a block, summed over all blocks.
    """
    t = setting.tensor
    if t == 1:
        return 0.0
    reductions = 4 + 2 * (setting.recompute == "full")
    volume = reductions * 2 * (t - 1) / t * block.output_bytes * times
    return volume / (
        compute_network_bandwidth(setting)
        if t > setting.node_size
        else compute_link_bandwidth(setting)
    )


def estimate_context_transfer(setting: Setting, block: Unit, times: float) -> float:
    """Return the seconds of context parallelism's communication in a step: all keys and values are
    sent once in the forward pass and twice in the backward pass.
    """
    c = setting.context
    if c == 1:
        return 0.0
    heads = setting.heads or max(1, setting.hidden // 128)
    kv_share = (setting.kv_heads or heads) / heads
    volume = 3 * (c - 1) * 2 * kv_share * block.output_bytes * times / setting.tensor
    return volume / _compute_neighbour_bandwidth(setting, setting.tensor * (c - 1))


def estimate_boundary_transfer(setting: Setting, block: Unit, sequence: int) -> float:
    """Return the seconds of pipeline parallelism's communication in a step.

    For each micro-batch, a block's output is sent to the next stage, and its gradient back; each
    tensor-parallel rank sends a share (Narayanan et al. 2021, section 4.1).
    """
    p = setting.pipeline
    if p == 1:
        return 0.0
    tokens = setting.micro_batch * sequence / setting.context
    times = 2 * (setting.accumulation + p - 1) * setting.interleave
    volume = times * block.output_bytes * tokens / setting.tensor
    return volume / _compute_neighbour_bandwidth(setting, setting.gpus // p)


def estimate_data_transfer(setting: Setting, model: Shapes, block: Unit) -> DataTraffic:
    """Return the communication for summing gradients, and for gathering sharded weights.

    Sharded weights are gathered and gradients scattered in each micro-batch (by FSDP gathered
    twice, because weights are not kept after the forward pass), but only once per step with
    pipeline parallelism, as torchtitan and Megatron do. Context-parallel ranks are included,
    because they have the same weights.
    """
    ranks = setting.data_parallel * setting.context
    if ranks == 1:
        return DataTraffic()
    rank_parameters = model.parameters / (setting.tensor * setting.pipeline)
    trained_parameters = model.trained / (setting.tensor * setting.pipeline)
    width, gradient = WIDTH[setting.precision], WIDTH[setting.effective_gradient_dtype]
    if setting.shard == "none":
        seconds = _estimate_ring(setting, 2 * trained_parameters * gradient, ranks)
        # torch's DDP sums gradients during the backward pass, Megatron's only after it. Tensor or
        # pipeline parallelism without sharding is taken for Megatron.
        alone = setting.tensor * setting.pipeline == 1
        return DataTraffic(hidden=seconds) if alone else DataTraffic(waiting=seconds)
    if setting.shard == "optimizer":
        return DataTraffic(
            hidden=_estimate_ring(setting, trained_parameters * (gradient + width), ranks)
        )
    full = setting.shard == "full"
    shard_ranks = setting.sharded_over
    times = 1 if setting.pipeline > 1 else setting.accumulation
    sent_bytes = rank_parameters * width
    if full and setting.float8_gather and setting.precision == "fp8":
        blocks = block.parameters * block.count / (setting.tensor * setting.pipeline)
        # Norms are gathered in 16 bits, which is neglected: they are a ten-thousandth of a block.
        sent_bytes -= (width - 1) * blocks
    volume = (sent_bytes * (1 + full) + trained_parameters * width) * times
    hops = (2 + full) * block.count / setting.pipeline * times * (shard_ranks - 1)
    between = _estimate_group_sum(
        setting, 2 * trained_parameters * width / shard_ranks, ranks // shard_ranks
    )
    return DataTraffic(_estimate_ring(setting, volume, shard_ranks), between, hops)


def _estimate_ring(setting: Setting, volume: float, ranks: int) -> float:
    """Return the seconds in which ``ranks`` ranks gather (or reduce and scatter) ``volume`` bytes.

    They form a ring that uses each link once: NVLink within a node, and between nodes the node's
    network, which is shared by the rings of all groups that have ranks on the node.
    """
    inside = min(ranks, max(1, setting.node_size // setting.tensor))
    volume *= (ranks - 1) / ranks
    seconds = volume / compute_link_bandwidth(setting) if inside > 1 else 0.0
    if ranks > inside:
        rings = min(setting.node_size, setting.gpus) / inside
        seconds = max(seconds, rings * volume / compute_network_bandwidth(setting))
    return seconds


def _estimate_group_sum(setting: Setting, volume: float, groups: int) -> float:
    """Return the seconds in which the groups of hybrid sharding sum the gradients of their shards.

    ``volume`` is twice the bytes of a rank's shard, because a sum is a scatter and a gather.
    """
    if groups == 1:
        return 0.0
    volume *= (groups - 1) / groups
    if setting.nodes == 1:
        return volume / compute_link_bandwidth(setting)
    return volume * setting.node_size / compute_network_bandwidth(setting)
