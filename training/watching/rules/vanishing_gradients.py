"""A layer's gradient has become as good as nothing (Debugger: VanishingGradient).

How small that is, the optimizer says. AdamW's step is m / (√v + ε): the gradient's size drops out
where it is far above ε = 1e-8, and below it the step is less than half of what it would be, and
falls with the gradient (Wortsman et al. 2023, "Small-scale proxies for large-scale Transformer
training instabilities", section 3.4). LAMB scales each matrix's step to its weights, so no gradient
is too small for it; one of exactly 0 is what ``dead_updates`` sees.

Vanishing is of a layer, not of the whole: at the end of a training that has learned all there is,
every gradient goes to nothing, and there the layer's is judged as if the whole were as long as in
the first lines. One that grows is on its way: what is before weights that begin at 0 (LoRA's A, a
head of zeros) has at first no gradient.
"""

from math import inf
from statistics import median

from pydantic import Field, FiniteFloat

from training.watching.watch_rule import Finding, History, Line, Plan, Rule, RuleSettings

EPSILON = {"adamw": 1e-8}
"""Optimizer → its ε, PyTorch's default; of those whose step depends on the gradient's size."""

FIRST = 5
"""Lines that say how long the whole gradient was at first."""

GROWS = 2.0
"""A gradient that is so many times what it was in the first half of the lines has not vanished."""

SOME = 50
"""Of these lines, those that are looked at, at most."""


class VanishingGradients(RuleSettings):
    """The gradient of a weight matrix is so small that it trains no more."""

    least: FiniteFloat | None = Field(default=None, gt=0)
    """Root mean square of the gradient's elements, of the matrix with the smallest one. Left out:
    the optimizer's epsilon, which is 1e-8 for adamw; with lamb nothing is too small."""

    lines: int = Field(default=5, ge=2)
    """Lines, one after the other, in which it is less, once the warm-up is over."""


def check(history: History, settings: VanishingGradients, plan: Plan) -> Finding | None:
    """The largest of the last lines' smallest gradients."""
    least = settings.least or EPSILON.get(plan.optimizer, 0.0)
    found = history.below("gradient_least", settings.lines, least)
    if found is None or not history.warm(settings.lines, plan):
        return None
    if _grows(history.lines) or found * _shorter(history.lines, settings.lines, plan) >= least:
        return None
    return Finding(
        found,
        least,
        f"a weight matrix has a gradient of {found:.3g} at most (root mean square of its "
        f"elements) in the last {settings.lines} lines",
        "look at saturating activations, missing residual connections or normalisation, and at the "
        "scale of the initial weights; clipping that is very strong shrinks all gradients",
    )


def _grows(lines: list[Line]) -> bool:
    """Whether the smallest gradient has become larger, and goes on to."""
    half = lines[: len(lines) // 2]
    earlier = [line.get("gradient_least", 0.0) for line in half[:: len(half) // SOME + 1]]
    return bool(half) and lines[-1]["gradient_least"] > GROWS * median(earlier)


def _shorter(lines: list[Line], count: int, plan: Plan) -> float:
    """How many times shorter the whole gradient is than in the first lines, as clipped; 1 or more.
    Not known is 1, too.
    """
    then, now = (
        [min(line["grad_norm"], plan.grad_clip) for line in some if "grad_norm" in line]
        for some in (lines[:FIRST], lines[-count:])
    )
    if not then or not now or not median(then):
        return 1.0
    return max(1.0, median(then) / median(now)) if median(now) else inf


RULE = Rule(VanishingGradients, check)
