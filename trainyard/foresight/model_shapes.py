"""A model's sizes and work that memory and time depend on, per part and for one token.

``from_setting`` computes them by formula for GPT's and Llama's shapes; ``read`` takes those of any
other model from the output of ``python -m training.tools.shapes``.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from trainyard.common.errors import TrainingError
from trainyard.foresight import transformer_formulas
from trainyard.foresight.setting import Setting
from trainyard.foresight.transformer_formulas import WIDTH, ActivationBytes, Shapes, Unit

__all__ = [
    "WIDTH",
    "ActivationBytes",
    "Shapes",
    "Unit",
    "megatron",
    "from_setting",
    "read",
    "widths",
]

_TREE = TypeAdapter(Shapes)


def read(tree: Mapping[str, Any]) -> Shapes:
    """Return shapes from JSON with the fields of ``Shapes`` and ``Unit``; totals are optional.

    A field ``from_setting``, which names the model, is ignored.

    Raises:
        TrainingError: a field is missing, unknown or of another kind.
    """
    try:
        return _TREE.validate_python({name: v for name, v in tree.items() if name != "of"})
    except ValidationError as error:
        first = error.errors()[0]
        location = ".".join(map(str, first["loc"])) or "the whole"
        raise TrainingError(
            f"shapes: {location}: {first['msg']}; expected the output of python -m "
            "training.tools.shapes"
        ) from None


def widths(read: Shapes) -> dict[str, Any]:
    """Return the fields of a traced model that its layouts depend on."""
    block = max(read.units, key=lambda unit: unit.count)
    width = max(1, round(block.output_bytes / WIDTH["bf16"]))
    return {"layers": block.count, "hidden": width, "sequence": read.sequence}


def megatron(setting: Setting) -> bool:
    """Return whether the layout is Megatron's, whose operators are fused unlike torch's."""
    split = setting.tensor * setting.pipeline * setting.context > 1
    return split and setting.shard != "full"


def from_setting(setting: Setting) -> Shapes:
    """Return the shapes of the setting's model: GPT's with learned positions, else Llama's.

    GPT: biases everywhere and layer norms, as in Radford et al. 2019. Llama: no biases, RMS norms
    (Touvron et al. 2023).
    """
    heads = setting.heads or max(1, setting.hidden // 128)
    head, is_fused = setting.hidden // heads, megatron(setting)
    usual = -(-8 * setting.hidden // 3 // 256) * 256 if setting.gated else 4 * setting.hidden
    width = WIDTH[setting.precision]
    master = setting.master and setting.shard == "none"
    widths = transformer_formulas.Widths(
        hidden=setting.hidden,
        heads=heads,
        queries=heads * head,
        keys=(setting.kv_heads or heads) * head,
        ffn=setting.ffn or usual,
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
    units = (
        transformer_formulas.embedding(widths, vocab, widths.is_biased),
        transformer_formulas.block(widths, layers),
        transformer_formulas.head(widths, vocab, tied),
    )
    return Shapes(units=units, sequence=widths.sequence, logits=vocab, tied=tied)
