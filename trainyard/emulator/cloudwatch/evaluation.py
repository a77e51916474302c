"""What state an alarm's data say: the tables of the user guide, "Configuring how CloudWatch alarms
treat missing data"."""

from collections.abc import Callable, Sequence

BEYOND = 2
"""How many periods more than EvaluationPeriods are looked at for data: the guide's example has
five for three."""

COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "GreaterThanOrEqualToThreshold": lambda value, threshold: value >= threshold,
    "GreaterThanThreshold": lambda value, threshold: value > threshold,
    "LessThanThreshold": lambda value, threshold: value < threshold,
    "LessThanOrEqualToThreshold": lambda value, threshold: value <= threshold,
}
MISSING = ("missing", "breaching", "notBreaching", "ignore")


def evaluated(
    breaches: Sequence[bool | None], periods: int, to_alarm: int, missing: str, now: str
) -> str:
    """The alarm's state after these data.

    ``breaches``: for each period of the evaluation range, the latest first, whether its data point
    breaches; None where there is none. ``periods``, ``to_alarm``, ``missing``: EvaluationPeriods,
    DatapointsToAlarm, TreatMissingData. ``now``: the state so far.
    """
    real = [breach for breach in breaches if breach is not None][:periods]
    filled = periods - len(real)
    bad = sum(real) + (filled if missing == "breaching" else 0)
    if missing in ("breaching", "notBreaching") or not filled:
        return "ALARM" if bad >= to_alarm else "OK"
    if not real:
        return "INSUFFICIENT_DATA" if missing == "missing" else now
    if bad >= to_alarm:
        return "ALARM"
    if not all(real):
        return "OK"
    if missing == "ignore":
        return now
    oldest = max(age for age, breach in enumerate(breaches, start=1) if breach)
    return "ALARM" if oldest >= to_alarm else now  # not prematurely, on the newest alone
