"""The transformer's weights under Hugging Face's names for Llama and Qwen.

The model is a Llama, with biases of queries, keys and values a Qwen2, with norms of queries and
keys a Qwen3; so its artifact loads with ``AutoModelForCausalLM.from_pretrained`` and other software
that reads that format, without our code; and their models load here.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from training.workloads.language_model.config import LanguageModelConfig

INSIDE = {
    "attention_norm.weight": "input_layernorm.weight",
    "attention.out.weight": "self_attn.o_proj.weight",
    "feed_forward_norm.weight": "post_attention_layernorm.weight",
    **{f"feed_forward.{x}.weight": f"mlp.{x}_proj.weight" for x in ("gate", "up", "down")},
}
"""Our names → theirs inside a block; q, k and v are one matrix in ours."""
QKV = tuple(f"self_attn.{letter}_proj" for letter in "qkv")
NORMS = {f"attention.{x}_norm.weight": f"self_attn.{x}_norm.weight" for x in "qk"}


def names(config: LanguageModelConfig) -> Iterator[tuple[str, str]]:
    """Yield (our name, theirs) of each weight that is a single one on both sides."""
    yield "embedding.weight", "model.embed_tokens.weight"
    yield "norm.weight", "model.norm.weight"
    inside = INSIDE | (NORMS if config.qk_norm else {})
    if config.attention_bias == "all":
        inside |= {"attention.out.bias": "self_attn.o_proj.bias"}
    for block in range(config.layers):
        our_prefix, their_prefix = f"blocks.{block}.", f"model.layers.{block}."
        yield from (
            (our_prefix + our_name, their_prefix + their_name)
            for our_name, their_name in inside.items()
        )
    if not config.tie_embeddings:
        yield "unembedding.weight", "lm_head.weight"


def joined_names(config: LanguageModelConfig) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield (our name of ``attention.qkv``'s weight or bias, theirs of q, k and v)."""
    kinds = ("weight",) if config.attention_bias == "none" else ("weight", "bias")
    for block in range(config.layers):
        for kind in kinds:
            their_names = tuple(f"model.layers.{block}.{name}.{kind}" for name in QKV)
            yield f"blocks.{block}.attention.qkv.{kind}", their_names


def split_qkv(config: LanguageModelConfig, qkv: Tensor) -> list[Tensor]:
    """Split (kv_heads × (heads / kv_heads + 2) × width, …) into q, k and v."""
    group_size = config.heads // config.groups
    groups = qkv.unflatten(0, (config.groups, group_size + 2, -1))
    return [part.flatten(0, 2) for part in groups.split((group_size, 1, 1), dim=1)]


def join_qkv(config: LanguageModelConfig, parts: list[Tensor]) -> Tensor:
    """Join q, k and v; the inverse of ``split_qkv``."""
    split = [part.unflatten(0, (config.groups, -1, config.head_width)) for part in parts]
    return torch.cat(split, 1).flatten(0, 2)


def export(config: LanguageModelConfig, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the given weights under their names; ``attention.qkv`` is split."""
    tensors = {
        their_name: weights[our_name]
        for our_name, their_name in names(config)
        if our_name in weights
    }
    for our_name, their_names in joined_names(config):
        if our_name in weights:
            tensors |= zip(their_names, split_qkv(config, weights[our_name]), strict=True)
    return tensors


def restore(config: LanguageModelConfig, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights under our names; the inverse of ``export``.

    Raises:
        KeyError: a weight is missing.
    """
    tensors = {our_name: weights[their_name] for our_name, their_name in names(config)}
    for our_name, their_names in joined_names(config):
        tensors[our_name] = join_qkv(config, [weights[name] for name in their_names])
    return tensors


def export_adapters(
    config: LanguageModelConfig, adapters: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Rename adapters to their exported layers. That of ``attention.qkv`` becomes three, which
    share A and have a part of B each.
    """
    new_names = {
        our_name.removesuffix(".weight"): their_name for our_name, their_name in names(config)
    }
    parts = {
        our_name.removesuffix(".weight"): their_names
        for our_name, their_names in joined_names(config)
    }
    tensors: dict[str, Tensor] = {}
    for name, tensor in adapters.items():
        layer, _, kind = name.rpartition(".")
        their_names = parts.get(layer, (new_names.get(layer, ""),))
        split = split_qkv(config, tensor) if layer in parts and kind == "lora_B" else [tensor] * 3
        for their, part in zip(their_names, split, strict=False):
            tensors[f"{their.removesuffix('.weight')}.{kind}"] = part
    return tensors


def family(config: LanguageModelConfig) -> tuple[str, str]:
    """Return (``model_type``, class) with which transformers reads the model."""
    if config.qk_norm:
        return "qwen3", "Qwen3ForCausalLM"
    if config.attention_bias == "qkv":
        return "qwen2", "Qwen2ForCausalLM"
    return "llama", "LlamaForCausalLM"


def describe(config: LanguageModelConfig, vocabulary: int, end: int) -> dict[str, Any]:
    """Return their config.json; ``vocabulary``: the embedding's rows, ``end``: the end token."""
    model_type, name = family(config)
    scaling = config.rope_scaling.model_dump() if config.rope_scaling else None
    return {
        "architectures": [name],
        "model_type": model_type,
        "vocab_size": vocabulary,
        "hidden_size": config.dim,
        "intermediate_size": config.hidden,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.groups,
        "head_dim": config.head_width,
        "max_position_embeddings": config.context_length,
        "rms_norm_eps": config.norm_eps or torch.finfo(torch.float32).eps,  # nn.RMSNorm's default
        "rope_theta": config.rope_theta,
        **({"rope_scaling": scaling} if scaling else {}),
        "hidden_act": "silu",
        "attention_bias": config.attention_bias == "all",
        "tie_word_embeddings": config.tie_embeddings,
        "bos_token_id": end,
        "eos_token_id": end,
    }
