"""Rules of thumb on how much to train on and how fast to learn, each with its source."""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isinf, sqrt
from pathlib import Path
from typing import Any

from trainyard.common.errors import RecipeError, nearest
from trainyard.foresight.question import Question

_SHAPE = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "sequence")


@dataclass(frozen=True, slots=True)
class Model:
    """A published model, and how it was trained."""

    name: str
    shape: Mapping[str, Any]
    """Stated fields of a :class:`~trainyard.foresight.setting.Setting`; ``sequence`` is the context
    of most of its training."""

    tokens: float | None
    """Tokens that it was trained on; None if not published."""

    batch_tokens: float | None
    """Tokens per optimizer step; the last value, where it grew."""

    learning_rate: float | None
    """Peak learning rate, with Adam(W)."""

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


MODELS: Mapping[str, Model] = _read(Path(__file__).with_name("models.csv"))
"""Name → model."""


def published(name: str) -> Model:
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


CHINCHILLA = 20
"""Tokens per parameter at which a given amount of computing yields the lowest loss: Hoffmann et
al. 2022 (arXiv 2203.15556), whose own model had 1.4 T tokens for 70 B parameters."""


def rules_of(question: Question) -> list[str]:
    """Return the rules that apply to a question."""
    if question.fine_tunes:
        return [*on_fine_tuning(question)]
    batch = question.global_batch * question.model.sequence
    rates = on_learning_rate(question.model.hidden, batch, question.learning_rate)
    return [on_tokens(question.parameters, question.tokens), *rates]


ADAPTED_BATCH = 16
"""Samples per step, for adapters of every size on OASST1: Dettmers et al. 2023 (arXiv 2305.14314),
table 9."""

TUNED_BATCH = 64
"""Samples per step where all weights are fine-tuned: Llama 2 (arXiv 2307.09288), section 3.1."""


def on_fine_tuning(question: Question) -> Iterator[str]:
    """Iterate over the settings of published fine-tunings, as rules of pretraining do not apply."""
    if question.trained < question.parameters:
        rate = "2.0e-04" if question.parameters < 20e9 else "1.0e-04"
        yield (
            f"Fine-tuning a part of the weights: QLoRA had a learning rate of {rate} for adapters "
            f"of a model of this size (2.0e-04 for 7B and 13B, 1.0e-04 for 33B and 65B), with "
            f"{ADAPTED_BATCH} samples a step on OASST1 (Dettmers et al. 2023, arXiv 2305.14314, "
            "table 9)"
        )
    else:
        yield (
            f"Fine-tuning all weights: Llama 2 had a learning rate of 2.0e-05 with {TUNED_BATCH} "
            "samples of 4,096 tokens a step (arXiv 2307.09288, section 3.1)"
        )
    if question.learning_rate is not None:
        yield f"Yours is {question.learning_rate:.1e}, with {question.global_batch} samples a step"
    yield "No rule for tokens a parameter: those that are published hold for pretraining"


def on_tokens(parameters: float, tokens: float) -> str:
    """Return tokens per parameter, beside the optimum for computing alone and Llama 3's."""
    ratio = tokens / parameters
    return (
        f"{figure(ratio)} tokens a parameter. About {CHINCHILLA} "
        f"({count(CHINCHILLA * parameters)}) take the least computing to a loss (Hoffmann et al. "
        f"2022, arXiv 2203.15556). {_trained()} (arXiv 2307.09288, 2407.21783), for a "
        "model that is cheaper to serve"
    )


def _trained() -> str:
    """Return the tokens per parameter of some models."""
    sizes = {"llama-2-70b": 70e9, "llama-3-8b": 8e9, "llama-3-70b": 70e9, "llama-3-405b": 405e9}
    had = {name: (MODELS[name].tokens or 0.0) / size for name, size in sizes.items()}
    old, small, large, largest = map(figure, had.values())
    return f"Llama 2 70B had {old}, Llama 3 8B {small}, 70B {large}, 405B {largest}"


NEAR = 16.0
"""Batches that differ by a larger factor say nothing about each other's learning rate: beyond some
size a larger batch is no gain (McCandlish et al. 2018, arXiv 1812.06162)."""


def on_learning_rate(
    hidden: int, batch_tokens: float, learning_rate: float | None = None
) -> Iterator[str]:
    """Iterate over the learning rate of a published model of nearly that width, and its scaling.

    Args:
        batch_tokens: tokens of an optimizer step.
        learning_rate: the planned peak, if there is one.
    """
    model = _nearest(hidden)
    assert model.learning_rate is not None and model.batch_tokens is not None  # noqa: S101
    factor = batch_tokens / model.batch_tokens
    said = (
        f"Learning rate: {model.name} had {model.learning_rate:.1e} at {count(model.batch_tokens)} "
        f"tokens a step ({model.source})"
    )
    if 1 / NEAR <= factor <= NEAR:
        said += (
            f"; by the square root of the batches' ratio, with Adam, {count(batch_tokens)} would "
            f"have {model.learning_rate * sqrt(factor):.1e} (Malladi et al. 2022, arXiv 2205.10287)"
        )
    else:
        said += f"; {count(batch_tokens)} are too far from that to say"
    yield said
    if learning_rate is not None:
        yield (
            f"Yours is {learning_rate:.1e}. Where global_batch changes, change it by the square "
            "root of the ratio with Adam, and by the ratio with SGD (Goyal et al. 2017, arXiv "
            "1706.02677)"
        )


def _nearest(hidden: int) -> Model:
    """Return the model nearest in width, of those whose batch and rate are known."""
    known = [model for model in MODELS.values() if model.batch_tokens and model.learning_rate]
    return min(known, key=lambda model: abs(model.shape["hidden"] / hidden - 1))


def figure(value: float) -> str:
    """Return three digits, without an exponent; ∞ for infinity."""
    if isinf(value):
        return "∞"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def count(number: float) -> str:
    """Return ``1.4 T``, ``300 B``, ``4 M``."""
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g} {letter}"
    return f"{number:.3g}"
