"""The one change that makes a training fit, where it does not.

All keep the global batch, so that none changes what is learned; they are tried from the one that
usually costs the least time to the one that costs the most.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainyard.foresight.memory import Memory, foresee
from trainyard.foresight.setting import Setting
from trainyard.foresight.shapes import Shapes

SHARDS = ("none", "optimizer", "gradients", "full")
RECOMPUTES = ("none", "selective", "full")


@dataclass(frozen=True, slots=True)
class Remedy:
    """One change of a setting."""

    changes: Mapping[str, Any]
    """Fields of the setting → their new values; a global batch is kept by a second field."""

    memory: Memory
    """As it is with them."""

    @property
    def field(self) -> str:
        """The one that is changed for it; others only follow."""
        return next(iter(self.changes))


def remedies(setting: Setting, shapes: Shapes | None = None) -> Iterator[Remedy]:
    """Single changes with which the training fits for sure, the cheapest first.

    Args:
        shapes: the model's, where it is not the one that the setting's fields describe.
    """
    for changes in (*_smaller(setting), *_recomputed(setting), *_sharded(setting),
                    *_split(setting), *_offloaded(setting)):  # fmt: skip
        changed = Setting.model_validate(setting.model_dump() | changes)
        memory = foresee(changed, shapes)
        if memory.fits == "yes":
            yield Remedy(changes, memory)


def _smaller(setting: Setting) -> Iterator[dict[str, Any]]:
    """Fewer samples at a time, more often."""
    whole = setting.micro_batch * setting.accumulation
    for micro_batch in range(setting.micro_batch - 1, 0, -1):
        if whole % micro_batch == 0:
            yield {"micro_batch": micro_batch, "accumulation": whole // micro_batch}


def _recomputed(setting: Setting) -> Iterator[dict[str, Any]]:
    for policy in RECOMPUTES[RECOMPUTES.index(setting.recompute) + 1 :]:
        yield {"recompute": policy}


def _sharded(setting: Setting) -> Iterator[dict[str, Any]]:
    """What copies are shared instead; then by all data-parallel ranks and not by some."""
    if setting.sharded_over > 1:
        for shard in SHARDS[SHARDS.index(setting.shard) + 1 :]:
            yield {"shard": shard}
    if setting.shard != "none" and 0 < setting.shard_degree < setting.data_parallel:
        yield {"shard_degree": 0}


def _split(setting: Setting) -> Iterator[dict[str, Any]]:
    """Twice, four times … the tensor-parallel ranks, within a node."""
    heads = setting.heads or max(1, setting.hidden // 128)
    shared, times = setting.kv_heads or heads, 2
    while setting.tensor * times <= setting.node_size:
        tensor, accumulation = setting.tensor * times, setting.accumulation * times
        if shared % tensor == 0 and setting.data_parallel % times == 0:
            degree = setting.shard_degree
            kept = degree and setting.data_parallel // times % degree == 0
            yield {
                "tensor": tensor,
                "accumulation": accumulation,
                "sequence_parallel": True,
                "data": 0,
                "shard_degree": degree if kept else 0,
            }
        times *= 2


def _offloaded(setting: Setting) -> Iterator[dict[str, Any]]:
    if setting.offload == "none" and setting.shard == "full":
        yield {"offload": "all"}
