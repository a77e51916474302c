"""Some steps take far longer than the others (Debugger: StepOutlier).

Debugger counts steps beyond three standard deviations, ten of them; but outliers widen the very
deviation. Here it is times the median, and what they cost counts besides: of outliers that cost
nothing nobody need hear. Outliers in lines that follow each other are one moment, in which the
machine was busy with something else; a fault of the training or of its machine comes again and
again, so moments are counted, and wanted in each part of the window. Saving a checkpoint is not
counted, and a step of longer samples may take longer in proportion: what is usual is for its units.
"""

from itertools import pairwise
from statistics import median

from pydantic import Field, FiniteFloat

from training.watching.watch_rule import Finding, History, Plan, Rule, RuleSettings

LINES = 100
"""That are looked at."""

LEAST = 20
"""Without which it is not known what is usual."""

PARTS = 4
"""Equal parts of those lines, each of which has to have an outlier."""


class StepOutliers(RuleSettings):
    """Single steps take many times as long as the others, and cost time."""

    times: FiniteFloat = Field(default=3.0, gt=1)
    """A line is an outlier whose step takes so many times the median's of the last 100 lines; of
    more units than is usual, so many times the more."""

    count: int = Field(default=10, ge=1)
    """Outliers among the last 100 lines; of those that follow each other one counts. (Debugger's
    n_outliers is 10, too.)"""

    share: FiniteFloat = Field(default=0.2, gt=0, lt=1)
    """Share of the time that they cost in all."""

    seconds: FiniteFloat = Field(default=30.0, ge=0)
    """Seconds that they cost among the last 100 lines, at least."""


def check(history: History, settings: StepOutliers, plan: Plan) -> Finding | None:
    """The share of the time that outliers take beyond a usual step."""
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
    """How many runs of consecutive places there are in these, which rise."""
    return sum(1 for at, place in enumerate(where) if not at or place > where[at - 1] + 1)


def throughout(where: list[int], lines: int) -> bool:
    """Whether each of the ``PARTS`` of so many lines has one of these places."""
    return len({place * PARTS // lines for place in where}) == PARTS


RULE = Rule(StepOutliers, check)
