"""What differs between any two runs and says nothing: ids of executions, names of jobs, times.

Two values are equal when their keys are. This is the one place that says what a key leaves out.
"""

import re
from collections.abc import Mapping
from typing import Any

from trainyard.plan.fields import text

_STAMP = re.compile(r"\b(?:\d{4}(?:-\d\d){5}-\d{3}|\d{6}-\d{4}-[0-9a-f]{4})\b")
"""What SDKs put behind a name: ``2026-11-22-21-43-03-123`` (name_from_base: sagemaker_timestamp)
and ``261122-2143-1a2b`` (a tuning job's: sagemaker_short_timestamp and four hexadecimal digits)."""

EXECUTION, JOB = "{execution id}", "{job name}"


def key(value: Any, own: Mapping[str, str]) -> str:
    """What of ``value`` can differ from another run's.

    ``own``: names that only this run has, such as its id → what stands for each.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    found = text(value)
    for name in sorted(own, key=len, reverse=True):
        found = found.replace(name, own[name])
    return _STAMP.sub("{time}", found)
