"""A layer's gradient has practically vanished (Debugger: VanishingGradient).

The optimizer determines what is too small. AdamW's step is m / (√v + ε): the gradient's size drops
out if it is far above ε = 1e-8, and below it the step is less than half of what it would be, and
falls with the gradient (Wortsman et al. 2023, "Small-scale proxies for large-scale Transformer
training instabilities", section 3.4). LAMB scales each matrix's step to its weights, so no gradient
is too small for it; ``dead_updates`` detects one of exactly 0.

A layer vanishes, not the whole: at the end of a training that has learned all there is,
every gradient goes to 0, so the layer's is judged as if the whole were as large as in
the first lines. A growing gradient is fine: layers before weights that begin at 0 (LoRA's A, a
head of zeros) have no gradient at first.
"""

from math import inf
from statistics import median

from pydantic import Field, FiniteFloat

from training.watching.watch_rule import Finding, History, Line, Plan, Rule, RuleSettings

EPSILON = {"adamw": 1e-8}
"""Optimizer → its ε (PyTorch's default), for those whose step depends on the gradient's size."""

FIRST = 5
"""Number of first lines that define the initial norm of the whole gradient."""

GROWS = 2.0
"""Multiple of the gradient in the first half of the lines above which it counts as growing."""

SOME = 50
"""Approximate number of the earlier lines examined."""


class VanishingGradients(RuleSettings):
    """The gradient of a weight matrix is so small that it no longer trains."""

    least: FiniteFloat | None = Field(default=None, gt=0)
    """Smallest normal root mean square of a gradient's elements, of any matrix. Left out: the
    optimizer's epsilon, 1e-8 for adamw; with lamb nothing is too small."""

    lines: int = Field(default=5, ge=2)
    """Consecutive lines, after the warm-up, in which it must be smaller."""


def check(history: History, settings: VanishingGradients, plan: Plan) -> Finding | None:
    """Return a finding with the largest of the recent lines' smallest gradients."""
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
    """Return whether the smallest gradient has grown."""
    half = lines[: len(lines) // 2]
    earlier = [line.get("gradient_least", 0.0) for line in half[:: len(half) // SOME + 1]]
    return bool(half) and lines[-1]["gradient_least"] > GROWS * median(earlier)


def _shorter(lines: list[Line], count: int, plan: Plan) -> float:
    """Return how many times smaller the clipped gradient is than in the first lines (at least 1,
    also if unknown).
    """
    then, now = (
        [min(line["grad_norm"], plan.grad_clip) for line in some if "grad_norm" in line]
        for some in (lines[:FIRST], lines[-count:])
    )
    if not then or not now or not median(then):
        return 1.0
    return max(1.0, median(then) / median(now)) if median(now) else inf


RULE = Rule(VanishingGradients, check)
