"""Weights stay as they are (Debugger: WeightUpdateRatio, UnchangedTensor).

The optimizer's update over the weights, both as L2 norms, without weight decay, which shrinks
weights whether or not they learn. Around 1e-3 is usual; below 6e-8 float32 rounds it away.

A schedule that goes to 0 is meant, and so each line is judged as if its learning rate were the
highest so far. And where the loss is as good as 0, nothing is left to learn.
"""

from math import inf

from pydantic import Field, FiniteFloat

from training.watching.watch_rule import Finding, History, Line, Plan, Rule, RuleSettings

LEARNED = 1e-3
"""Share of its first value below which the loss is as good as 0."""


class DeadUpdates(RuleSettings):
    """A weight matrix that is trained does not change."""

    least: FiniteFloat = Field(default=1e-8, gt=0)
    """‖update‖ / ‖weights‖ of the matrix with the smallest. (Debugger's small_threshold is 1e-8,
    too.)"""

    lines: int = Field(default=5, ge=2)
    """Lines, one after the other, in which it is less, once the warm-up is over."""


def check(history: History, settings: DeadUpdates, plan: Plan) -> Finding | None:
    """The largest of the last lines' smallest updates."""
    found = history.below("update_ratio_least", settings.lines, settings.least)
    if found is None or not history.warm(settings.lines, plan) or _meant(history, settings):
        return None
    return Finding(
        found,
        settings.least,
        f"a weight matrix that is to be trained changes by {found:.3g} of its size a step in "
        f"the last {settings.lines} lines",
        "see that its output reaches the loss (detach, dead activations), that learning_rate and "
        "schedule are as meant, and freeze what is not to be trained",
    )


def _meant(history: History, settings: DeadUpdates) -> bool:
    """Whether the schedule has made it so small, or all is learned."""
    last = history.lines[-settings.lines :]
    most = LEARNED * abs(history.lines[0]["loss"])
    if all(abs(line["loss"]) < most for line in last):
        return True
    peak = max(line.get("learning_rate", 0.0) for line in history.lines)
    return any(_at(line, peak) >= settings.least for line in last)


def _at(line: Line, peak: float) -> float:
    """What a line's smallest update would be at that learning rate; not known of one of 0."""
    if not peak:
        return line["update_ratio_least"]
    rate = line.get("learning_rate", peak)
    return line["update_ratio_least"] * peak / rate if rate else inf


RULE = Rule(DeadUpdates, check)
