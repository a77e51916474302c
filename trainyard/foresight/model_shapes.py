"""The sizes and the work of a model's parts, per token, from which memory and time are computed.

``derive_shapes`` computes them by formula for models like GPT and Llama; ``parse_shapes`` takes
those of any other model from the output of ``python -m training.tools.shapes``.
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from trainyard.common.errors import RecipeError, TrainingError, suggest_nearest
from trainyard.foresight import transformer_formulas
from trainyard.foresight.setting import Setting
from trainyard.foresight.transformer_formulas import WIDTH, Shapes

_TREE = TypeAdapter(Shapes)


def parse_shapes(tree: Mapping[str, Any]) -> Shapes:
    """Return shapes from JSON with the fields of ``Shapes`` and ``Unit``; totals are optional.

    The field ``of``, which names the model, is ignored.

    Raises:
        TrainingError: a field is missing, unknown, or of another type.
    """
    try:
        return _TREE.validate_python({name: v for name, v in tree.items() if name != "of"})
    except ValidationError as error:
        first = error.errors()[0]
        location = ".".join(map(str, first["loc"])) or "the document"
        raise TrainingError(
            f"shapes: {location}: {first['msg']}; expected the output of python -m "
            "training.tools.shapes"
        ) from None


def compute_widths(shapes: Shapes) -> dict[str, Any]:
    """Derive the fields of a Setting on which layouts depend from the shapes of a model."""
    block = max(shapes.units, key=lambda unit: unit.count)
    width = max(1, round(block.output_bytes / WIDTH["bf16"]))
    return {"layers": block.count, "hidden": width, "sequence": shapes.sequence}


def is_megatron(setting: Setting) -> bool:
    """Return whether the layout is Megatron's, which fuses operators that torch does not fuse."""
    split = setting.tensor * setting.pipeline * setting.context > 1
    return split and setting.shard != "full"


def derive_shapes(setting: Setting) -> Shapes:
    """Return the shapes of the setting's model: a GPT if its positions are learned, else a Llama.

    GPT: biases everywhere and layer norms, as in Radford et al. 2019. Llama: no biases, RMS norms
    (Touvron et al. 2023).
    """
    heads = setting.heads or max(1, setting.hidden // 128)
    head, is_fused = setting.hidden // heads, is_megatron(setting)
    # The usual width of a Llama's feed-forward layer: 8/3 of the hidden width, rounded up to 256.
    default_width = (
        -(-8 * setting.hidden // 3 // 256) * 256 if setting.gated else 4 * setting.hidden
    )
    width = WIDTH[setting.precision]
    master = setting.master and setting.shard == "none"
    widths = transformer_formulas.Widths(
        hidden=setting.hidden,
        heads=heads,
        queries=heads * head,
        keys=(setting.kv_heads or heads) * head,
        ffn=setting.ffn or default_width,
        is_gated=setting.gated,
        is_biased=setting.positions == "learned",
        dropout=setting.dropout > 0,
        full_attention=setting.attention == "full",
        sequence=setting.sequence,
        bytes=width,
        megatron=is_fused,
        torch_tensor=setting.tensor > 1 and not is_fused,
        autocast=master and not is_fused and not setting.compile and width == 2,
        is_compiled=setting.compile,
        rank=setting.lora_rank,
        is_quantized=setting.quantization != "none",
    )
    return _build_shapes(widths, setting.layers, setting.vocab, setting.tied)


@lru_cache(maxsize=4096)
def _build_shapes(
    widths: transformer_formulas.Widths, layers: int, vocab: int, tied: bool
) -> Shapes:
    """Return the shapes of a model that consists of embedding, blocks and head; cached."""
    units = (
        transformer_formulas.build_embedding(widths, vocab, widths.is_biased),
        transformer_formulas.build_block_unit(widths, layers),
        transformer_formulas.build_head(widths, vocab, tied),
    )
    return Shapes(units=units, sequence=widths.sequence, logits=vocab, tied=tied)


# Published models: their shapes, and how they were trained, each with its source.

ADAPTED_BATCH = 16
"""Samples per step when adapters of any size are trained on OASST1: Dettmers et al. 2023 (arXiv
2305.14314), table 9."""

TUNED_BATCH = 64
"""Samples per step when all weights are fine-tuned: Llama 2 (arXiv 2307.09288), section 3.1."""

_SHAPE = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "sequence")


@dataclass(frozen=True, slots=True)
class Model:
    """A published model, and how it was trained."""

    shape: Mapping[str, Any]
    """The fields of a :class:`~trainyard.foresight.setting.Setting` that were published;
    ``sequence`` is the context length of most of its training."""

    tokens: float | None
    """Number of tokens in its training; None if it is not published."""

    batch_tokens: float | None
    """Tokens per optimizer step; if the batch grew, the last value. None if not published."""

    source: str


def _parse_model(row: Mapping[str, str]) -> Model:
    shape: dict[str, Any] = {name: int(row[name]) for name in _SHAPE}
    shape |= {"gated": row["gated"] == "yes", "positions": row["positions"]}
    tokens, batch = (float(row[name] or 0) or None for name in ("tokens", "batch_tokens"))
    return Model(shape, tokens, batch, row["source"])


with Path(__file__).with_name("models.csv").open(encoding="utf-8", newline="") as _file:
    MODELS: Mapping[str, Model] = {row["name"]: _parse_model(row) for row in csv.DictReader(_file)}
"""Mapping of a model's name to the model."""


def get_model(name: str) -> Model:
    """Return the published model with that name.

    Raises:
        RecipeError: the table has no such model.
    """
    if name not in MODELS:
        raise RecipeError(
            f"--model {name}: is not in the table; {suggest_nearest(name, [*MODELS])}; for "
            "another model, give --layers, --hidden, … or --shapes shapes.json"
        )
    return MODELS[name]
