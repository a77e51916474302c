"""A layer's gradient has become as good as nothing (Debugger: VanishingGradient).

AdamW divides by the gradient's size and 1e-8: what is far above that does not matter, and what is
near to it trains no more (Wortsman et al. 2023, "Small-scale proxies for large-scale Transformer
training instabilities", section 3.4).
"""

from pydantic import Field, FiniteFloat

from training.watching.rule import Finding, History, Plan, Rule, RuleSettings


class VanishingGradients(RuleSettings):
    """The gradient of a weight matrix is so small that it trains no more."""

    least: FiniteFloat = Field(default=1e-7, gt=0)
    """Root mean square of the gradient's elements, of the matrix with the smallest one. (That of
    Debugger's rule, too.)"""

    lines: int = Field(default=5, ge=2)
    """Lines, one after the other, in which it is less."""


def check(history: History, settings: VanishingGradients, plan: Plan) -> Finding | None:
    """The largest of the last lines' smallest gradients."""
    found = history.below("gradient_least", settings.lines, settings.least)
    if found is None:
        return None
    return Finding(
        found,
        settings.least,
        f"a weight matrix has a gradient of {found:.3g} at most (root mean square of its "
        f"elements) in the last {settings.lines} lines",
        "look at saturating activations, missing residual connections or normalisation, and at the "
        "scale of the initial weights; clipping that is very strong shrinks all gradients",
    )


RULE = Rule(VanishingGradients, check)
