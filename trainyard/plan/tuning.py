"""A tuning step as many training jobs: how many at most, and how many at a time."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

CONFIG = "HyperParameterTuningJobConfig"


@dataclass(frozen=True, slots=True)
class Jobs:
    """The jobs of one step; one, unless it tunes."""

    most: int = 1
    parallel: int = 1
    within: float = math.inf
    """Seconds after which the tuning job itself ends."""

    def longest(self, each: float) -> float:
        """Seconds of the step at most, when each of its jobs takes ``each``."""
        return min(math.ceil(self.most / self.parallel) * each, self.within)

    def together(self, each: float) -> float:
        """Seconds of all its jobs at most."""
        return min(self.most * each, self.parallel * self.within)


def jobs_of(config: Any) -> Jobs | None:
    """What HyperParameterTuningJobConfig says; None where only a run can tell."""
    limits = config.get("ResourceLimits") if isinstance(config, Mapping) else None
    if not isinstance(limits, Mapping):
        return None
    most = limits.get("MaxNumberOfTrainingJobs") or _combinations(config)
    parallel, within = limits.get("MaxParallelTrainingJobs"), limits.get("MaxRuntimeInSeconds")
    if not isinstance(most, int) or not isinstance(parallel, int):
        return None
    return Jobs(most, max(1, parallel), within if isinstance(within, int) else math.inf)


def _combinations(config: Mapping[str, Any]) -> int | None:
    """How many jobs strategy Grid starts."""
    ranges = config.get("ParameterRanges")
    items = ranges.get("CategoricalParameterRanges") if isinstance(ranges, Mapping) else None
    if config.get("Strategy") != "Grid" or not isinstance(items, list):
        return None
    found = 1
    for item in items:
        values = item.get("Values") if isinstance(item, Mapping) else None
        if not isinstance(values, list):
            return None
        found *= len(values)
    return found
