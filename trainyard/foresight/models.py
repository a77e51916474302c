"""Published models by name, as ``models.csv`` lists them with the source of each row."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainyard.common.errors import RecipeError
from trainyard.common.nearest import nearest

_SHAPE = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "sequence")


@dataclass(frozen=True, slots=True)
class Model:
    """One published model, and how it was trained."""

    name: str
    shape: Mapping[str, Any]
    """Those fields of a :class:`~trainyard.foresight.setting.Setting` that it states; ``sequence``
    is the context that most of its training had."""

    tokens: float | None
    """Tokens that it was trained on; None where none are published."""

    batch_tokens: float | None
    """Tokens of its optimizer step; the last, where it grew."""

    learning_rate: float | None
    """The peak, with Adam(W)."""

    source: str


def _model(row: Mapping[str, str]) -> Model:
    shape: dict[str, Any] = {name: int(row[name]) for name in _SHAPE}
    shape |= {"gated": row["gated"] == "yes", "positions": row["positions"]}
    return Model(
        row["name"],
        shape,
        _known(row["tokens"]),
        _known(row["batch_tokens"]),
        _known(row["learning_rate"]),
        row["source"],
    )


def _known(text: str) -> float | None:
    return float(text) if text else None


def _read(path: Path) -> dict[str, Model]:
    with path.open(encoding="utf-8", newline="") as file:
        return {row["name"]: _model(row) for row in csv.DictReader(file)}


MODELS: Mapping[str, Model] = _read(Path(__file__).with_suffix(".csv"))
"""Name → model."""


def published(name: str) -> Model:
    """The model of that name.

    Raises:
        RecipeError: the table has none so called.
    """
    if name not in MODELS:
        raise RecipeError(
            f"--model {name}: is none of the table's; {nearest(name, [*MODELS])}; for another, "
            "give --layers, --hidden, … or --shapes shapes.json"
        )
    return MODELS[name]
