"""How rotary positions were stretched for a longer context; no torch."""

import math
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, model_validator


class RopeScaling(BaseModel):
    """As in a Hugging Face config.json's ``rope_scaling``, by the names that it has there."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    rope_type: Literal["linear", "llama3"]
    """linear: every frequency divided by factor (Chen et al. 2023). llama3: only those whose
    wavelength is long beside the first context, with a smooth change (Llama 3.1)."""

    factor: FiniteFloat = Field(ge=1)
    """How many times as long the context became."""

    low_freq_factor: FiniteFloat = Field(default=1.0, gt=0)
    """With llama3: wavelengths above first context / low_freq_factor are stretched in full."""

    high_freq_factor: FiniteFloat = Field(default=4.0, gt=0)
    """With llama3: wavelengths below first context / high_freq_factor stay."""

    original_max_position_embeddings: int = Field(default=8192, ge=1)
    """With llama3: the first context, in tokens."""

    @model_validator(mode="after")
    def _factors_in_order(self) -> Self:
        if self.low_freq_factor >= self.high_freq_factor:
            raise ValueError(
                f"low_freq_factor {self.low_freq_factor} has to be below high_freq_factor "
                f"{self.high_freq_factor}"
            )
        return self

    def stretched(self, frequency: float) -> float:
        """A frequency (radians a token) after the stretch.

        transformers/modeling_rope_utils.py, ``_compute_llama3_parameters``.
        """
        slow = frequency / self.factor
        if self.rope_type == "linear":
            return slow
        turns = self.original_max_position_embeddings * frequency / (2 * math.pi)
        share = (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        share = min(1.0, max(0.0, share))
        return share * frequency + (1 - share) * slow
