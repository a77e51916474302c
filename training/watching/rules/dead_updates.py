"""Weights stay as they are (Debugger: WeightUpdateRatio, UnchangedTensor).

The optimizer's update over the weights, both as L2 norms, without weight decay, which shrinks
weights whether or not they learn. Around 1e-3 is usual; below 6e-8 float32 rounds it away.
"""

from pydantic import Field, FiniteFloat

from training.watching.rule import Finding, History, Plan, Rule, RuleSettings


class DeadUpdates(RuleSettings):
    """A weight matrix that is trained does not change."""

    least: FiniteFloat = Field(default=1e-8, gt=0)
    """‖update‖ / ‖weights‖ of the matrix with the smallest. (Debugger's small_threshold is 1e-8,
    too.)"""

    lines: int = Field(default=5, ge=2)
    """Lines, one after the other, in which it is less."""


def check(history: History, settings: DeadUpdates, plan: Plan) -> Finding | None:
    """The largest of the last lines' smallest updates."""
    found = history.below("update_ratio_least", settings.lines, settings.least)
    if found is None:
        return None
    return Finding(
        found,
        settings.least,
        f"a weight matrix that is to be trained changes by {found:.3g} of its size a step in "
        f"the last {settings.lines} lines",
        "see that its output reaches the loss (detach, dead activations), that learning_rate and "
        "schedule are as meant, and freeze what is not to be trained",
    )


RULE = Rule(DeadUpdates, check)
