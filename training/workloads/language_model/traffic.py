"""What a step of the language model sends between ranks, by the formulas of ``training.traffic``.

No torch here: a cost is forecast with it. Pipelines are left out: ``step`` refuses them.
"""

from collections.abc import Mapping
from typing import Any

from training.config import TrainConfig
from training.traffic import BYTES, Kind, Shape, Traffic, Unit, replicated, sharded
from training.workloads.language_model.config import LanguageModelConfig


def step(config: TrainConfig, model: LanguageModelConfig, vocabulary: int, world: int) -> Traffic:
    """One optimizer step of ``world`` ranks, as one of them sends it.

    Args:
        vocabulary: rows of the embedding.

    Raises:
        ValueError: the layout has no formula here.
    """
    if config.pipeline_parallel > 1 or config.strategy not in ("single", "ddp", "fsdp"):
        raise ValueError(
            f"strategy {config.strategy} with pipeline_parallel {config.pipeline_parallel} has no "
            "formula here; set strategy to single, ddp or fsdp, and pipeline_parallel to 1"
        )
    if config.float8 != "none" and config.tensor_parallel > 1:
        raise ValueError(
            f"float8 {config.float8} with tensor_parallel {config.tensor_parallel} has no formula "
            "here, for the scales that ranks agree on; set float8 to none, or tensor_parallel to 1"
        )
    found, degrees = Traffic(), degrees_of(config, world)
    data = degrees["replicate"] * degrees["shard"]
    micro_batches = config.micro_batches(world)
    kept = "float64" if config.precision == "float64" else "float32"
    tensor = config.tensor_parallel
    if data > 1 and config.strategy == "ddp" and config.split * config.expert_parallel == 1:
        found = replicated(
            [s for unit in units(config, model, vocabulary) for s in unit.shapes], kept
        )
    elif data > 1:
        half = config.strategy == "fsdp" and config.half is not None
        fewer = config.reshard_after_forward
        options: dict[str, Any] = {
            "micro_batches": micro_batches,
            "gathered": config.gathered if half else kept,
            "reduced": config.reduce_dtype if half else kept,
            "accumulation": config.gradient_accumulation
            if config.strategy == "fsdp"
            else "unsharded",
            "resharded_to": fewer if isinstance(fewer, int) else 0,
        }
        among = {"shards": degrees["shard"], "replicas": degrees["replicate"]}
        found = sharded(units(config, model, vocabulary), **among, **options)
        if config.expert_parallel > 1:
            among = {"shards": degrees["expert_shard"], "replicas": degrees["expert_replicate"]}
            apart = sharded(_experts(config, model), **among, **options)
            found.rows |= {(f"expert_{axis}", *row): n for (axis, *row), n in apart.rows.items()}
            _add_experts(found, config, model, micro_batches)
    if tensor > 1:
        _add_tensor(found, config, model, micro_batches, data)
    if config.context_parallel > 1:
        _add_context(found, config, model, micro_batches)
    if world > 1:
        _add_loop(found, config, degrees, kept)
        _add_biases(found, config, model, degrees)
        if config.float8_all_gather and degrees["shard"] > 1:  # what is largest in each matrix
            found.add("shard", "all_reduce", "float32", 4 * _cast(config, model) * model.layers)
    return found


