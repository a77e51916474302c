"""The transformer's weights as the rest of the world names them: Hugging Face's Llama.

The model is a Llama, so that its artifact loads with ``AutoModelForCausalLM.from_pretrained`` and
whatever else reads that format, without a line of ours.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from training.workloads.language_model.config import LanguageModelConfig
from training.workloads.language_model.model import ROPE_BASE

OUTSIDE = {"embedding.weight": "model.embed_tokens.weight", "norm.weight": "model.norm.weight"}
INSIDE = {
    "attention_norm.weight": "input_layernorm.weight",
    "attention.out.weight": "self_attn.o_proj.weight",
    "feed_forward_norm.weight": "post_attention_layernorm.weight",
    "feed_forward.gate.weight": "mlp.gate_proj.weight",
    "feed_forward.up.weight": "mlp.up_proj.weight",
    "feed_forward.down.weight": "mlp.down_proj.weight",
}
"""Our names → theirs, outside and inside of a block; q, k and v are one matrix of ours."""
QKV = tuple(f"self_attn.{letter}_proj.weight" for letter in "qkv")


def export(config: LanguageModelConfig, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Llama's names → weights; ``attention.qkv`` (heads × 3 × width, dim) is taken apart."""
    found = {theirs: weights[ours] for ours, theirs in OUTSIDE.items()}
    for block in range(config.layers):
        ours, theirs = f"blocks.{block}.", f"model.layers.{block}."
        found |= {theirs + there: weights[ours + here] for here, there in INSIDE.items()}
        qkv = weights[f"{ours}attention.qkv.weight"]
        parts = qkv.view(config.heads, 3, -1, qkv.shape[1]).unbind(1)
        found |= {theirs + n: part.flatten(0, 1) for n, part in zip(QKV, parts, strict=True)}
    return found


def restore(config: LanguageModelConfig, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What ``export`` was given.

    Raises:
        KeyError: a weight is missing.
    """
    found = {ours: weights[theirs] for ours, theirs in OUTSIDE.items()}
    for block in range(config.layers):
        ours, theirs = f"blocks.{block}.", f"model.layers.{block}."
        found |= {ours + here: weights[theirs + there] for here, there in INSIDE.items()}
        parts = [weights[theirs + name].unflatten(0, (config.heads, -1)) for name in QKV]
        found[f"{ours}attention.qkv.weight"] = torch.stack(parts, 1).flatten(0, 2)
    return found


def describe(
    config: LanguageModelConfig, weights: Mapping[str, Tensor], end: int
) -> dict[str, Any]:
    """Llama's config.json of exported weights; ``end`` is the token that ends a text."""
    vocabulary, dim = weights["model.embed_tokens.weight"].shape
    hidden, _ = weights["model.layers.0.mlp.gate_proj.weight"].shape
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocabulary,
        "hidden_size": dim,
        "intermediate_size": hidden,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.heads,
        "max_position_embeddings": config.context_length,
        "rms_norm_eps": torch.finfo(torch.float32).eps,  # nn.RMSNorm's own default
        "rope_theta": ROPE_BASE,
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": True,
        "bos_token_id": end,
        "eos_token_id": end,
    }
