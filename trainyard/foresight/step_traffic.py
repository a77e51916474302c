"""Compute the traffic between a training's ranks in a step, in seconds of ideal links.

Ranks are laid out tensor first, then context and data, then pipeline, as Megatron's and
torchtitan's are, so that a node holds as many tensor-parallel groups as fit.
"""

from dataclasses import dataclass

from trainyard.foresight.model_shapes import WIDTH, Shapes, Unit
from trainyard.foresight.setting import Setting

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


def link(setting: Setting) -> float:
    """Return bytes per second of a rank to others of its node; PCIe's where there is no NVLink."""
    return setting.device.link_gb_s * 1e9 or PCIE


def network(setting: Setting) -> float:
    """Return bytes per second of a node to others."""
    return (setting.node_gbps or setting.device.node_gbps) / 8 * 1e9


def _to_a_neighbour(setting: Setting, ranks: int) -> float:
    """Return bytes per second to a rank that is ``ranks`` away."""
    inside = ranks < setting.node_size
    return link(setting) if inside else network(setting) / setting.node_size


def tensor(setting: Setting, block: Unit, times: float) -> float:
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
    return volume / (network(setting) if t > setting.node_size else link(setting))


def context(setting: Setting, block: Unit, times: float) -> float:
    """Return the seconds to send all keys and values: once forward, twice backward."""
    c = setting.context
    if c == 1:
        return 0.0
    heads = setting.heads or max(1, setting.hidden // 128)
    kv_share = (setting.kv_heads or heads) / heads
    volume = 3 * (c - 1) * 2 * kv_share * block.output_bytes * times / setting.tensor
    return volume / _to_a_neighbour(setting, setting.tensor * (c - 1))


def boundary(setting: Setting, block: Unit, sequence: int) -> float:
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


def data(setting: Setting, model: Shapes, block: Unit) -> DataTraffic:
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
    seconds = volume / link(setting) if inside > 1 else 0.0
    if ranks > inside:
        rings = min(setting.node_size, setting.gpus) / inside
        seconds = max(seconds, rings * volume / network(setting))
    return seconds


def _between(setting: Setting, volume: float, groups: int) -> float:
    """Return the seconds in which the groups of hybrid sharding sum their shards."""
    if groups == 1:
        return 0.0
    volume *= (groups - 1) / groups
    if setting.nodes == 1:
        return volume / link(setting)
    return volume * setting.node_size / network(setting)
