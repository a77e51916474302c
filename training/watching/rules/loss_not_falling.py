"""The loss does not fall, or has risen again (Debugger: LossNotDecreasing).

The loss of a line is one step's, and so is noise. That it does not fall is said when its fall is
not to be seen in the noise and one of ``share`` would be: both by the standard error of a
difference of means. So it takes the longer the noisier the loss is. A slow training is not taken
for a dead one: a trend that falls, however slowly, is a fall, and nothing is said before the
weights were moved far enough that the loss should show it, unless they do not move at all. A
plateau is no fault: a training that has learned something may end on one, and a fine-tuning begin
on one, of which it is said only that the loss has risen. A loss that is not meant to fall (of a
generator and its critic, of a policy) is not for this rule: ``action: off``.
"""

from itertools import pairwise
from math import sqrt
from statistics import fmean, linear_regression, stdev

from pydantic import Field, FiniteFloat

from training.watching.watch_rule import Finding, History, Line, Plan, Rule, RuleSettings

FIRST = 5
"""Lines that say where the loss began, besides more of them: it may have fallen within a few."""

EARLY, LATE = 60, 400
"""Lines that are compared at most, at the beginning and at the end."""

SURE = 3.0
"""Standard errors above which a fall is seen, and up to which one is possible: at every line it is
asked again, and what is two errors off comes by chance."""

STILL = 6e-8
"""‖update‖ / ‖weights‖ that float32 rounds away: with less there is nothing to wait for."""

NEVER = 2**-9
"""And with so little over all planned steps: bfloat16 rounds it away."""

RISING = (
    "lower learning_rate or warm up longer, and look at the samples of those steps; the checkpoint "
    "with the best validation loss is kept"
)

SURE_OF_RISE = 6.0
"""Standard errors that count as a rise: it is looked for many times, and from the lowest block; or
from the first line, and then it is standard deviations, as that is one."""


class LossNotFalling(RuleSettings):
    """The loss has not fallen since the beginning, or has given back what it had gained."""

    lines: int = Field(default=20, ge=5)
    """Metric lines that are looked at in one piece; nothing is said before there are twice as many,
    nor while the learning rate warms up."""

    share: FiniteFloat = Field(default=0.02, gt=0, lt=1)
    """Share of its first value that the loss would have to have fallen by."""

    moved: FiniteFloat = Field(default=0.1, ge=0)
    """Sum of ‖update‖ / ‖weights‖ over the steps, of the median matrix, before which a loss that
    does not fall is no finding: a hundred steps at the usual 1e-3. Counts where the lines have
    it."""

    rise: FiniteFloat = Field(default=0.05, gt=0)
    """Share by which the loss may be above its first value, while each of the last lines is, by
    more than its noise. (Debugger's increase_threshold_percent is 5 %, too.)"""

    regained: FiniteFloat = Field(default=0.5, gt=0)
    """Share of what the loss had fallen by that it may rise again, if that is a fall by ``share``
    in itself."""


