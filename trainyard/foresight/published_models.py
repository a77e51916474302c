"""Published models: their shapes, and how they were trained, each with its source."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainyard.common.errors import RecipeError, nearest

ADAPTED_BATCH = 16
"""Samples per step, for adapters of every size on OASST1: Dettmers et al. 2023 (arXiv 2305.14314),
table 9."""

TUNED_BATCH = 64
"""Samples per step where all weights are fine-tuned: Llama 2 (arXiv 2307.09288), section 3.1."""

_SHAPE = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "sequence")


@dataclass(frozen=True, slots=True)
class Model:
    """A published model, and how it was trained."""

    shape: Mapping[str, Any]
    """Stated fields of a :class:`~trainyard.foresight.setting.Setting`; ``sequence`` is the context
    of most of its training."""

    tokens: float | None
    """Tokens that it was trained on; None if not published."""

    batch_tokens: float | None
    """Tokens per optimizer step; the last value, where it grew."""

    source: str


def _model(row: Mapping[str, str]) -> Model:
    shape: dict[str, Any] = {name: int(row[name]) for name in _SHAPE}
    shape |= {"gated": row["gated"] == "yes", "positions": row["positions"]}
    tokens, batch = (float(row[name] or 0) or None for name in ("tokens", "batch_tokens"))
    return Model(shape, tokens, batch, row["source"])


with Path(__file__).with_name("models.csv").open(encoding="utf-8", newline="") as _file:
    MODELS: Mapping[str, Model] = {row["name"]: _model(row) for row in csv.DictReader(_file)}
"""Name → model."""


def get_model(name: str) -> Model:
    """Return the model of that name.

    Raises:
        RecipeError: the table has no such model.
    """
    if name not in MODELS:
        raise RecipeError(
            f"--model {name}: is not in the table; {nearest(name, [*MODELS])}; for another, "
            "give --layers, --hidden, … or --shapes shapes.json"
        )
    return MODELS[name]
