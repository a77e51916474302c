"""The possible layouts of a training run on given machines, and those that fit.

A layout is a :class:`~trainyard.foresight.setting.Setting` with all its degrees of parallelism.
Impossible layouts are never created: the ranks must be able to share the global batch, the tensor
ranks the heads, and the stages the blocks. Memory decides which of the others fit. It grows with
the micro-batch and shrinks with recomputation, so most layouts are decided by a neighbour, which is
a layout that differs in one of these.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

from trainyard.foresight.setting import BEFORE_AMPERE, Setting, explain_refused_kernel

Shard = Literal["none", "optimizer", "gradients", "full"]
Recompute = Literal["none", "selective", "full"]


class Fit(Protocol):
    """The memory of a layout, as far as this module uses it."""

    @property
    def fits(self) -> Literal["yes", "no", "unsure"]: ...


F = TypeVar("F", bound=Fit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Figures of an instance type that a layout depends on."""

    gpu: str
    gpus: int
    """GPUs of one instance."""

    node_gbps: float
    """Bandwidth of the instance's network, in 10⁹ bits per second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """The values that the fields of a layout may have."""

    shard: Sequence[Shard] = ("none", "optimizer", "gradients", "full")
    """What is sharded, from the most memory to the least."""

    hybrid: bool = True
    """Whether ``full`` may also mean sharding within a node, with a copy in each node."""

    tensor: Sequence[int] = (1, 2, 4, 8)
    pipeline: Sequence[int] = (1, 2, 4, 8, 16, 32)
    interleave: Sequence[int] = (1, 2, 4)
    context: Sequence[int] = (1, 2, 4, 8, 16)
    shortest_share: int = 8192
    """Fewest tokens of a sequence per context-parallel rank. In Llama 3's training, sequences of
    8,192 tokens were not split, and those of 131,072 were split over 16 ranks (arXiv 2407.21783,
    table 4)."""

    micro_batch: Sequence[int] = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
    """Samples per micro-batch, in ascending order."""

    recompute: Sequence[Recompute] = ("none", "selective", "full")
    """Kinds of recomputation, from the most memory to the least."""

    precision: Sequence[str] = ("bf16",)
    refuse: Callable[[Setting], str | None] = lambda setting: None
    """Function that returns why a layout is refused, or None if it is not. It is called for each
    layout that the other fields allow.
    """


@dataclass(slots=True)
class Count:
    """Numbers of layouts that were examined."""

    layouts: int = 0
    """Possible layouts."""

    attempt_count: int = 0
    """Layouts whose memory was computed; the others were decided by a neighbour."""

    fit: int = 0
    refusal_count: int = 0
    """Layouts that :attr:`Space.refuse` refused."""

    refusal: str = ""
    """Reason for the first refusal; empty if there was none."""


def list_node_counts(max_nodes: int) -> list[int]:
    """Return the numbers of nodes to try: powers of two, 1.5 times those, and ``max_nodes``
    itself.
    """
    powers = [2**exponent for exponent in range(max_nodes.bit_length())]
    return sorted(
        {n for power in powers for n in (power, power * 3 // 2) if n <= max_nodes} | {max_nodes}
    )


def iter_fitting_layouts(
    model: Setting,
    machine: Machine,
    nodes: int,
    global_batch: int,
    space: Space,
    predict_memory: Callable[[Setting], F],
    count: Count,
) -> Iterator[tuple[Setting, F]]:
    """Iterate over the layouts of ``model`` on ``nodes`` machines that fit or may fit.

    Each is returned as (layout, its memory). Of layouts that differ only in recomputation, the one
    with the least that surely fits is returned, and those with less that may fit: more
    recomputation would only take longer.

    Args:
        model: a setting whose fields say what is trained; the fields of the layout are replaced.
        machine: type of the machines.
        nodes: number of machines.
        global_batch: samples of an optimizer step, over all ranks.
        space: values that the fields of a layout may have.
        predict_memory: returns the memory of a layout.
        count: counters that are increased.
    """
    base = model.model_copy(
        update={
            "gpu": machine.gpu,
            "gpus": machine.gpus * nodes,
            "gpus_per_node": machine.gpus,
            "node_gbps": machine.node_gbps,
            "data": 0,
        }
    )
    # The attention kernel does not run on this GPU: no layout is possible.
    if explain_refused_kernel(base.gpu, base.attention):
        return
    for degrees, per_rank in _iter_degrees(base, global_batch, space):
        micro = [
            size for size in space.micro_batch if _is_valid_micro_batch(per_rank, size, degrees)
        ]
        for shard, shard_degree in _iter_sharings(base, degrees, space):
            family = base.model_copy(
                update={**degrees, "data": 0, "shard": shard, "shard_degree": shard_degree}
            )
            attempt_count = count.attempt_count
            layouts = list(
                _iter_fitting_in_family(family, per_rank, micro, space, predict_memory, count)
            )
            yield from layouts
            # Shardings come in ascending order of memory: if this one fits nothing, no other does.
            if not layouts and not shard_degree and count.attempt_count > attempt_count:
                break


def _iter_sharings(
    base: Setting, degrees: dict[str, Any], space: Space
) -> Iterator[tuple[Shard, int]]:
    """Iterate over (what is sharded, over how many ranks or 0 for all), least memory first."""
    data, context = degrees["data"], degrees["context"]
    node_ranks = base.node_size // (degrees["tensor"] * context)
    for shard in reversed(space.shard):
        if shard == "none" or data * context > 1:
            yield shard, 0
        if shard == "full" and space.hybrid and 1 < node_ranks < data and data % node_ranks == 0:
            yield shard, node_ranks


def _iter_degrees(
    base: Setting, global_batch: int, space: Space
) -> Iterator[tuple[dict[str, Any], int]]:
    """Iterate over (degrees and precision, samples per data-parallel rank) of all layouts."""
    gpus, node = base.gpus, base.node_size
    for tensor in space.tensor:
        if node % tensor or not _can_split_heads(base, tensor):
            continue
        for context in space.context:
            rank_tokens, remainder = divmod(base.sequence, context)
            if context > 1 and (remainder or rank_tokens < space.shortest_share):
                continue
            for pipeline in space.pipeline:
                data, remainder = divmod(gpus, tensor * pipeline * context)
                if remainder or not data or global_batch % data:
                    continue
                for interleave in space.interleave:
                    if not _has_equal_stages(base.layers, pipeline, interleave):
                        continue
                    for precision in _iter_precisions(base, space):
                        degrees = {
                            "tensor": tensor,
                            "sequence_parallel": tensor > 1,
                            "context": context,
                            "pipeline": pipeline,
                            "interleave": interleave,
                            "precision": precision,
                            "data": data,
                        }
                        yield degrees, global_batch // data


def _iter_precisions(base: Setting, space: Space) -> Iterator[str]:
    """Iterate over the precisions of the device; before Ampere, float16 replaces bfloat16."""
    for precision in space.precision:
        if precision == "bf16" and base.gpu in BEFORE_AMPERE:
            yield "fp16"
        elif precision != "fp8" or base.device.fp8_tflops:
            yield precision


def _can_split_heads(base: Setting, tensor: int) -> bool:
    """Return whether each of ``tensor`` ranks gets the same number of whole heads."""
    # Weights that bitsandbytes has packed cannot be shared (huggingface/transformers, issue 38122).
    if base.quantization != "none" and tensor > 1:
        return False
    heads = base.heads or max(1, base.hidden // 128)
    groups = base.kv_heads or heads
    return not (heads % tensor or groups % tensor or base.hidden % tensor or base.ffn % tensor)


def _has_equal_stages(layers: int, pipeline: int, interleave: int) -> bool:
    """Return whether all stages have the same number of blocks.

    Embedding and head may count as one block each, as in Llama 3 405B, which has 126 = 128 − 2
    blocks for that reason (section 3.3.2).
    """
    if pipeline == 1:
        return interleave == 1
    stages = pipeline * interleave
    return stages <= layers and (layers % stages == 0 or (layers + 2) % stages == 0)


def _is_valid_micro_batch(per_rank: int, micro_batch: int, degrees: dict[str, Any]) -> bool:
    """Return whether a rank's samples can be divided into whole micro-batches.

    There have to be enough of them to keep all ranks of a pipeline busy.
    """
    micro_batches, remainder = divmod(per_rank, micro_batch)
    if remainder or micro_batches < degrees["pipeline"]:
        return False
    # Interleaved schedules process micro-batches in rounds of as many as there are pipeline ranks
    # (Narayanan 2021).
    return degrees["interleave"] == 1 or micro_batches % degrees["pipeline"] == 0


def _iter_fitting_in_family(
    family: Setting,
    per_rank: int,
    micro_batches: Sequence[int],
    space: Space,
    predict_memory: Callable[[Setting], F],
    count: Count,
) -> Iterator[tuple[Setting, F]]:
    """Iterate over the layouts of a family that fit or may fit, with their memory.

    A family is the layouts that differ only in micro-batch and recomputation. The search follows
    the edge of what fits, like stairs: it increases the micro-batch, and if that no longer fits, it
    increases the recomputation. So it computes the memory of few layouts.
    """
    count.layouts += len(micro_batches) * len(space.recompute)
    level = 0
    for micro_batch in micro_batches:
        # A larger micro-batch needs at least as much recomputation as a smaller one.
        for deeper in range(level, len(space.recompute)):
            setting = family.model_copy(
                update={
                    "micro_batch": micro_batch,
                    "accumulation": per_rank // micro_batch,
                    "recompute": space.recompute[deeper],
                }
            )
            if refusal := space.refuse(setting):
                count.refusal_count += 1
                count.refusal = count.refusal or refusal
                continue
            count.attempt_count += 1
            answer = predict_memory(setting)
            if answer.fits != "no":
                count.fit += 1
                yield setting, answer
            if answer.fits == "yes":
                break
            level = deeper + 1 if answer.fits == "no" else level
        if level == len(space.recompute):
            return
