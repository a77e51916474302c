"""The models of the published measurements, in the fields of a Setting."""

from collections.abc import Mapping
from typing import Any

LLAMA: Mapping[str, Any] = {"gated": True, "positions": "rotary"}
LLAMA2: Mapping[str, Any] = {**LLAMA, "vocab": 32000}
LLAMA3: Mapping[str, Any] = {**LLAMA, "vocab": 128256, "kv_heads": 8}
MEGATRON: Mapping[str, Any] = {"vocab": 51200, "tied": True, "positions": "learned", "dropout": 0.1}
NEMOTRON: Mapping[str, Any] = {"vocab": 256000, "positions": "rotary"}


def _shape(
    base: Mapping[str, Any], layers: int, hidden: int, heads: int, **more: Any
) -> Mapping[str, Any]:
    return {**base, "layers": layers, "hidden": hidden, "heads": heads, **more}


MODELS: Mapping[str, Mapping[str, Any]] = {
    "Llama2-7B": _shape(LLAMA2, 32, 4096, 32, ffn=11008),
    "Llama2-13B": _shape(LLAMA2, 40, 5120, 40, ffn=13824),
    "Llama2-34B": _shape(LLAMA2, 48, 8192, 64, ffn=22016, kv_heads=8),
    "Llama2-70B": _shape(LLAMA2, 80, 8192, 64, ffn=28672, kv_heads=8),
    "Llama3-8B": _shape(LLAMA3, 32, 4096, 32, ffn=14336),
    "Llama3-70B": _shape(LLAMA3, 80, 8192, 64, ffn=28672),
    "Llama3-405B": _shape(LLAMA3, 126, 16384, 128, ffn=53248),
    "GPT3-20B": _shape(MEGATRON, 44, 6144, 48),
    "GPT3-22B": _shape(MEGATRON, 48, 6144, 64),
    "GPT3-175B": _shape(MEGATRON, 96, 12288, 96),
    "GPT3-530B": _shape(MEGATRON, 105, 20480, 128),
    "GPT3-1T": _shape(MEGATRON, 128, 25600, 160),
    "Nemotron-8B": _shape(NEMOTRON, 32, 4096, 32),
    "Nemotron-22B": _shape(NEMOTRON, 40, 6144, 48),
    "Nemotron-340B": _shape(NEMOTRON, 96, 18432, 96, kv_heads=8),
}
"""Shapes as the papers of the models state them (Touvron et al. 2023; Roziere et al. 2023;
Grattafiori et al. 2024, table 3; Narayanan et al. 2021 and Korthikanti et al. 2022, table 3;
NVIDIA 2024, Nemotron-4)."""

MPT: Mapping[str, Mapping[str, Any]] = {
    name: _shape({"vocab": 50368, "tied": True, "positions": "learned"}, layers, hidden, heads)
    for name, layers, hidden, heads in (
        ("125m", 12, 768, 12),
        ("350m", 24, 1024, 16),
        ("760m", 24, 1536, 12),
        ("1b", 24, 2048, 16),
        ("3b", 32, 2560, 20),
        ("7b", 32, 4096, 32),
        ("13b", 40, 5120, 40),
        ("30b", 48, 7168, 56),
        ("70b", 80, 8192, 64),
    )
}
"""llm-foundry's sizes: 12lh² + 13lh + 2h + (50368 + s)h parameters."""