def degrees_of(config: TrainConfig, world: int) -> dict[str, int]:
    """Axis → its ranks; ``world`` is what the loop itself adds up over."""
    data = config.data_parallel(world) * config.context_parallel
    shards = 1
    if config.strategy == "fsdp":
        shards = (config.shard_degree * config.context_parallel) or data
    fewer, experts = config.reshard_after_forward, config.expert_parallel
    found = {
        "world": world,
        "replicate": data // shards,
        "shard": shards,
        "reshard": fewer if isinstance(fewer, int) else 1,
        "context": config.context_parallel,
        "tensor": config.tensor_parallel,
    }
    if experts > 1:  # they take their ranks from those that shard, or else from the replicas
        held = data // experts
        replicas = data // shards if config.strategy == "fsdp" else held
        found |= {"expert": experts, "expert_shard": held // replicas, "expert_replicate": replicas}
    return found


def units(config: TrainConfig, model: LanguageModelConfig, vocabulary: int) -> list[Unit]:
    """What is gathered together: an untied embedding, each block, the rest; a rank's slices of it.

    The rest is kept from the forward pass on, and so is what is last of the others by default.
    """
    tensor, dim, width = config.tensor_parallel, model.dim, model.head_width
    rows = model.groups * (model.heads // model.groups + 2) * width // tensor
    heads, hidden = model.heads * width // tensor, model.hidden // tensor
    block: list[Shape] = [(rows, dim), (dim, heads), (hidden, dim), (hidden, dim), (dim, hidden)]
    if model.experts:
        stacked = _stacked(model) if config.expert_parallel == 1 else []
        block[2:] = [(model.experts, dim), *stacked]
    block += [(dim,), (dim,)]
    block += [(rows,)] if model.attention_bias != "none" else []
    block += [(dim,)] if model.attention_bias == "all" else []
    block += [(width,), (width,)] if model.qk_norm else []
    table: Shape = (-(-vocabulary // tensor), dim)  # the first ranks have a row more
    blocks = _each_block(config, model, block, _cast(config, model))
    rest = Unit(shapes=[table, (dim,)], regathered=False)
    tables = [] if model.tie_embeddings else [Unit(shapes=[table], table=True)]
    return [*tables, *blocks, rest]


def _each_block(
    config: TrainConfig, model: LanguageModelConfig, shapes: list[Shape], cast: int = 0
) -> list[Unit]:
    again = config.reshard_after_forward
    early, late = again != "never", again not in ("never", "default")
    return [
        *(Unit(shapes=shapes, regathered=early, cast=cast) for _ in range(model.layers - 1)),
        Unit(shapes=shapes, regathered=late, cast=cast),
    ]


def _cast(config: TrainConfig, model: LanguageModelConfig) -> int:
    """Matrices of a block, the first of its shapes, which are gathered in float8: experts are no
    linear layers."""
    return (2 if model.experts else 5) if config.float8_all_gather else 0


def _stacked(model: LanguageModelConfig, ranks: int = 1) -> list[Shape]:
    """The three weights of all experts, of which each of so many ranks has its part."""
    held = model.experts // ranks
    rows, dim = held * model.hidden, model.dim
    return [(rows, dim), (rows, dim), (held * dim, model.hidden)]


def _experts(config: TrainConfig, model: LanguageModelConfig) -> list[Unit]:
    """Of expert ranks: each block's experts are a unit of their own."""
    return _each_block(config, model, _stacked(model, config.expert_parallel))


def _add_experts(
    found: Traffic, config: TrainConfig, model: LanguageModelConfig, times: int
) -> None:
    """A token goes to its experts' ranks and comes back, and so does its gradient (Lepikhin et al.
    2020, GShard, section 3.2); before it goes, ranks tell each other how many will come.

    In the mean over the ranks: one gives its own tokens, and what has come to it of others'.
    """
    product = _types(config, 2)[1]
    rows = config.micro_batch * model.context_length * model.active_experts
    each, layers = rows * model.dim * BYTES[product], times * model.layers
    found.add("expert", "all_to_all", product, each, 4 * layers)
    found.add("expert", "all_to_all", "int64", model.experts * BYTES["int64"], layers)


def _add_biases(
    found: Traffic, config: TrainConfig, model: LanguageModelConfig, degrees: Mapping[str, int]
) -> None:
    """The routers' biases become the mean of all micro-batches (``training.microbatches``)."""
    meshed = config.strategy == "fsdp" or config.split * config.expert_parallel > 1
    for axis in ("replicate", "shard") if meshed else ("world",):
        if model.experts and degrees[axis] > 1:
            size = model.layers * model.experts * BYTES["float64"]
            found.add(axis, "all_reduce", "float64", size)


def _types(config: TrainConfig, data: int) -> tuple[str, str, str]:
    """Types of weights where they compute, of products, and of gradients as they are kept.

    Under autocast weights are float32 and products are not; what was looked up is a weight's.
    """
    if config.half is None:
        return config.precision, config.precision, config.precision
    gathered = config.strategy == "fsdp" and data > 1
    return config.gathered if gathered else "float32", config.half, "float32"


def _add_tensor(
    found: Traffic, config: TrainConfig, model: LanguageModelConfig, times: int, data: int
) -> None:
    """Shoeybi et al. 2019, section 3: two all-reduces a block and pass; one behind the embedding,
    one for the gradient before the head. With sequence parallelism an all-gather and a
    reduce-scatter in the place of each (Korthikanti et al. 2022, section 4.2.2).

    The loss: largest logit, sum of exponentials and the target's logit of every token.
    """
    weights, product, kept = _types(config, data)
    tokens = config.micro_batch * model.context_length // config.context_parallel
    kinds: tuple[Kind, ...] = ("all_gather", "reduce_scatter")
    for kind in kinds if config.sequence_parallel else ("all_reduce",):
        for dtype, count in ((product, 4 * model.layers + 1), (weights, 1)):
            found.add("tensor", kind, dtype, tokens * model.dim * BYTES[dtype], times * count)
    found.add("tensor", "all_reduce", kept, tokens * BYTES[kept], 3 * times)
    _add_norms(found, config, model, times, data)


def _add_norms(
    found: Traffic, config: TrainConfig, model: LanguageModelConfig, times: int, data: int
) -> None:
    """Gradients of norms that each rank has of its positions or heads alone are added up.

    FSDP2 does it before it reduces a unit's, in their own type; else they are once a step.
    """
    weights, _, kept = _types(config, data)
    sharded = config.strategy == "fsdp" and data > 1
    each = sharded and config.gradient_accumulation == "sharded"
    dtype = weights if sharded and (each or times == 1) else kept
    along = 2 * model.layers + 1 if config.sequence_parallel else 0
    for count, width in ((along, model.dim), (2 * model.layers * model.qk_norm, model.head_width)):
        again = times if each else 1
        found.add("tensor", "all_reduce", dtype, width * BYTES[dtype], count * again)


def _add_context(
    found: Traffic, config: TrainConfig, model: LanguageModelConfig, times: int
) -> None:
    """Each block's keys and values are gathered; their gradients are reduce-scattered.

    Llama 3's way (Dubey et al. 2024, section 3.3.2): grouped heads make them small.
    """
    product = config.precision
    heads = model.groups // config.tensor_parallel
    tokens = config.micro_batch * model.context_length
    whole = 2 * tokens * heads * model.head_width * BYTES[product]
    found.add("context", "all_gather", product, whole, times * model.layers)
    found.add("context", "reduce_scatter", product, whole, times * model.layers)


def _add_loop(found: Traffic, config: TrainConfig, degrees: Mapping[str, int], kept: str) -> None:
    """Units and the loss of all ranks; the gradient's norm, which is one
    number for each way in which weights lie over the ranks: by columns, by rows, whole."""
    found.add("world", "all_reduce", "float64", 8, 2)
    split = config.tensor_parallel > 1
    if degrees["shard"] > 1:
        found.add("shard", "all_reduce", kept, BYTES[kept], 3 if split else 1)
    if config.expert_parallel > 1:
        found.add("expert", "all_reduce", kept, BYTES[kept])
        if degrees["expert_shard"] > 1:
            found.add("expert_shard", "all_reduce", kept, BYTES[kept])
    if split:
        found.add("tensor", "all_reduce", kept, BYTES[kept], 2)
