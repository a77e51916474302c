"""What one rank has to do in an optimizer step, in the seconds that an ideal device would take.

``of`` counts operations, bytes and messages along the longest path through a step: m
micro-batches of the fullest pipeline stage, and each other stage once, 1/v of it where stages are
interleaved (bubble (p − 1)/(v·m), Narayanan et al. 2021, section 2.2). What share of its ideal a
device reaches is ``time.py``'s matter.
"""

from dataclasses import dataclass

from trainyard.foresight import shapes as shapes_of
from trainyard.foresight.setting import Setting
from trainyard.foresight.shapes import Shapes, Unit

BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 2}
OPTIMIZER_BYTES = {"adamw": 30.0, "adamw_8bit": 18.0, "momentum": 22.0, "sgd": 14.0, "none": 0.0}
"""Read and written for a parameter in a step: float32 gradient, weight and state, 16-bit copy."""

import os
OLD_BACK = float(os.environ.get('OB','2.5'))
PX = (5/7)**(1-float(os.environ.get('PX','1')))
TX = float(os.environ.get('TX','0'))
FLASH_BACKWARD = 2.5
"""Backward over forward: scores are computed again (Dao 2023, section 3.1)."""

HOPPER = frozenset({"H100-80", "H100-96-500W", "H200", "B200", "B300", "GB200"})
"""Devices whose matrix units attention kernels reach a smaller share of."""


@dataclass(slots=True)
class Work:
    """Seconds of ideal devices and links; counts where it says so. All for one optimizer step."""

    matmul: float = 0.0
    """Products with weights, at the best measured rate."""

    narrow: float = 0.0
    """The same ÷ (width of the model ÷ 1,000): small products reach less."""

    flash_ampere: float = 0.0
    flash_hopper: float = 0.0
    flash_old: float = 0.0
    flash_old_hopper: float = 0.0
    blackwell: float = 0.0
    cudnn: float=0.0
    hopper: float = 0.0
    hopper8: float = 0.0
    lognodes: float = 0.0
    """Flash attention at the 16-bit peak; half of the scores are masked and skipped."""

    scores: float = 0.0
    """Attention that keeps its scores, at the 16-bit peak; none is skipped."""

    elementwise: float = 0.0
    """Bytes of all that is no product ÷ memory bandwidth."""

    casts: float = 0.0
    """Bytes of casting to fp8 ÷ memory bandwidth."""

    tensor: float = 0.0
    """All-reduces of tensor parallelism over NVLink (or PCIe)."""

    tensor_async: float = 0.0
    """The same where products overlap them."""

    tensor_nodes: float = 0.0
    """The same between nodes."""

    context: float = 0.0
    """Keys and values that go around."""

    boundary: float = 0.0
    """Activations between pipeline stages."""

    gathers: float = 0.0
    """Weights gathered and gradients scattered in each micro-batch."""

    hops: float = 0.0
    """Ranks that those messages pass, one after the other: a count."""

    reduction: float = 0.0
    """Gradients summed once a step."""

    optimizer: float = 0.0
    passes: float = 0.0
    """Forward passes of one block whose kernels the host launches (a backward pass counts two)."""

    flops: float = 0.0
    """Of a token, by 6N + 12·L·h·s: for MFU."""


@dataclass(frozen=True, slots=True)
class _Path:
    """How often the longest path through a step passes a block, and the first and last units."""

    blocks: float
    ends: float