def check(history: History, settings: LossNotFalling, plan: Plan) -> Finding | None:
    """The share that the loss fell by is too small; or the share that it rose again too large."""
    lines, count = history.lines, settings.lines
    if len(lines) < 2 * count or not history.warm(count, plan):
        return None
    late = [line["loss"] for line in lines[-count:]]
    found = _above(lines[0]["loss"], late, settings, plan)
    if found is None and not plan.fine_tuning:
        found = _not_fallen(lines, settings, plan)
    if found or len(lines) % (count // 2):  # all blocks are looked through: not each time
        return found
    return _risen([line["loss"] for line in lines], settings)


def _above(first: float, late: list[float], settings: LossNotFalling, plan: Plan) -> Finding | None:
    """The share by which the loss is above its first value."""
    share = (fmean(late) - first) / (abs(first) or 1.0)
    # The loss of fresh weights is that of chance; a base's may be low in one line as in any other.
    sure = SURE_OF_RISE if plan.fine_tuning else SURE
    rise = fmean(late) - first
    if share <= settings.rise or min(late) <= first or rise < sure * _noise(late):
        return None
    return Finding(
        share,
        settings.rise,
        f"the loss was {first:.5g} in the first line and is {fmean(late):.5g} over the last "
        f"{settings.lines}: it has risen",
        RISING,
    )


def _noise(values: list[float]) -> float:
    """Their standard deviation about a trend: by each one's difference from the next (von Neumann
    et al. 1941).
    """
    return sqrt(fmean((a - b) ** 2 for a, b in pairwise(values)) / 2)


def _not_fallen(lines: list[Line], settings: LossNotFalling, plan: Plan) -> Finding | None:
    """The share that the loss fell by, where that is too little for certain."""
    count = len(lines) // 2
    early = [line["loss"] for line in lines[: min(count, EARLY)]]
    late = [line["loss"] for line in lines[-min(count, LATE) :]]
    falls = [_fall(one, late) for one in (early[:FIRST], early)]
    if any(fall >= SURE * error for fall, error in falls):
        return None
    if underway(lines, settings.moved, plan.max_steps) or falls_steadily(
        [line["loss"] for line in lines[-LATE:]]
    ):
        return None
    fall, error = falls[-1]
    first = abs(fmean(early)) or 1.0
    if fall + SURE * error >= settings.share * first:
        return None
    return Finding(
        fall / first,
        settings.share,
        f"the loss of the last {len(late)} lines is {fmean(late):.5g}, that of the first "
        f"{len(early)} {fmean(early):.5g}: it has {'risen' if fall < 0 else 'fallen'} by "
        f"{abs(fall) / first:.2%}, give or take {error / first:.2%}",
        "see that labels belong to their samples and that weights are trained at all "
        "(freeze, dead updates); else raise or lower learning_rate by a factor of ten",
    )


def underway(lines: list[Line], enough: float, planned: int) -> bool:
    """Whether the weights move, and are not yet where the loss should show it."""
    ratios = [line["update_ratio"] for line in lines if "update_ratio" in line]
    if not ratios or max(ratios) < STILL or planned and max(ratios) * planned < NEVER:
        return False
    return fmean(ratios) * (lines[-1]["step"] - lines[0]["step"] + 1) < enough


def falls_steadily(losses: list[float]) -> bool:
    """Whether the slope of a straight line through them is below 0, by ``SURE`` standard errors."""
    if len(losses) < 3:
        return False
    slope, begin = linear_regression(range(len(losses)), losses)
    left = sum((loss - begin - slope * at) ** 2 for at, loss in enumerate(losses))
    spread = len(losses) * (len(losses) ** 2 - 1) / 12
    return slope < -SURE * sqrt(left / (len(losses) - 2) / spread)


def _fall(early: list[float], late: list[float]) -> tuple[float, float]:
    """(how much lower the late ones' mean is, its standard error)."""
    # By the late ones' noise: a loss that falls within the first lines spreads there for that.
    spread = max(stdev(late), 1e-12 * abs(fmean(late)), 1e-300)
    return fmean(early) - fmean(late), spread * sqrt(1 / len(early) + 1 / len(late))


def _risen(losses: list[float], settings: LossNotFalling) -> Finding | None:
    """The share that was lost of what the loss had fallen by, down to its lowest block."""
    count = settings.lines
    blocks = [fmean(losses[at : at + count]) for at in range(0, len(losses) - count, count)]
    late, best = losses[-count:], min(blocks)
    first = fmean(losses[:FIRST])
    gained, lost = first - best, fmean(late) - best
    errors = lost / (max(stdev(late), 1e-300) * sqrt(2 / count))
    if gained <= 0 or lost <= settings.regained * gained or errors < SURE_OF_RISE:
        return None
    if lost < settings.share * abs(first):
        return None
    return Finding(
        lost / gained,
        settings.regained,
        f"the loss had fallen to {best:.5g} and is {fmean(late):.5g} over the last {count} lines: "
        f"{lost / gained:.0%} of what it had fallen by is lost",
        RISING,
    )


RULE = Rule(LossNotFalling, check)
