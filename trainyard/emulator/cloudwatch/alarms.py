"""Metric alarms: stored on disk and evaluated twice a second. No action is taken when one goes off.

A period ends at the current time, not at a full minute as on AWS. So an alarm goes off as soon as
its data require it, and one period later its state is the same as on AWS.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from trainyard.emulator.cloudwatch.metric_store import (
    Metric,
    Metrics,
    compute_statistic,
    is_supported_statistic,
)
from trainyard.emulator.json_documents import read_json, write_json
from trainyard.emulator.request_scope import ApiError, Thread, make_arn

log = logging.getLogger(__name__)

EXTRA_PERIODS = 2
"""Number of periods in addition to EvaluationPeriods that are searched for data. The user guide's
example searches five periods for three.
"""

COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "GreaterThanOrEqualToThreshold": lambda value, threshold: value >= threshold,
    "GreaterThanThreshold": lambda value, threshold: value > threshold,
    "LessThanThreshold": lambda value, threshold: value < threshold,
    "LessThanOrEqualToThreshold": lambda value, threshold: value <= threshold,
}
MISSING = ("missing", "breaching", "notBreaching", "ignore")


def evaluate_alarm(
    breaches: Sequence[bool | None], periods: int, to_alarm: int, missing: str, current_state: str
) -> str:
    """Return the alarm's new state.

    ``breaches`` says for each period of the evaluation range, the latest first, whether its data
    point breaches the threshold; None means that there is no data. ``periods``, ``to_alarm`` and
    ``missing`` are EvaluationPeriods, DatapointsToAlarm and TreatMissingData. ``current_state`` is
    the current state.
    """
    real = [breach for breach in breaches if breach is not None][:periods]
    gaps = periods - len(real)
    breach_count = sum(real) + (gaps if missing == "breaching" else 0)
    if missing in ("breaching", "notBreaching") or not gaps:
        return "ALARM" if breach_count >= to_alarm else "OK"
    if not real:
        return "INSUFFICIENT_DATA" if missing == "missing" else current_state
    if breach_count >= to_alarm:
        return "ALARM"
    if not all(real):
        return "OK"
    if missing == "ignore":
        return current_state
    oldest = max(age for age, breach in enumerate(breaches, start=1) if breach)
    return (
        "ALARM" if oldest >= to_alarm else current_state
    )  # the newest data points alone raise no alarm


TICK = 0.5  # seconds between evaluations
REQUIRED_MEMBERS = ("MetricName", "Namespace", "Period", "EvaluationPeriods", "ComparisonOperator")
NOT_RUN = (
    *("ThresholdMetricId", "EvaluationCriteria", "EvaluationWindow", "WarmUpConfiguration"),
    *("OKActions", "AlarmActions", "InsufficientDataActions"),
)


class Alarms:
    """The metric alarms. Its methods are thread-safe."""

    def __init__(self, path: Path, metrics: Metrics) -> None:
        self._path, self._metrics = path, metrics
        self._lock = threading.RLock()
        self._all: dict[str, dict] = read_json(path) if path.exists() else {}
        self._closing = threading.Event()
        self._thread = Thread(target=self._watch, name="alarms", daemon=True)

    def begin(self) -> None:
        """Start evaluating the alarms."""
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        if self._thread.ident:
            self._thread.join()

    def put(self, request: dict) -> dict:
        """Perform PutMetricAlarm."""
        check_alarm(request)
        name, now = request["AlarmName"], time.time()
        with self._lock:
            old = self._all.get(name, {})
            first = {
                "StateValue": "INSUFFICIENT_DATA",
                "StateReason": "Unchecked: Initial alarm creation",
                "StateUpdatedTimestamp": now,
                "StateTransitionedTimestamp": now,
            }
            self._all[name] = {
                "AlarmArn": make_arn("cloudwatch", f"alarm:{name}"),
                "ActionsEnabled": True,
                **{k: v for k, v in request.items() if k != "Tags"},
                "AlarmConfigurationUpdatedTimestamp": now,
                # A changed alarm keeps its state until it is evaluated again.
                **{key: old.get(key, value) for key, value in first.items()},
            }
            self._save()
        return {}

    def describe(self, request: dict) -> list[dict]:
        """Return the alarms that match a DescribeAlarms request, sorted by name."""
        names, prefix = request.get("AlarmNames"), request.get("AlarmNamePrefix", "")
        with self._lock:
            return [
                dict(alarm)
                for name, alarm in sorted(self._all.items())
                if (names is None or name in names)
                and name.startswith(prefix)
                and request.get("StateValue") in (None, alarm["StateValue"])
            ]

    def read_states(self, names: Iterable[str]) -> dict[str, str]:
        """Return a mapping of each existing alarm in ``names`` to its state."""
        with self._lock:
            return {n: self._all[n]["StateValue"] for n in names if n in self._all}

    def delete(self, request: dict) -> dict:
        """Perform DeleteAlarms."""
        with self._lock:
            for name in request["AlarmNames"]:
                self._all.pop(name, None)
            self._save()
        return {}

    # evaluation

    def _watch(self) -> None:
        while not self._closing.wait(TICK):
            for alarm in list(self._all.values()):
                try:
                    self._evaluate(alarm)
                except OSError as failure:  # the disk is full: the state is in memory only
                    log.warning("alarm %s: %s", alarm["AlarmName"], failure)

    def _evaluate(self, alarm: dict) -> None:
        """Compute the alarm's state, and store it if it has changed."""
        values = self._compute_values(alarm)
        compare, threshold = COMPARISONS[alarm["ComparisonOperator"]], alarm["Threshold"]
        breaches = [None if value is None else compare(value, threshold) for value in values]
        periods = alarm["EvaluationPeriods"]
        state = evaluate_alarm(
            breaches,
            periods,
            alarm.get("DatapointsToAlarm", periods),
            alarm.get("TreatMissingData", "missing"),
            alarm["StateValue"],
        )
        if state != alarm["StateValue"]:
            self._set_state(alarm, state, _format_reason(alarm, values, state))

    def _compute_values(self, alarm: dict) -> list[float | None]:
        """Return the statistic of each period in the evaluation range, the latest first. It is None
        for a period without data.
        """
        metric = parse_metric(alarm)
        statistic = alarm.get("Statistic") or alarm["ExtendedStatistic"]
        period, now = alarm["Period"], time.time()
        count = alarm["EvaluationPeriods"] + EXTRA_PERIODS
        unit = alarm.get("Unit", "")
        # 1e-6: points() excludes its end, but a value written just now must count.
        points = self._metrics.read_points(metric, now - count * period, now + 1e-6, unit)
        windows: list[list] = [[] for _ in range(count)]
        for point in points:
            windows[min(count - 1, int((now - point.t) // period))].append(point)
        return [compute_statistic(statistic, window) for window in windows]

    def _set_state(self, alarm: dict, state: str, reason: str) -> None:
        """Store and log a new state, unless the alarm was changed or deleted meanwhile."""
        now, name = time.time(), alarm["AlarmName"]
        with self._lock:
            if self._all.get(name) is not alarm:
                return  # it was changed or deleted while it was evaluated
            before = alarm["StateValue"]
            alarm |= {"StateValue": state, "StateReason": reason}
            alarm |= {"StateUpdatedTimestamp": now, "StateTransitionedTimestamp": now}
            self._save()
        level = logging.WARNING if state == "ALARM" else logging.INFO
        log.log(level, "alarm %s: %s after %s: %s", name, state, before, reason)

    def _save(self) -> None:
        write_json(self._path, self._all)


def parse_metric(document: dict) -> Metric:
    """Return the metric that a document's Namespace, MetricName and Dimensions identify."""
    dimensions = {d["Name"]: d["Value"] for d in document.get("Dimensions") or []}
    return Metric.from_dimensions(document["Namespace"], document["MetricName"], dimensions)


def check_alarm(request: dict) -> None:
    """Raise ``ValidationError`` for an alarm that AWS refuses or that cannot be evaluated here."""
    if request.get("Metrics"):
        raise _make_validation_error(
            "Metrics: alarms on metric math are not evaluated here: give a MetricName"
        )
    for member in NOT_RUN:
        if request.get(member):
            raise _make_validation_error(
                f"{member}: only the state is evaluated here; leave it out"
            )
    for member in (*REQUIRED_MEMBERS, "Threshold"):
        if request.get(member) is None:
            raise _make_validation_error(f"{member} is missing")
    statistics = [s for s in (request.get("Statistic"), request.get("ExtendedStatistic")) if s]
    if len(statistics) != 1 or not is_supported_statistic(statistics[0]):
        raise _make_validation_error(
            f"Statistic or ExtendedStatistic, {statistics}: expected one of SampleCount, Average, "
            "Sum, Minimum, Maximum, or a percentile such as p99"
        )
    _check_choice(request, "ComparisonOperator", tuple(COMPARISONS))
    _check_choice(request, "TreatMissingData", MISSING)
    _check_choice(request, "EvaluateLowSampleCountPercentile", ("evaluate",))
    period, periods = request["Period"], request["EvaluationPeriods"]
    if period not in (10, 20, 30) and (period <= 0 or period % 60):
        raise _make_validation_error(
            f"Period {period}: expected 10, 20, 30 or a multiple of 60 seconds"
        )
    if periods < 1 or not 1 <= request.get("DatapointsToAlarm", 1) <= periods:
        raise _make_validation_error(
            f"EvaluationPeriods {periods}: expected at least 1, and at least DatapointsToAlarm"
        )


def _check_choice(request: dict, member: str, values: tuple[str, ...]) -> None:
    if request.get(member, values[0]) not in values:
        raise _make_validation_error(
            f"{member} {request[member]!r}: expected one of {', '.join(values)}"
        )


def _format_reason(alarm: dict, values: list[float | None], state: str) -> str:
    """Return the reason for the state, in AWS's words."""
    datapoints = [f"{value:g}" for value in values if value is not None][
        : alarm["EvaluationPeriods"]
    ]
    if not datapoints:
        return f"Insufficient Data: {alarm['EvaluationPeriods']} datapoints were unknown."
    relation = "was" if state == "ALARM" else "was not"
    words = {
        "GreaterThanOrEqualToThreshold": "greater than or equal to",
        "GreaterThanThreshold": "greater than",
        "LessThanThreshold": "less than",
        "LessThanOrEqualToThreshold": "less than or equal to",
    }[alarm["ComparisonOperator"]]
    return (
        f"Threshold Crossed: {len(datapoints)} datapoints [{', '.join(datapoints)}] {relation} "
        f"{words} the threshold ({alarm['Threshold']})."
    )


def _make_validation_error(message: str) -> ApiError:
    return ApiError("ValidationError", message)
