"""The language model's settings; no torch."""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from training.workloads import WorkloadSpec


class LanguageModelConfig(BaseModel):
    """Text → tokens → samples of ``context_length + 1`` tokens → a decoder-only transformer."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    tokenizer: Literal["bytes", "file"] = "bytes"
    """UTF-8 bytes, or the byte-level Hugging Face tokenizer.json under ``workload.tokenizer``."""

    context_length: int = Field(default=256, ge=2, le=131072)
    """Tokens that the model sees at once."""

    layers: int = Field(default=4, ge=1)
    """Transformer blocks."""

    heads: int = Field(default=4, ge=1)
    """Attention heads in a block."""

    dim: int = Field(default=128, ge=2)
    """Width of the residual stream; each head has ``dim / heads`` of it."""

    @model_validator(mode="after")
    def _heads_divide_dim(self) -> Self:
        if self.dim % (2 * self.heads):
            raise ValueError(
                f"dim {self.dim} must be a multiple of 2 × heads ({2 * self.heads}): every head "
                "has an even width, because rotary positions turn pairs"
            )
        return self


def refuse_split(config: LanguageModelConfig, tensor: int, pipeline: int) -> str | None:
    """Why the model cannot be split over so many ranks and stages; None when it can."""
    if config.heads % tensor:
        return f"heads {config.heads} cannot be shared by tensor_parallel {tensor} ranks evenly"
    if config.layers < pipeline:
        return f"layers {config.layers} are too few for pipeline_parallel {pipeline} stages"
    return None


SPEC = WorkloadSpec(
    config=LanguageModelConfig,
    metrics={
        "bits_per_byte": "lower",
        "loss": "lower",
        "perplexity": "lower",
        "next_token_accuracy": "higher",
    },
    primary_metric="bits_per_byte",
    baselines=("unigram", "bigram"),
    packed_with=("tokenizer", "context_length"),
    sketched=True,
    refuse_split=refuse_split,
    compared_in=("bits_per_byte", "loss", "next_token_accuracy"),
    slices=lambda config: ("source",),
    folder_slice="source",
)