def _path(setting: Setting, block: Unit, ends: float) -> _Path:
    """``ends``: matmul FLOPs of the units that stand once."""
    ranks, m, layers = setting.pipeline, setting.accumulation, block.count
    if ranks == 1:
        return _Path(layers * m, m)
    most, least = -(-layers // ranks), layers // ranks
    last_is_fullest = least * block.matmul_flops + ends >= most * block.matmul_flops
    full = least if last_is_fullest else most
    once = 1 / setting.interleave
    return _Path(m * full + (layers - full) * once, m if last_is_fullest else once)


def of(setting: Setting, shapes: Shapes | None = None) -> Work:
    """The work of a setting's step; ``shapes`` where its model isn't GPT's or Llama's."""
    model = shapes or shapes_of.of(setting)
    block = max(model.units, key=lambda unit: unit.count * unit.matmul_flops)
    ends = [unit for unit in model.units if unit is not block]
    path = _path(setting, block, sum(unit.matmul_flops * unit.count for unit in ends))
    work = Work(flops=6 * model.matmul_flops / 2 + 3 * model.attention_flops)
    tokens = setting.micro_batch * model.sequence / setting.context
    _compute(work, setting, block, path.blocks * tokens, again=_again(setting))
    for unit in ends:
        _compute(work, setting, unit, path.ends * unit.count * tokens, again=0.0)
    work.passes = path.blocks * (3 + _again(setting))
    _tensor(work, setting, block, path, tokens)
    _context(work, setting, block, path.blocks * tokens)
    _boundary(work, setting, block, tokens)
    _data(work, setting, model, block)
    _optimizer(work, setting, model)
    import math
    work.lognodes=math.log(setting.nodes)
    return work


def _again(setting: Setting) -> float:
    """Forward passes of products that the backward pass repeats."""
    if setting.recompute == "selective":
        return 0.0 if setting.attention == "full" else 0.5
    return 1.0 if setting.recompute == "full" else 0.0


def _compute(work: Work, setting: Setting, unit: Unit, times: float, again: float) -> None:
    device = setting.device
    fp8 = setting.precision == "fp8" and unit.count > 1 and device.matmul_fp8_tflops > 0
    rate = 1e12 * (device.matmul_fp8_tflops if fp8 else device.matmul_tflops)
    rate /= 8 if setting.precision == "fp32" else 1
    trained = unit.trained / unit.parameters if unit.parameters else 1.0
    product = unit.matmul_flops * times * (2 + trained + again) / setting.tensor / rate
    width = unit.output_bytes / BYTES[setting.precision] / setting.tensor**TX if unit.count > 1 else 0.0
    if setting.gpu in ("B200","B300","GB200"): work.blackwell += product
    elif setting.gpu in HOPPER and fp8: work.hopper8 += product*(1 if '500' not in setting.gpu else PX)
    elif setting.gpu in HOPPER: work.hopper += product*(1 if '500' not in setting.gpu else PX)
    else: work.matmul += product
    work.narrow += product / (width / 1000) if width else 0.0
    _attention(work, setting, unit, times)
    kept = unit.kept["none"]
    whole = kept.whole / (kept.whole + kept.split)
    share = whole / (setting.tensor if setting.sequence_parallel else 1)
    share += (1 - whole) / setting.tensor
    bandwidth = device.bandwidth_tb_s * 1e12
    work.elementwise += unit.elementwise_bytes * times * (3 + again) * share / bandwidth
    if fp8:
        work.casts += (kept.whole + kept.split) * times * (2 + trained + again) * share / bandwidth


def _attention(work: Work, setting: Setting, unit: Unit, times: float) -> None:
    peak = setting.device.matmul_tflops * 1e12
    forward = unit.attention_flops * times / setting.tensor / peak
    if setting.attention == "full":
        work.scores += forward * (3 + (setting.recompute != "none"))
        return
    back = OLD_BACK if setting.positions=="learned" else FLASH_BACKWARD
    flash = forward / 2 * (1 + back + (setting.recompute == "full"))
    if setting.gpu in HOPPER:
        if setting.positions == "learned": work.flash_old_hopper += flash
        elif not setting.compile and (setting.precision=='fp8' or setting.shard!='full'): work.cudnn += flash
        else: work.flash_hopper += flash
    else:
        if setting.positions == "learned": work.flash_old += flash
        else: work.flash_ampere += flash


def _link(setting: Setting) -> float:
    """Bytes a second of a rank to others of its node; PCIe 4's 25 GB/s where there's no NVLink."""
    return (setting.device.link_gb_s or 25.0) * 1e9


def _network(setting: Setting) -> float:
    """Bytes a second of a node to others."""
    return (setting.node_gbps or setting.device.node_gbps) / 8 * 1e9


def _tensor(work: Work, setting: Setting, block: Unit, path: _Path, tokens: float) -> None:
    """Two all-reduces forward and two backward, and two more where the pass is repeated whole."""
    t = setting.tensor
    if t == 1:
        return
    times = 4 + 2 * (setting.recompute == "full")
    volume = times * 2 * (t - 1) / t * block.output_bytes * tokens * path.blocks
    if t > setting.node_size:
        work.tensor_nodes = volume / _network(setting)
    elif setting.async_tp:
        work.tensor_async = volume / _link(setting)
    else:
        work.tensor = volume / _link(setting)


def _context(work: Work, setting: Setting, block: Unit, times: float) -> None:
    """Every rank gets all others' keys and values: once forward, twice backward."""
    c = setting.context
    if c == 1:
        return
    heads = setting.heads or max(1, setting.hidden // 128)
    shared = (setting.kv_heads or heads) / heads
    volume = 3 * (c - 1) * 2 * shared * block.output_bytes * times / setting.tensor
    within = setting.tensor * c <= setting.node_size
    work.context = volume / (_link(setting) if within else _network(setting) / setting.node_size)


def _boundary(work: Work, setting: Setting, block: Unit, tokens: float) -> None:
    p = setting.pipeline
    if p == 1:
        return
    times = 2 * (setting.accumulation + p - 1) * setting.interleave
    volume = times * block.output_bytes * tokens / setting.tensor
    ranks = setting.tensor * setting.context * setting.data_parallel
    within = ranks < setting.node_size
    x = volume / (_link(setting) if within else _network(setting) / setting.node_size)
    if setting.interleave>1: work.context+=x
    else: work.boundary=x


def _data(work: Work, setting: Setting, model: Shapes, block: Unit) -> None:
    """Ranks are laid out tensor first, then context and data, then pipeline, as Megatron's are."""
    ranks = setting.data_parallel * setting.context
    if ranks == 1:
        return
    held = model.parameters / (setting.tensor * setting.pipeline)
    trained = model.trained / (setting.tensor * setting.pipeline)
    width = BYTES[setting.precision]
    if setting.shard == "full" or setting.shard == "gradients":
        gathered = held * width * (2 if setting.shard == "full" else 1)
        times = 1 if setting.pipeline > 1 else setting.accumulation
        shared = setting.sharded_over
        volume = (gathered + trained * width) * times
        messages = 3 if setting.shard == "full" else 2
        blocks = block.count / setting.pipeline
        work.gathers = _collective(setting, volume, shared)
        work.hops = messages * blocks * times * (shared - 1)
        if shared < ranks:
            work.reduction = _collective(setting, 2 * trained * width / shared, ranks)
    else:
<<<<<<< HEAD
        volume = trained * (BYTES[setting.gradients_in] + width)
        work.reduction = _collective(setting, volume, ranks)
=======
        volume = trained * (BYTES[setting.gradient_dtype] + width)
        if setting.shard=='optimizer': work.gathers= _collective(setting, volume, ranks)
        else: work.reduction = _collective(setting, volume, ranks)
>>>>>>> 6f9483d (Products on Hopper and Blackwell, cuDNN's attention and large clusters have constants of their own)


def _collective(setting: Setting, volume: float, ranks: int) -> float:
    """Seconds in which ``ranks`` gather (or reduce and scatter) ``volume`` bytes.

    A ring passes each link once: NVLink within a node, and between nodes the node's network, which
    the rings of all the node's groups share.
    """
    inside = min(ranks, max(1, setting.node_size // setting.tensor))
    volume *= (ranks - 1) / ranks
    seconds = volume / _link(setting) if inside > 1 else 0.0
    if ranks > inside:
        rings = setting.node_size / inside
        seconds = max(seconds, rings * volume / _network(setting))
    return seconds


def _optimizer(work: Work, setting: Setting, model: Shapes) -> None:
    shared = setting.data_parallel * setting.context if setting.shard != "none" else 1
    trained = model.trained / (setting.tensor * setting.pipeline * shared)
    moved = trained * OPTIMIZER_BYTES[setting.optimizer]
    work.optimizer = moved / (setting.device.bandwidth_tb_s * 1e12)
