"""Other words for a Setting's fields and values, as frameworks and papers use them."""

import re
from collections.abc import Mapping
from typing import Any

from trainyard.foresight.gpus import GPUS

NAMES: Mapping[str, str] = {
    "num_layers": "layers",
    "hidden_size": "hidden",
    "num_heads": "heads",
    "num_attention_heads": "heads",
    "num_kv_heads": "kv_heads",
    "num_key_value_heads": "kv_heads",
    "ffn_hidden_size": "ffn",
    "intermediate_size": "ffn",
    "vocab_size": "vocab",
    "tie_word_embeddings": "tied",
    "seq_len": "sequence",
    "sequence_length": "sequence",
    "micro_batch_size": "micro_batch",
    "gradient_accumulation": "accumulation",
    "gradient_accumulation_steps": "accumulation",
    "world_size": "gpus",
    "tp": "tensor",
    "pp": "pipeline",
    "cp": "context",
    "dp": "data",
    "optimizer_in_bwd": "optimizer_in_backward",
}
"""Transformers', Megatron's and torchtitan's names of fields."""

_YES_NO = {False: "none", None: "none", "false": "none", "no": "none", "off": "none"}
_16_BITS = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16"}
_DTYPES = {**_16_BITS, "float32": "fp32", "float": "fp32", "32": "fp32"}

VALUES: Mapping[str, Mapping[Any, Any]] = {
    "positions": {"rope": "rotary", "none": "rotary", "alibi": "rotary", "absolute": "learned"},
    "dropout": {True: 0.1, False: 0.0},
    "shard": {
        **_YES_NO,
        **dict.fromkeys(("ddp", "no_shard", "zero0", "0"), "none"),
        **dict.fromkeys(("zero1", "zero-1", "os", "distributed_optimizer", "1"), "optimizer"),
        **dict.fromkeys(
            ("zero2", "zero-2", "gradient", "grads", "shard_grad_op", "2"), "gradients"
        ),
        **dict.fromkeys(
            ("zero3", "zero-3", "fsdp", "fsdp2", "full_shard", "3", True, "true"), "full"
        ),
    },
    "recompute": {
        **_YES_NO,
        **dict.fromkeys(("sac", "sac-op", "selective_op", "op"), "selective"),
        **dict.fromkeys((True, "true", "yes", "all", "full-ac", "block"), "full"),
    },
    "attention": {
        **dict.fromkeys((True, "sdpa", "flash_attention", "flash-attention"), "flash"),
        **dict.fromkeys(("flash_attention_1", "flash-1", "triton"), "flash1"),
        **dict.fromkeys(("flash_attention_2", "flash-2", "flashattention2"), "flash2"),
        **dict.fromkeys(("flash3", "flash_attention_3", "flash-3", "te"), "cudnn"),
        **dict.fromkeys((False, "eager", "math", "standard", "naive", "none", "torch"), "full"),
    },
    "precision": {
        **_DTYPES,
        **dict.fromkeys(("amp", "bf16-mixed", "bf16-true"), "bf16"),
        "fp16-mixed": "fp16",
        **dict.fromkeys(("float8", "fp8-tensor", "fp8_tensor", "fp8-row", "fp8-mixed"), "fp8"),
    },
    "gradient_dtype": _DTYPES,
    "master": {
        **dict.fromkeys(("fp32", "float32", "32"), True),
        **dict.fromkeys(("bf16", "fp16", "bfloat16", "float16", "none", None), False),
    },
    "optimizer": {
        **dict.fromkeys(("adam", "fusedadam", "fused_adamw", "adamw_fused"), "adamw"),
        **dict.fromkeys(("adamw_torch", "paged_adamw", "adamw_torch_fused"), "adamw"),
        **dict.fromkeys(
            (
                "adam8bit",
                "adamw8bit",
                "adam_8bit",
                "adamw_bnb_8bit",
                "paged_adamw_8bit",
                "pagedadamw8bit",
                "paged_adamw_8bits",
            ),
            "adamw_8bit",
        ),
        **dict.fromkeys(("lion", "sgd_momentum", "sgd-momentum"), "momentum"),
        None: "none",
    },
    "offload": {
        **_YES_NO,
        **dict.fromkeys(("cpu", "optimizer_state", True), "optimizer"),
        **dict.fromkeys(("params", "parameters", "full"), "all"),
    },
    "quantization": {
        **_YES_NO,
        **dict.fromkeys(("4bit", "int4", "bnb.nf4", "bnb.nf4-dq", "nf4-dq", "qlora"), "nf4"),
        **dict.fromkeys(("8bit", "bnb.int8"), "int8"),
    },
    "sequence_parallel": {"none": False},
}
"""Field → foreign value → our value. Words are compared in lower case."""

_BARE = {
    "A100": "A100-80",
    "H100": "H100-80",
    "V100": "V100-16",
    "H100-96": "H100-96-500W",
    "4090": "RTX4090",
    "RTX-A6000": "A6000",
    "RTXA6000": "A6000",
}
"""Devices without a memory size: the larger A100, the H100 of p5, the V100 of p3."""


def device(name: str) -> str:
    """Return the name in ``gpus.csv`` for a foreign one, such as "NVIDIA H100 80GB", "a100_40gb" or
    "RTX 4090"; ``name`` itself if none matches.
    """
    plain = re.sub(r"\b(NVIDIA|SXM\d?|PCIE|HBM\d\w?|TENSOR CORE|GPU)\b", "", name.upper())
    plain = re.sub(r"(\d+)\s?GB\b", r"\1", re.sub(r"[\s_]+", " ", plain).strip(" -"))
    for candidate in (plain.replace(" ", "-"), plain.replace(" ", "")):
        short = re.sub(r"-+", "-", candidate).strip("-")
        short = _BARE.get(short, short)
        without = re.sub(r"-\d+$", "", short)
        for known in (short, without):
            if known in GPUS:
                return known
    return name


def translated(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields with our names and values; unknown ones stay as they are.

    A field that is null is left out, unless null is one of its values. If ``gpus`` is missing, it
    is the number that the degrees of parallelism need.
    """
    found: dict[str, Any] = {}
    for name, value in fields.items():
        ours = NAMES.get(name, name)
        if ours in found:
            raise ValueError(f"{name}: another field gives the same value; leave one of them out")
        word = _word(ours, value) if ours in VALUES else _NOTHING
        if word is not _NOTHING:
            found[ours] = word
        elif value is not None:
            found[ours] = value
    if isinstance(found.get("gpu"), str):
        found["gpu"] = device(found["gpu"])
    if str(fields.get("optimizer")).lower().startswith("paged"):
        found.setdefault("offload", "optimizer")
    if "gpus" not in found:
        degrees = [found.get(name) or 1 for name in ("tensor", "pipeline", "context", "data")]
        if all(isinstance(degree, int) for degree in degrees):
            found["gpus"] = degrees[0] * degrees[1] * degrees[2] * degrees[3]
    return found


_NOTHING = object()
_WORDS = {
    (field, type(word), word): ours
    for field, words in VALUES.items()
    for word, ours in words.items()
}
"""``VALUES``, with True and 1 as different keys."""


def _word(field: str, value: Any) -> Any:
    """Return our value for a foreign one; ``_NOTHING`` if it is unknown."""
    if not isinstance(value, str | int | None):
        return _NOTHING
    key = value if isinstance(value, bool | None) else str(value).lower()
    return _WORDS.get((field, type(key), key), _NOTHING)
