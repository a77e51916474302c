"""The gradient is far larger than it was (Debugger: ExplodingTensor, which knew infinite ones).

A norm that is not finite ends the training by itself; this is what comes before. Single spikes are
clipped (``grad_clip``) and part of training, so several of the last lines have to be that large.
"""

from statistics import median, median_low

from pydantic import Field, FiniteFloat

from training.watching.rule import Finding, History, Plan, Rule, RuleSettings

BEFORE = 50
"""Lines that say how large the gradient was."""

LEAST = 10
"""Lines without which that is not known."""


class ExplodingGradients(RuleSettings):
    """The gradient's norm, before clipping, is many times what it was."""

    times: FiniteFloat = Field(default=20.0, gt=1)
    """So many times the median of the lines before."""

    lines: int = Field(default=3, ge=1)
    """Lines of the last twice as many in which it is."""


def check(history: History, settings: ExplodingGradients, plan: Plan) -> Finding | None:
    """The norm over the median before, the lowest of those that are too large."""
    norms = history.last("grad_norm", BEFORE + 2 * settings.lines)
    now, before = norms[-2 * settings.lines :], norms[: -2 * settings.lines]
    if len(before) < LEAST or not (usual := median(before)):
        return None
    large = sorted(norm for norm in now if norm > settings.times * usual)
    if len(large) < settings.lines:
        return None
    return Finding(
        median_low(large) / usual,
        settings.times,
        f"the gradient's norm is {median_low(large):.4g} in {len(large)} of the last {len(now)} "
        f"lines, and was {usual:.4g} before",
        "lower learning_rate, warm up longer or lower grad_clip, and look at the samples of these "
        "steps",
    )


RULE = Rule(ExplodingGradients, check)
