"""Weights stop changing (Debugger: WeightUpdateRatio, UnchangedTensor).

Measured as the optimizer's update over the weights, both as L2 norms, without weight decay, which
shrinks weights even if they do not learn. Around 1e-3 is usual; below 6e-8 float32 rounds it away.

A schedule may go to 0 on purpose, so each line is judged as if its learning rate were the
highest so far. And if the loss is practically 0, nothing is left to learn.
"""

from math import inf

from pydantic import Field, FiniteFloat

from training.watching.watch_rule import Finding, History, Line, Plan, Rule, RuleSettings

LEARNED = 1e-3
"""Share of the first loss below which the loss is practically 0."""


class DeadUpdates(RuleSettings):
    """A weight matrix that is trained does not change."""

    least: FiniteFloat = Field(default=1e-8, gt=0)
    """Smallest normal ‖update‖ / ‖weights‖ of any matrix. (Debugger's small_threshold is also
    1e-8.)"""

    lines: int = Field(default=5, ge=2)
    """Consecutive lines, after the warm-up, in which it must be smaller."""


def check(history: History, settings: DeadUpdates, plan: Plan) -> Finding | None:
    """Return a finding with the largest of the recent lines' smallest updates."""
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
    """Return whether the schedule explains the small updates, or everything is learned."""
    last = history.lines[-settings.lines :]
    most = LEARNED * abs(history.lines[0]["loss"])
    if all(abs(line["loss"]) < most for line in last):
        return True
    peak = max(line.get("learning_rate", 0.0) for line in history.lines)
    return any(_at(line, peak) >= settings.least for line in last)


def _at(line: Line, peak: float) -> float:
    """Return a line's smallest update at the peak learning rate; infinite if its rate is 0."""
    if not peak:
        return line["update_ratio_least"]
    rate = line.get("learning_rate", peak)
    return line["update_ratio_least"] * peak / rate if rate else inf


RULE = Rule(DeadUpdates, check)
