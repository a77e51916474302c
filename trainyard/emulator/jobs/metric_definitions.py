"""The latest value of each metric of a training job, read from its log lines as they come."""

import math
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

from trainyard.emulator.api import ApiError
from trainyard.runs.metric_lines import Definition, definition


class Metrics:
    """The latest value of each metric. ``read`` may be called from several threads."""

    def __init__(self, definitions: Iterable[Mapping[str, Any]]) -> None:
        self._metrics = [compile_regex(entry) for entry in definitions]
        self._latest: dict[str, dict] = {}
        self._reported_definitions: set[str] = set()
        self._lock = threading.Lock()

    def read(self, line: str) -> list[tuple[str, float]]:
        """Return name and value of each metric in the line; JSON lacks NaN and infinity."""
        values = []
        for one in self._metrics:
            value = one.value(line)
            if value is not None and math.isfinite(value):
                entry = {"MetricName": one.name, "Value": value, "Timestamp": time.time()}
                with self._lock:
                    self._latest[one.name] = entry
                values.append((one.name, value))
        return values

    def given_up(self) -> list[str]:
        """Return a message for each expression that proved too slow since the last call."""
        slow = {
            pattern.name: pattern.pattern
            for pattern in self._metrics
            if pattern.pattern.is_given_up
        }
        with self._lock:
            new = slow.keys() - self._reported_definitions
            self._reported_definitions |= new
        return [slow[name].given_up_message(name) for name in sorted(new)]

    def latest(self) -> list[dict]:
        """Return ``FinalMetricDataList``: MetricName, Value, Timestamp (seconds)."""
        with self._lock:
            return list(self._latest.values())


def compile_regex(entry: Mapping[str, Any]) -> Definition:
    """Return a definition. Raises ``ValidationException`` for one that cannot work."""
    try:
        return definition(entry)
    except ValueError as error:
        raise ApiError("ValidationException", str(error)) from None
