"""MetricDefinitions: regular expressions that read metrics out of a job's log lines."""

import threading
import time
from collections.abc import Iterable, Mapping
from re import Match
from typing import Any

from trainyard.emulator.api import ApiError
from trainyard.metric_regex import Expression


class Metrics:
    """The latest value of each metric. ``read`` may be called from several threads."""

    def __init__(self, definitions: Iterable[dict]) -> None:
        self._patterns = [(entry["Name"], compiled(entry)) for entry in definitions]
        self._latest: dict[str, dict] = {}
        self._reported: set[str] = set()
        self._lock = threading.Lock()

    def read(self, line: str) -> list[tuple[str, float]]:
        """Return name and value of each metric in the line."""
        found = []
        for name, pattern in self._patterns:
            match = pattern.search(line)
            value = number(match) if match else None
            if value is not None:
                entry = {"MetricName": name, "Value": value, "Timestamp": time.time()}
                with self._lock:
                    self._latest[name] = entry
                found.append((name, value))
        return found

    def given_up(self) -> list[str]:
        """Return a message for each expression that proved too slow since the last call."""
        slow = {name: one for name, one in self._patterns if one.is_given_up}
        with self._lock:
            new = slow.keys() - self._reported
            self._reported |= new
        return [slow[name].given_up_message(name) for name in sorted(new)]

    def latest(self) -> list[dict]:
        """Return ``FinalMetricDataList``: MetricName, Value, Timestamp (seconds)."""
        with self._lock:
            return list(self._latest.values())


def compiled(entry: Mapping[str, Any]) -> Expression:
    """Return the compiled Regex of a definition.

    Raises ``ValidationException`` for an invalid expression, or one without a group.
    """
    try:
        pattern = Expression(entry["Regex"])
    except ValueError as error:
        message = f"MetricDefinitions: the Regex of {entry['Name']!r} is not valid: {error}"
        raise ApiError("ValidationException", message) from None
    if not pattern.groups:
        message = f"MetricDefinitions: the Regex of {entry['Name']!r} needs one group (...)"
        raise ApiError("ValidationException", message)
    return pattern


def number(match: Match[str]) -> float | None:
    """Return the first group as a number; None for text, and for NaN and infinity, which JSON
    lacks.
    """
    try:
        value = float(match.group(1) or "")
    except ValueError:
        return None
    return value if value - value == 0 else None
