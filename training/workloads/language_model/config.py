"""Settings of the language model. It imports no torch."""

import math
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, model_validator

from training.workloads import WorkloadSpec

if TYPE_CHECKING:
    from training.layout import Layout

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from trainyard.common.errors import TrainingError

# python -m training.workloads.language_model.config config.json
#
# prints the ``workload.config`` of a recipe that trains a model like that of a Hugging Face
# config.json. No torch is imported, so that a recipe can be compared with its base model before
# anything runs.


FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
ROPE = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
OF_TRAINING = {"attend", "tokenizer", "context_length", "records"}
"""Settings that change the samples or how they are trained on, but not the model."""
ONE_WAY: Mapping[str, tuple[Any, ...]] = {
    "hidden_act": ("silu",),
    "mlp_bias": (False, None),
    "partial_rotary_factor": (1.0, None),
    "pretraining_tp": (1, None),
    "quantization_config": (None,),
}
"""Fields of config.json, each with the values that our decoder supports. A field may be missing."""


def derive_settings(description: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of LanguageModelConfig that produce the model of a config.json.

    ``tokenizer`` is not among them. ``context_length`` is the longest that the model supports.

    Raises:
        TrainingError: it is a kind of model that our decoder does not support. The message has the
            field, its value and the supported values.
    """
    family = description.get("model_type")
    _check_choice("model_type", family, FAMILIES)
    for name, choices in ONE_WAY.items():
        _check_choice(name, description.get(name, choices[0]), choices)
    if description.get("sliding_window") and description.get("use_sliding_window", True):
        _check_choice("sliding_window", description["sliding_window"], (None,))
    try:
        heads, dim = description["num_attention_heads"], description["hidden_size"]
        bias = "all" if description.get("attention_bias") else "none"
        return {
            "context_length": description["max_position_embeddings"],
            "layers": description["num_hidden_layers"],
            "heads": heads,
            "dim": dim,
            "kv_heads": description.get("num_key_value_heads") or heads,
            # Qwen3's default is not this quotient (transformers: configuration_qwen3.py).
            "head_dim": description.get("head_dim") or (128 if family == "qwen3" else dim // heads),
            "hidden_dim": description["intermediate_size"],
            "tie_embeddings": bool(description.get("tie_word_embeddings", False)),
            "vocabulary": description["vocab_size"],
            "norm_eps": description.get("rms_norm_eps", 1e-6),
            # Qwen2 always has biases of these three (transformers: modeling_qwen2.py).
            "attention_bias": "qkv" if family == "qwen2" else bias,
            "qk_norm": family == "qwen3",
            **_parse_rope(description),
        }
    except KeyError as error:
        raise TrainingError(f"config.json of the base: {error.args[0]} is missing") from None


def list_differences(config: Any, description: Mapping[str, Any]) -> list[str]:
    """Return the differences between a recipe's model settings and a config.json, as messages.

    Args:
        config: a LanguageModelConfig.
        description: content of the config.json.

    Raises:
        TrainingError: the config.json is of a model that our decoder does not support.
    """
    base_config = type(config).model_validate(
        {"tokenizer": config.tokenizer, **derive_settings(description)}
    )
    own_shape, base_shape = _derive_shape(config), _derive_shape(base_config)
    mismatches = [
        f"workload.config.{name} is {own_shape[name]}, the base has {base_shape[name]}"
        for name in own_shape
        if own_shape[name] != base_shape[name]
    ]
    if config.context_length > base_config.context_length:
        mismatches.append(
            f"workload.config.context_length is {config.context_length}, the base supports "
            f"{base_config.context_length} positions"
        )
    return mismatches


def _derive_shape(config: Any) -> dict[str, Any]:
    """Return all settings that affect the model, with defaults computed."""
    derived_fields = {
        "kv_heads": config.groups,
        "head_dim": config.head_width,
        "hidden_dim": config.hidden,
    }
    fields = config.model_dump(mode="json", exclude=OF_TRAINING) | derived_fields
    if config.vocabulary is None and config.tokenizer == "bytes":
        fields["vocabulary"] = 257
    return fields


def _parse_rope(description: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rotary settings, which transformers 5 has moved to ``rope_parameters``."""
    rope = description.get("rope_parameters") or description.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    _check_choice("rope_scaling.rope_type", kind, ("default", "linear", "llama3"))
    theta = rope.get("rope_theta", description.get("rope_theta", 10_000.0))
    scaling = {"rope_type": kind} | {n: rope[n] for n in ROPE if rope.get(n) is not None}
    return {"rope_theta": theta, "rope_scaling": None if kind == "default" else scaling}


def _check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    """Check that a field of the config.json has one of the supported values."""
    if value not in choices:
        raise TrainingError(
            f"config.json of the base: {name} is {value!r}; the language model supports "
            f"{', '.join(map(repr, choices))}"
        )


def main(path: str) -> None:
    """Print the settings as YAML (JSON is valid YAML)."""
    fields = derive_settings(json.loads(Path(path).read_bytes()))
    print("\n".join(f"{name}: {json.dumps(value)}" for name, value in fields.items()))


class RopeScaling(BaseModel):
    """Scaling of the rotary frequencies; fields as in a Hugging Face ``rope_scaling``."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    rope_type: Literal["linear", "llama3"]
    """linear: every frequency divided by factor (Chen et al. 2023). llama3: only those whose
    wavelength is long relative to the original context, with a smooth transition (Llama 3.1)."""

    factor: FiniteFloat = Field(ge=1)
    """Factor by which the context became longer."""

    low_freq_factor: FiniteFloat = Field(default=1.0, gt=0)
    """With llama3: wavelengths above original context / low_freq_factor are stretched fully."""

    high_freq_factor: FiniteFloat = Field(default=4.0, gt=0)
    """With llama3: wavelengths below original context / high_freq_factor are unchanged."""

    original_max_position_embeddings: int = Field(default=8192, ge=1)
    """With llama3: length of the original context, in tokens."""

    @model_validator(mode="after")
    def _check_factor_order(self) -> Self:
        if self.low_freq_factor >= self.high_freq_factor:
            raise ValueError(
                f"low_freq_factor {self.low_freq_factor} has to be below high_freq_factor "
                f"{self.high_freq_factor}"
            )
        return self

    def scale_frequency(self, frequency: float) -> float:
        """Return a frequency (radians per token) after the scaling.

        As in transformers/modeling_rope_utils.py, ``_compute_llama3_parameters``.
        """
        slow = frequency / self.factor
        if self.rope_type == "linear":
            return slow
        turns = self.original_max_position_embeddings * frequency / (2 * math.pi)
        share = (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        share = min(1.0, max(0.0, share))
        return share * frequency + (1 - share) * slow


class LanguageModelConfig(BaseModel):
    """Text → tokens → samples of ``context_length + 1`` tokens → a decoder-only transformer."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    tokenizer: Literal["bytes", "file"] = "bytes"
    """UTF-8 bytes, or the byte-level Hugging Face tokenizer.json under ``workload.tokenizer``."""

    context_length: int = Field(default=256, ge=2, le=131072)
    """Number of tokens that the model sees at once."""

    records: Literal["documents", "completions"] = "documents"
    """Kind of raw record. documents: ``text``, of which every token is predicted; samples are
    windows of the texts. completions: ``prompt`` and ``completion``, of which only the completion
    is predicted; each record is a sample, or, with attend document, as many as fit share one."""

    attend: Literal["window", "document"] = "window"
    """How far attention reaches back. window: to the window's start, over all documents in it.
    document: to the start of the token's own document, where positions also restart."""

    layers: int = Field(default=4, ge=1)
    """Transformer blocks."""

    heads: int = Field(default=4, ge=1)
    """Attention heads in a block."""

    dim: int = Field(default=128, ge=2)
    """Width of the residual stream; each head has ``dim / heads`` of it."""

    kv_heads: int | None = Field(default=None, ge=1)
    """Heads of keys and values, each shared by ``heads / kv_heads`` heads of queries (Ainslie et
    al. 2023, GQA). None: as many as heads."""

    head_dim: int | None = Field(default=None, ge=2)
    """Width of a head if it is not ``dim / heads``; even."""

    hidden_dim: int | None = Field(default=None, ge=1)
    """Hidden units of the feed-forward layers. None: 8/3 × dim, up to a multiple of 16."""

    tie_embeddings: bool = True
    """Use the embedding's own weight for the logits (Press & Wolf 2017)."""

    vocabulary: int | None = Field(default=None, ge=1)
    """Rows of the embedding, if more than the tokenizer's tokens. None: as many."""

    rope_theta: FiniteFloat = Field(default=10_000.0, gt=1)
    """Base of the rotary positions' frequencies."""

    rope_scaling: RopeScaling | None = None
    """How the frequencies were stretched for a longer context. None: not stretched."""

    norm_eps: FiniteFloat | None = Field(default=None, gt=0)
    """Value that RMSNorm adds to the mean square. None: the type's machine epsilon, 1.2e-7 in
    float32."""

    attention_bias: Literal["none", "qkv", "all"] = "none"
    """Biases of the attention. qkv: of queries, keys and values (Qwen2). all: also of the
    output."""

    qk_norm: bool = False
    """Normalise each head's query and key before the rotation (Qwen3)."""

    @property
    def groups(self) -> int:
        """Return the number of heads of keys and values."""
        return self.kv_heads or self.heads

    @property
    def head_width(self) -> int:
        """Return the width of each head."""
        return self.head_dim or self.dim // self.heads

    @property
    def hidden(self) -> int:
        """Return the number of hidden units of a feed-forward layer.

        The default, 8/3 × dim, gives as many weights as 4 × dim with GELU (Shazeer 2020).
        """
        return self.hidden_dim or 16 * -(-self.dim * 8 // (3 * 16))

    @model_validator(mode="after")
    def _check_heads(self) -> Self:
        if self.head_dim is None and self.dim % (2 * self.heads):
            raise ValueError(
                f"dim {self.dim} must be a multiple of 2 × heads ({2 * self.heads}): every head "
                "has an even width, because rotary positions rotate pairs"
            )
        if self.head_width % 2:
            raise ValueError(f"head_dim {self.head_dim} is odd; rotary positions rotate pairs")
        if self.heads % self.groups:
            raise ValueError(
                f"kv_heads {self.groups} do not divide heads {self.heads}: each is shared by "
                "equally many of them"
            )
        return self


def explain_impossible_split(config: LanguageModelConfig, tensor: int, pipeline: int) -> str | None:
    """Return why the model cannot be split over this many ranks and stages, or None if it can."""
    if config.heads % tensor:
        return f"heads {config.heads} cannot be shared by tensor_parallel {tensor} ranks evenly"
    if config.groups % tensor:
        return f"kv_heads {config.groups} cannot be shared by tensor_parallel {tensor} ranks evenly"
    if config.layers < pipeline:
        return f"layers {config.layers} are too few for {pipeline} pipeline stages"
    return None


def explain_impossible_context(
    config: LanguageModelConfig, context: int, tensor: int
) -> str | None:
    """Return why ``context`` ranks cannot share each sequence, or None if they can."""
    parts = 2 * context * tensor
    if context > 1 and config.context_length % parts:
        return (
            f"context_length {config.context_length} cannot be cut into 2 × context_parallel "
            f"{context} × tensor_parallel {tensor} = {parts} equal parts, two for each rank, so "
            "that all have as much to attend to; choose a multiple of it"
        )
    return None


def explain_impossible_layout(config: LanguageModelConfig, layout: "Layout") -> str | None:
    """Return why the sequences cannot be distributed over the ranks, or None if they can."""
    tensor = layout.tensor_parallel if layout.sequence_parallel else 1
    if layout.context_parallel > 1:
        return explain_impossible_context(config, layout.context_parallel, tensor)
    return (
        explain_uneven_split(config.context_length, tensor)
        if config.context_length % tensor
        else None
    )


def explain_uneven_split(length: int, ranks: int) -> str:
    """Return the error message for positions that ``ranks`` cannot share evenly."""
    return (
        f"context_length {length} / tensor_parallel {ranks} = {length / ranks:.2f} positions per "
        f"rank; make context_length a multiple of {ranks}, or set sequence_parallel to false"
    )


SPEC = WorkloadSpec(
    config=LanguageModelConfig,
    answer_numbers=("bits_per_byte", "nats", "bytes", "tokens"),
    metrics={
        "bits_per_byte": "lower",
        "loss": "lower",
        "perplexity": "lower",
        "next_token_accuracy": "higher",
    },
    primary_metric="bits_per_byte",
    baselines=("unigram", "bigram"),
    packed_with=("tokenizer", "context_length", "records", "attend"),
    refuse_split=explain_impossible_split,
    refuse_layout=explain_impossible_layout,
    ranges={"next_token_accuracy": 1.0},
    compared_in=("bits_per_byte", "loss", "next_token_accuracy"),
    slices=lambda config: ("source",),
    has_summary=True,
    folder_slice="source",
    base_differences=list_differences,
)


if __name__ == "__main__":
    main(sys.argv[1])
