"""Validation gets worse while training gets better (Debugger: Overfit).

The generalisation loss of Prechelt 1998, "Early Stopping, But When?": how far the validation loss
is above its lowest value so far; the paper stops at 1 to 5 % (classes GL1 to GL5). The
training loss's fall meanwhile has to exceed its noise, which every line has; and so
has the rise: the lowest of many validations is also low by chance, especially near 0.
"""

from bisect import bisect_right
from math import sqrt
from statistics import fmean, median, variance

from pydantic import Field, FiniteFloat

from training.watching.watch_rule import Finding, History, Plan, Rule, RuleSettings

SURE = 2.0
"""Standard errors by which the training loss has to fall."""

SWINGS = 3.0
"""Standard deviations of a validation by which the validation loss has to rise."""

RECENT = 20
"""Largest number of validations from which those are estimated."""

NORMAL = 0.6745
"""Median of a normal distribution's absolute values, in standard deviations."""


class Overfitting(RuleSettings):
    """The validation loss rises while the training loss falls."""

    rise: FiniteFloat = Field(default=0.05, gt=0)
    """Share by which the validation loss may exceed its lowest value, or its fluctuation between
    validations if that is more."""

    looks: int = Field(default=3, ge=1)
    """Consecutive validations in which it must be exceeded."""


def check(history: History, settings: Overfitting, plan: Plan) -> Finding | None:
    """Return a finding for how far each recent validation loss exceeds the lowest."""
    looks, count = history.validations, settings.looks
    if len(looks) <= count or not history.lines:
        return None
    losses = [look["validation_loss"] for look in looks]
    best = min(range(len(losses)), key=losses.__getitem__)
    scale = abs(losses[best]) or 1.0
    rise = min(losses[-count:]) - losses[best]
    if best >= len(losses) - count or rise < max(settings.rise * scale, SWINGS * _swing(losses)):
        return None
    before = _between(history, looks[best - 1]["step"] if best else 0, looks[best]["step"])
    now = _between(history, looks[-count]["step"], looks[-1]["step"])
    if min(len(before), len(now)) < 2 or _fall(before, now) < SURE:
        return None
    return Finding(
        rise / scale,
        settings.rise,
        f"the validation loss was {losses[best]:.5g} at step {looks[best]['step']:.0f} and is at "
        f"least {min(losses[-count:]):.5g} in the last {count} looks, while the training loss fell "
        f"from {fmean(before):.5g} to {fmean(now):.5g}",
        "train on more data, for fewer steps, or with more weight_decay or dropout; the checkpoint "
        "with the best validation loss is kept",
    )


def _swing(losses: list[float]) -> float:
    """Return the standard deviation of the last validations about a smooth curve, from second
    differences, whose variance is six times that of their terms; by their median, since the
    first are steep.
    """
    last = losses[-RECENT:]
    bends = [abs(a - 2 * b + c) for a, b, c in zip(last, last[1:], last[2:], strict=False)]
    return median(bends) / (NORMAL * sqrt(6)) if bends else 0.0


def _between(history: History, after: float, until: float) -> list[float]:
    """Return the training losses of the lines between these steps."""

    def place(step: float) -> int:
        return bisect_right(history.lines, step, key=lambda line: line["step"])

    return [line["loss"] for line in history.lines[place(after) : place(until)]]


def _fall(before: list[float], now: list[float]) -> float:
    """Return by how many standard errors the mean fell (Welch 1947)."""
    error = sqrt(variance(before) / len(before) + variance(now) / len(now))
    return (fmean(before) - fmean(now)) / max(error, 1e-12)


RULE = Rule(Overfitting, check, of_validation=True)
