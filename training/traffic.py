"""What the ranks send each other in one optimizer step, in closed form. No torch here.

Bytes are those of the whole tensor: of what an all-gather gives, a reduce-scatter takes, an
all-reduce sums up. Over the wire of each rank go, in a ring of n (Thakur et al. 2005), (n - 1) / n
of it for an all-gather or a reduce-scatter, twice that for an all-reduce. Of an all-to-all they are
what a rank gives; as much of it leaves when each gets equally much. ``python -m
benchmarks.collectives`` counts real steps beside this.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

Kind = Literal["all_gather", "reduce_scatter", "all_reduce", "all_to_all", "broadcast", "send"]
Shape = tuple[int, ...]
BYTES: Mapping[str, int] = {
    **{"bfloat16": 2, "float16": 2, "float32": 4, "float64": 8, "int32": 4, "int64": 8}
}
RING: Mapping[Kind, int] = {"all_gather": 1, "reduce_scatter": 1, "all_reduce": 2, "all_to_all": 1}
"""Kind → how often (n - 1) / n of the tensor leaves a rank."""


@dataclass
class Traffic:
    """(axis of the mesh, kind, type) → (messages, bytes of their whole tensors)."""

    rows: dict[tuple[str, Kind, str], tuple[int, int]] = field(default_factory=dict)

    def add(self, axis: str, kind: Kind, dtype: str, size: int, times: int = 1) -> None:
        """``times`` messages of ``size`` bytes each."""
        if times:
            count, total = self.rows.get((axis, kind, dtype), (0, 0))
            self.rows[axis, kind, dtype] = count + times, total + size * times

    def wire(self, degrees: Mapping[str, int]) -> float:
        """Bytes that leave a rank, of an axis → its number of ranks."""
        return sum(
            size * RING.get(kind, 1) * ((n - 1) / n if kind in RING else 1)
            for (axis, kind, _), (_, size) in self.rows.items()
            for n in [degrees[axis]]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Weights that FSDP2 gathers together: the shapes that a tensor-parallel rank has of them."""

    shapes: Sequence[Shape]
    regathered: bool = True
    """Whether the backward pass gathers them once more."""
    table: bool = False
    """Whether the backward pass has no need of them: an embedding."""
    cast: int = 0
    """How many of the shapes, from the first on, are gathered in float8."""

    def elements(self, shards: int) -> int:
        """Of all ranks together: the first dimension is filled up to a multiple of ``shards``
        (torch's FSDPParam pads each rank's part to the first one's)."""
        return sum(-(-s[0] // shards) * shards * math.prod(s[1:]) for s in self.shapes)

    def gathered(self, shards: int, dtype: str) -> tuple[str, int]:
        """(type of what is gathered, its bytes); of several types FSDP2 gathers the bytes."""
        if not self.cast:
            return dtype, self.elements(shards) * BYTES[dtype]
        narrow = replace(self, shapes=self.shapes[: self.cast]).elements(shards)
        return "uint8", narrow + (self.elements(shards) - narrow) * BYTES[dtype]


def sharded(
    units: Iterable[Unit],
    *,
    shards: int,
    replicas: int = 1,
    micro_batches: int = 1,
    gathered: str = "float32",
    reduced: str = "float32",
    accumulation: str = "sharded",
    resharded_to: int = 0,
) -> Traffic:
    """FSDP2 (Rajbhandari et al. 2020, ZeRO, section 7; Zhao et al. 2023): a unit's weights are
    gathered in each micro-batch's forward pass, and again in the backward pass where they were
    freed; its gradients are reduce-scattered, and under hybrid sharding a rank's part of them is
    all-reduced over the replicas, once a step.

    ``resharded_to``: ranks that share the weights between the passes; the second gather is theirs.
    """
    found = Traffic()
    for unit in units:
        whole = unit.elements(shards)
        forward, backward = micro_batches, micro_batches * (unit.regathered and not unit.table)
        again = "reshard" if resharded_to else "shard"
        if shards > 1:
            kind, size = unit.gathered(shards, gathered)
            found.add("shard", "all_gather", kind, size, forward)
            found.add(again, "all_gather", kind, size, backward)
            scatters = micro_batches if accumulation == "sharded" else 1
            found.add("shard", "reduce_scatter", reduced, whole * BYTES[reduced], scatters)
        if replicas > 1:
            found.add("replicate", "all_reduce", reduced, whole // shards * BYTES[reduced])
    return found


def replicated(shapes: Sequence[Shape], dtype: str = "float32") -> Traffic:
    """DistributedDataParallel (Li et al. 2020, section 3.2): one all-reduce a bucket and step, of
    gradients in the reverse order of the weights; and one that says which weights were used.

    torch closes a bucket once it holds 1 MiB, if it is the first, or 25 MiB
    (``_compute_bucket_assignment_by_size``, ``_DEFAULT_FIRST_BUCKET_BYTES``).
    """
    found, filled, limit = Traffic(), 0, 2**20
    for shape in reversed(shapes):
        filled += math.prod(shape) * BYTES[dtype]
        if filled >= limit:
            found.add("world", "all_reduce", dtype, filled)
            filled, limit = 0, 25 * 2**20
    if filled:
        found.add("world", "all_reduce", dtype, filled)
    found.add("world", "all_reduce", "int32", 4 * len(shapes))
    return found
