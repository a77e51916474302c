"""A Hugging Face config.json as settings of the language model: Llama, Mistral, Qwen2, Qwen3.

python -m training.workloads.language_model.hugging_face config.json

prints the ``workload.config`` of a recipe that trains such a model. No torch, so that a recipe can
be held against its base before anything runs.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainyard.common.errors import TrainingError

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
ROPE = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
OF_TRAINING = {"attend", "tokenizer", "context_length", "records"}
"""Settings that make other samples, or train them otherwise, and no other model."""
ONE_WAY: Mapping[str, tuple[Any, ...]] = {
    "hidden_act": ("silu",),
    "mlp_bias": (False, None),
    "partial_rotary_factor": (1.0, None),
    "pretraining_tp": (1, None),
    "quantization_config": (None,),
}
"""What has to be so, or be left out: our decoder knows no other way."""


def settings(description: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of LanguageModelConfig that make the model of a config.json.

    Everything but ``tokenizer``; ``context_length`` is the longest that the model knows.

    Raises:
        TrainingError: it is a model of another kind; names the field, its value, what is known.
    """
    family = description.get("model_type")
    _one_of("model_type", family, FAMILIES)
    for name, known in ONE_WAY.items():
        _one_of(name, description.get(name, known[0]), known)
    if description.get("sliding_window") and description.get("use_sliding_window", True):
        _one_of("sliding_window", description["sliding_window"], (None,))
    try:
        heads, dim = description["num_attention_heads"], description["hidden_size"]
        return {
            "context_length": description["max_position_embeddings"],
            "layers": description["num_hidden_layers"],
            "heads": heads,
            "dim": dim,
            "kv_heads": description.get("num_key_value_heads") or heads,
            # Qwen3's own default is no quotient (transformers: configuration_qwen3.py).
            "head_dim": description.get("head_dim") or (128 if family == "qwen3" else dim // heads),
            "hidden_dim": description["intermediate_size"],
            "tie_embeddings": bool(description.get("tie_word_embeddings", False)),
            "vocabulary": description["vocab_size"],
            "norm_eps": description.get("rms_norm_eps", 1e-6),
            "attention_bias": _bias(family, description),
            "qk_norm": family == "qwen3",
            **_rope(description),
        }
    except KeyError as error:
        raise TrainingError(f"config.json of the base: {error.args[0]} is missing") from None


def differences(config: Any, description: Mapping[str, Any]) -> list[str]:
    """What of a recipe's settings makes another model than the config.json, in words.

    Args:
        config: a LanguageModelConfig, whose module imports this one.

    Raises:
        TrainingError: the config.json is of a model that our decoder is not.
    """
    given = type(config).model_validate({"tokenizer": config.tokenizer, **settings(description)})
    mine, theirs = _shape(config), _shape(given)
    found = [
        f"workload.config.{name} is {mine[name]}, the base has {theirs[name]}"
        for name in mine
        if mine[name] != theirs[name]
    ]
    if config.context_length > given.context_length:
        found.append(
            f"workload.config.context_length is {config.context_length}, the base knows "
            f"{given.context_length} positions"
        )
    return found


def _shape(config: Any) -> dict[str, Any]:
    """All that shapes the model, its defaults worked out."""
    worked = {"kv_heads": config.groups, "head_dim": config.head_width, "hidden_dim": config.hidden}
    known = config.model_dump(mode="json", exclude=OF_TRAINING) | worked
    if config.vocabulary is None and config.tokenizer == "bytes":
        known["vocabulary"] = 257
    return known


def _rope(description: Mapping[str, Any]) -> dict[str, Any]:
    """``rope_parameters`` has all of it from transformers 5 on, two fields had it before."""
    given = description.get("rope_parameters") or description.get("rope_scaling") or {}
    kind = given.get("rope_type", given.get("type", "default"))
    _one_of("rope_scaling.rope_type", kind, ("default", "linear", "llama3"))
    theta = given.get("rope_theta", description.get("rope_theta", 10_000.0))
    chosen = {"rope_type": kind} | {n: given[n] for n in ROPE if given.get(n) is not None}
    return {"rope_theta": theta, "rope_scaling": None if kind == "default" else chosen}


def _bias(family: str, description: Mapping[str, Any]) -> str:
    if family == "qwen2":  # always, and of these three (transformers: modeling_qwen2.py)
        return "qkv"
    return "all" if description.get("attention_bias") else "none"


def _one_of(name: str, value: Any, known: tuple[Any, ...]) -> None:
    if value not in known:
        raise TrainingError(
            f"config.json of the base: {name} is {value!r}; the language model knows "
            f"{', '.join(map(repr, known))}"
        )


def main(path: str) -> None:
    """Print the settings as YAML, which JSON is, too."""
    found = settings(json.loads(Path(path).read_bytes()))
    print("\n".join(f"{name}: {json.dumps(value)}" for name, value in found.items()))


if __name__ == "__main__":
    main(sys.argv[1])
