"""Some steps take far longer than the others (Debugger: StepOutlier).

Debugger counts steps beyond three standard deviations, ten of them; but outliers widen the very
deviation. Here the limit is a multiple of the median, and the cost counts, too: outliers that cost
nothing are not worth reporting. Outliers in consecutive lines are one moment, in which the
machine was busy with something else; a fault of the training or machine recurs, so
moments are counted, and must occur in each part of the window. Saving a checkpoint is not
counted, and a step of longer samples may take longer in proportion: the usual time is for its
units.
"""

from itertools import pairwise
from statistics import median

from pydantic import Field, FiniteFloat

from training.watching.watch_rule import Finding, History, Plan, Rule, RuleSettings

LINES = 100
"""Recent log lines examined."""

LEAST = 20
"""Minimum lines for a baseline."""

PARTS = 4
"""Number of equal parts of those lines, each of which must have an outlier."""


class StepOutliers(RuleSettings):
    """Single steps take many times as long as the others, and cost time."""

    times: FiniteFloat = Field(default=3.0, gt=1)
    """Multiple of the median step time of the last 100 lines above which a line is an outlier; for
    steps with more units than usual it is scaled up accordingly."""

    count: int = Field(default=10, ge=1)
    """Outliers among the last 100 lines; consecutive ones count once. (Debugger's n_outliers is
    also 10.)"""

    share: FiniteFloat = Field(default=0.2, gt=0, lt=1)
    """Share of the total time that they cost."""

    seconds: FiniteFloat = Field(default=30.0, ge=0)
    """Least time that they cost among the last 100 lines, in seconds."""


def check(history: History, settings: StepOutliers, plan: Plan) -> Finding | None:
    """Return a finding with the share of the time that outliers take beyond a usual step."""
    taken = [
        (
            line["step_seconds"] - line.get("checkpoint_seconds", 0),
            line["step"] - before["step"],
            line.get("units_per_second", 0.0) * line["step_seconds"],
        )
        for before, line in pairwise(history.lines[-LINES - 1 :])
        if "step_seconds" in line
    ]
    if len(taken) < LEAST:
        return None
    usual, units = median(step for step, _, _ in taken), median(units for _, _, units in taken)
    over: dict[int, float] = {}
    for at, (step, steps, held) in enumerate(taken):
        more = max(1.0, held / units) if units else 1.0
        if step > settings.times * usual * more:
            over[at] = (step - usual * more) * steps
    cost = sum(over.values())
    share = cost / (sum(step * steps for step, steps, _ in taken) or 1.0)
    if share < settings.share or cost < settings.seconds:
        return None
    if moments([*over]) < settings.count or not throughout([*over], len(taken)):
        return None
    return Finding(
        share,
        settings.share,
        f"{len(over)} of the last {len(taken)} lines have steps of more than {settings.times:g} "
        f"times the usual {usual:.3g} s; {cost:.3g} s, {share:.0%} of the time, go there",
        "see which part of a step it is (data_seconds, communication_seconds, …), and look at what "
        "else runs on the machines; profile_steps records a trace",
    )


def moments(where: list[int]) -> int:
    """Return the number of runs of consecutive places; ``where`` ascends."""
    return sum(1 for at, place in enumerate(where) if not at or place > where[at - 1] + 1)


def throughout(where: list[int], lines: int) -> bool:
    """Return whether each of the ``PARTS`` equal parts of the lines has one of these places."""
    return len({place * PARTS // lines for place in where}) == PARTS


RULE = Rule(StepOutliers, check)
