"""What a step of the language model sends between ranks, by the formulas of ``training.traffic``.

No torch here: a cost is forecast with it. Pipelines are left out: ``step`` refuses them.
"""

from collections.abc import Mapping

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
    if config.optimizer == "muon":
        raise ValueError(
            "optimizer muon has no formula here for what its ranks exchange; set it to adamw"
        )
    if config.pipeline_parallel > 1 or config.strategy not in ("single", "ddp", "fsdp"):
        raise ValueError(
            f"strategy {config.strategy} with pipeline_parallel {config.pipeline_parallel} has no "
            "formula here; set strategy to single, ddp or fsdp, and pipeline_parallel to 1"
        )
    found, degrees = Traffic(), degrees_of(config, world)
    data = degrees["replicate"] * degrees["shard"]
    micro_batches = config.micro_batches(world)
    kept = "float64" if config.precision == "float64" else "float32"
    tensor = config.tensor_parallel
    if data > 1 and config.strategy == "ddp" and config.split == 1:
        found = replicated(
            [s for unit in units(config, model, vocabulary) for s in unit.shapes], kept
        )
    elif data > 1:
        half = config.strategy == "fsdp" and config.half is not None
        fewer = config.reshard_after_forward
        found = sharded(
            units(config, model, vocabulary),
            shards=degrees["shard"],
            replicas=degrees["replicate"],
            micro_batches=micro_batches,
            gathered=config.gathered if half else kept,
            reduced=config.reduce_dtype if half else kept,
            accumulation=config.gradient_accumulation if config.strategy == "fsdp" else "unsharded",
            resharded_to=fewer if isinstance(fewer, int) else 0,
        )
    if tensor > 1:
        _add_tensor(found, config, model, micro_batches, data)
    if config.context_parallel > 1:
        _add_context(found, config, model, micro_batches)
    if world > 1:
        _add_loop(found, config, degrees, kept)
    return found


def degrees_of(config: TrainConfig, world: int) -> dict[str, int]:
    """Axis → its ranks; ``world`` is what the loop itself adds up over."""
    data = config.data_parallel(world) * config.context_parallel
    shards = 1
    if config.strategy == "fsdp":
        shards = (config.shard_degree * config.context_parallel) or data
    fewer = config.reshard_after_forward
    return {
        "world": world,
        "replicate": data // shards,
        "shard": shards,
        "reshard": fewer if isinstance(fewer, int) else 1,
        "context": config.context_parallel,
        "tensor": config.tensor_parallel,
    }


def units(config: TrainConfig, model: LanguageModelConfig, vocabulary: int) -> list[Unit]:
    """What is gathered together: an untied embedding, each block, the rest; a rank's slices of it.

    The rest is kept from the forward pass on, and so is what is last of the others by default.
    """
    tensor, dim, width = config.tensor_parallel, model.dim, model.head_width
    rows = model.groups * (model.heads // model.groups + 2) * width // tensor
    heads, hidden = model.heads * width // tensor, model.hidden // tensor
    block: list[Shape] = [(rows, dim), (dim, heads), (hidden, dim), (hidden, dim), (dim, hidden)]
    block += [(dim,), (dim,)]
    block += [(rows,)] if model.attention_bias != "none" else []
    block += [(dim,)] if model.attention_bias == "all" else []
    block += [(width,), (width,)] if model.qk_norm else []
    table: Shape = (-(-vocabulary // tensor), dim)  # the first ranks have a row more
    again = config.reshard_after_forward
    early, late = again != "never", again not in ("never", "default")
    blocks = [Unit(shapes=block, regathered=early) for _ in range(model.layers - 1)]
    blocks.append(Unit(shapes=block, regathered=late))
    rest = Unit(shapes=[table, (dim,)], regathered=False)
    tables = [] if model.tie_embeddings else [Unit(shapes=[table], table=True)]
    return [*tables, *blocks, rest]


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
    if split:
        found.add("tensor", "all_reduce", kept, BYTES[kept], 2)
