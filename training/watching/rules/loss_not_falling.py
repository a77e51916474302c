"""The loss does not fall, or has risen again (Debugger: LossNotDecreasing).

A line's loss is that of one step, so it is noisy. The rule reports when the loss's fall is hidden
by the noise but a fall by SHARE would not be; both are judged by the standard error of a difference
of means. So the noisier the loss, the longer it takes until the rule reports. Slow training is
not reported: a falling trend, however slow, counts as a fall, and nothing is reported before the
weights have moved so far that the loss should show it, unless they do not move at all. A plateau is
not a fault: a run that has learned something may end on one, and fine-tuning may begin on
one, so for fine-tuning only a rise is reported. For a loss that is not meant to fall (of a
generator and its critic, of a policy) switch this rule off: ``action: off``.
"""

from itertools import pairwise
from math import sqrt
from statistics import fmean, linear_regression, stdev

from training.watching.watch_rule import Finding, History, Line, Plan, Rule, RuleSettings

FIRST = 5
"""Smallest number of lines that define the initial loss, which may fall within a few lines."""

EARLY, LATE = 60, 400
"""Largest numbers of lines compared, at the beginning and at the end."""

SURE = 3.0
"""Number of standard errors above which a fall is certain, and up to which one is possible. It
is 3 because the test is repeated at every line, and two errors happen by chance.
"""

STILL = 6e-8
"""‖update‖ / ‖weights‖ that float32 rounds away: if it is smaller, there is no change to wait
for.
"""

NEVER = 2**-9
"""‖update‖ / ‖weights‖, summed over all planned steps, that bfloat16 rounds away."""

RISING = (
    "lower learning_rate or warm up longer, and look at the samples of those steps; the checkpoint "
    "with the best validation loss is kept"
)

SURE_OF_RISE = 6.0
"""Number of standard errors that count as a rise; large because the test is repeated many times,
and starts from the lowest block. In a comparison with the first line they are standard
deviations, because that is a single value.
"""


LINES = 20
"""Number of metric lines that are examined as a block. Nothing is reported before there are
twice as many, or during the warm-up of the learning rate.
"""

SHARE = 0.02
"""Share of its first value by which the loss should have fallen."""

MOVED = 0.1
"""A loss that does not fall is reported only if ‖update‖ / ‖weights‖ of the median matrix,
summed over the steps, has reached this: a hundred steps at the typical 1e-3. Used if the lines
contain it.
"""

RISE = 0.05
"""Share by which the loss may be above its first value. A larger rise is reported if each of the
recent lines is above the first one, by more than the noise: Debugger's
increase_threshold_percent.
"""

REGAINED = 0.5
"""Share of the loss's fall by which it may rise again. A larger rise is reported if it is at
least SHARE of the first value.
"""


