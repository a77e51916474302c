"""Rules of thumb on how much to train on and how fast to learn, each with its source."""

from collections.abc import Iterator
from math import sqrt

from trainyard.foresight.models import MODELS, Model

CHINCHILLA = 20
"""Tokens for a parameter at which a given amount of computing yields the lowest loss: Hoffmann et
al. 2022 (arXiv 2203.15556), whose own model had 1.4 T tokens for 70 B parameters."""


def on_tokens(parameters: float, tokens: float) -> str:
    """Tokens a parameter, beside what is optimal for computing alone and what Llama 3 had."""
    ratio = tokens / parameters
    return (
        f"{ratio:.3g} tokens a parameter. For the least computing to a loss it is about "
        f"{CHINCHILLA} ({count(CHINCHILLA * parameters)} tokens; Hoffmann et al. 2022, arXiv "
        f"2203.15556); {_trained()}, more, for a model that is cheaper to serve"
    )


def _trained() -> str:
    """What some models had."""
    named = {"llama-2-70b": 70e9, "llama-3-8b": 8e9, "llama-3-70b": 70e9, "llama-3-405b": 405e9}
    said = [f"{MODELS[name].tokens / n:.3g}" for name, n in named.items()]  # type: ignore[operator]
    return f"Llama 2 70B had {said[0]}, Llama 3 8B {said[1]}, 70B {said[2]}, 405B {said[3]}"


def on_learning_rate(
    hidden: int, batch_tokens: float, learning_rate: float | None = None
) -> Iterator[str]:
    """What published models of nearly that width learned with, and how that goes with the batch.

    Args:
        batch_tokens: of an optimizer step.
        learning_rate: the peak that is meant to be used, where one is.
    """
    model = _nearest(hidden)
    assert model.learning_rate is not None and model.batch_tokens is not None
    factor = batch_tokens / model.batch_tokens
    scaled = model.learning_rate * sqrt(factor)
    yield (
        f"learning rate: {model.name} had {model.learning_rate:.1e} at {count(model.batch_tokens)} "
        f"tokens a step ({model.source}); with Adam, the square root of the batch's ratio makes "
        f"that {scaled:.1e} at {count(batch_tokens)} (Malladi et al. 2022, arXiv 2205.10287)"
    )
    if learning_rate is not None:
        yield (
            f"yours is {learning_rate:.1e}; if you change global_batch, multiply it by the square "
            "root of the change with Adam, and by the change itself with SGD (Goyal et al. 2017, "
            "arXiv 1706.02677)"
        )


def _nearest(hidden: int) -> Model:
    """Of the models whose batch and rate are known, the one nearest in width."""
    known = [model for model in MODELS.values() if model.batch_tokens and model.learning_rate]
    return min(known, key=lambda model: abs(model.shape["hidden"] / hidden - 1))


def count(number: float) -> str:
    """``1.4 T``, ``300 B``, ``4 M``."""
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g} {letter}"
    return f"{number:.3g}"