def check(history: History, settings: RuleSettings, plan: Plan) -> Finding | None:
    """Return a finding if the loss fell by too small a share, or rose again by too large a one."""
    lines, count = history.lines, LINES
    if len(lines) < 2 * count or not history.has_warm_lines(count, plan):
        return None
    late = [line["loss"] for line in lines[-count:]]
    finding = _find_rise(lines[0]["loss"], late, plan)
    if finding is None and not plan.fine_tuning:
        finding = _find_missing_fall(lines, plan)
    if finding or len(lines) % (count // 2):  # all blocks are searched, so not at every line
        return finding
    return _find_lost_fall([line["loss"] for line in lines])


def _find_rise(first: float, late: list[float], plan: Plan) -> Finding | None:
    """Return a finding with the share by which the loss is above its first value, if it has
    risen.
    """
    share = (fmean(late) - first) / (abs(first) or 1.0)
    # The loss of fresh weights is that of chance; a base model's loss may be low in any single
    # line.
    sure = SURE_OF_RISE if plan.fine_tuning else SURE
    rise = fmean(late) - first
    if share <= RISE or min(late) <= first or rise < sure * _estimate_noise(late):
        return None
    return Finding(
        share,
        RISE,
        f"the loss was {first:.5g} in the first line and is {fmean(late):.5g} over the last "
        f"{LINES}: it has risen",
        RISING,
    )


def _estimate_noise(values: list[float]) -> float:
    """Return the standard deviation about a trend, computed from differences (von Neumann et al.
    1941).
    """
    return sqrt(fmean((a - b) ** 2 for a, b in pairwise(values)) / 2)


def _find_missing_fall(lines: list[Line], plan: Plan) -> Finding | None:
    """Return a finding with the share by which the loss fell, if that is certainly too small."""
    count = len(lines) // 2
    early = [line["loss"] for line in lines[: min(count, EARLY)]]
    late = [line["loss"] for line in lines[-min(count, LATE) :]]
    falls = [_compute_fall(losses, late) for losses in (early[:FIRST], early)]
    if any(fall >= SURE * error for fall, error in falls):
        return None
    if is_underway(lines, MOVED, plan.max_steps) or is_falling_steadily(
        [line["loss"] for line in lines[-LATE:]]
    ):
        return None
    fall, error = falls[-1]
    first = abs(fmean(early)) or 1.0
    if fall + SURE * error >= SHARE * first:
        return None
    return Finding(
        fall / first,
        SHARE,
        f"the loss of the last {len(late)} lines is {fmean(late):.5g}, that of the first "
        f"{len(early)} {fmean(early):.5g}: it has {'risen' if fall < 0 else 'fallen'} by "
        f"{abs(fall) / first:.2%}, give or take {error / first:.2%}",
        "check that labels belong to their samples and that weights are trained at all "
        "(freeze, dead updates); otherwise raise or lower learning_rate by a factor of ten",
    )


def is_underway(lines: list[Line], enough: float, max_steps: int) -> bool:
    """Return whether the weights move, but not yet far enough for the loss to show it."""
    ratios = [line["update_ratio"] for line in lines if "update_ratio" in line]
    if not ratios or max(ratios) < STILL or max_steps and max(ratios) * max_steps < NEVER:
        return False
    return fmean(ratios) * (lines[-1]["step"] - lines[0]["step"] + 1) < enough


def is_falling_steadily(losses: list[float]) -> bool:
    """Return whether a line fitted to the losses falls, by ``SURE`` standard errors."""
    if len(losses) < 3:
        return False
    slope, begin = linear_regression(range(len(losses)), losses)
    residual = sum((loss - begin - slope * index) ** 2 for index, loss in enumerate(losses))
    # Sum of the squared deviations of the indices from their mean.
    spread = len(losses) * (len(losses) ** 2 - 1) / 12
    return slope < -SURE * sqrt(residual / (len(losses) - 2) / spread)


def _compute_fall(early: list[float], late: list[float]) -> tuple[float, float]:
    """Return by how much the late mean is lower than the early one, and the standard error of
    that.
    """
    # Use the noise of the late losses, because early losses also spread by falling. Never 0,
    # because a fall of 0 between equal losses would then count as one.
    spread = max(stdev(late), 1e-12 * abs(fmean(late)), 1e-300)
    return fmean(early) - fmean(late), spread * sqrt(1 / len(early) + 1 / len(late))


def _find_lost_fall(losses: list[float]) -> Finding | None:
    """Return a finding if the loss rose again by too large a share of its fall to the lowest
    block.
    """
    count = LINES
    blocks = [
        fmean(losses[start : start + count]) for start in range(0, len(losses) - count, count)
    ]
    late, best = losses[-count:], min(blocks)
    first = fmean(losses[:FIRST])
    gain, lost = first - best, fmean(late) - best
    errors = lost / (max(stdev(late), 1e-300) * sqrt(2 / count))
    if gain <= 0 or lost <= REGAINED * gain or errors < SURE_OF_RISE:
        return None
    if lost < SHARE * abs(first):
        return None
    return Finding(
        lost / gain,
        REGAINED,
        f"the loss had fallen to {best:.5g} and is {fmean(late):.5g} over the last {count} lines: "
        f"{lost / gain:.0%} of its fall is lost",
        RISING,
    )


RULE = Rule(
    "The loss has not fallen since the beginning, or has risen again by most of its fall.", check
)
