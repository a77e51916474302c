"""Objective values that running training jobs print, and the rules that stop jobs early.

They are read from the log streams, so that a new emulator finds the curves of ended jobs. As on AWS
the service does not know who printed a line: print the objective on rank 0 only.
"""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainyard.emulator.logs.log_store import LogStore, read_forward
from trainyard.emulator.sagemaker.jobs.training_job import compile_metric_definition

GROUP = "/aws/sagemaker/TrainingJobs"
OWN_PREFIX = "[emulator] "


class ObjectiveCurve:
    """The objective values that one training job has printed, in order."""

    def __init__(self, logs: LogStore, job: str, nodes: int, metric: Mapping[str, Any]) -> None:
        self.values: list[float] = []
        self._logs, self._job, self._nodes = logs, job, nodes
        self._metric = compile_metric_definition(metric)
        self._streams: dict[Path, int] = {}
        """Mapping of a file to the offset up to which it has been read."""

    def read_new_values(self) -> None:
        """Append the values that were printed since the last call to ``values``."""
        # A node has a log stream only once it has logged something.
        if len(self._streams) < self._nodes:
            streams = self._logs.list_streams(GROUP, f"{self._job}/")
            self._streams = {stream.path: 0 for stream in streams} | self._streams
        for path, start in self._streams.items():
            for event in read_forward(path, start):
                self._streams[path] = event.stop
                if event.message.startswith(OWN_PREFIX):
                    continue
                value = self._metric.extract_value(event.message)
                if value is not None and math.isfinite(value):
                    self.values.append(value)


ETA = 3
Curve = Sequence[float]


@dataclass(frozen=True, slots=True)
class Median:
    """Early stopping by the median: TrainingJobEarlyStoppingType Auto."""

    minimize: bool

    def find_stop_reason(self, curve: Curve, position: int, others: Sequence[Curve]) -> str | None:
        """Return the reason for stopping the job at value number ``position`` of its ``curve``,
        counted from 1. Return None if it continues.

        ``others`` are the curves of the jobs that were started before it.
        """
        averages = [
            statistics.fmean(other[:position]) for other in others if len(other) >= position
        ]
        if not averages:
            return None
        median = statistics.median(averages)
        if not _is_worse(curve[position - 1], median, self.minimize):
            return None
        return (
            f"early stopping: value {position} of the objective, {curve[position - 1]:g}, is "
            f"worse than {median:g}, the median of the earlier jobs' averages so far"
        )


@dataclass(frozen=True, slots=True)
class Hyperband:
    """Early stopping by Hyperband. ``min_resource`` and ``max_resource`` are MinResource and
    MaxResource of HyperbandStrategyConfig.
    """

    minimize: bool
    min_resource: int
    max_resource: int

    def find_stop_reason(self, curve: Curve, position: int, others: Sequence[Curve]) -> str | None:
        """Return the reason for stopping the job, as :meth:`Median.find_stop_reason` does.
        ``others`` are the curves of all other jobs.
        """
        # At MaxResource a job may end by itself, so that it can save its model. It is stopped only
        # when it prints another value.
        if position > self.max_resource:
            return (
                f"Hyperband: it continued after MaxResource, {self.max_resource} values of the "
                "objective"
            )
        if position not in self.list_rungs():
            return None
        value = curve[position - 1]
        values = [other[position - 1] for other in others if len(other) >= position]
        better = sum(_is_worse(value, other, self.minimize) for other in values)
        survivor_count = max(1, (len(values) + 1) // ETA)
        if better < survivor_count:
            return None
        return (
            f"Hyperband: with {value:g} at {position} values of the objective it is number "
            f"{better + 1} of {len(values) + 1}, and only the best {survivor_count} continue"
        )

    def list_rungs(self) -> list[int]:
        """Return the counts of printed values at which jobs are compared."""
        return list(_iter_rungs(self.min_resource, self.max_resource))


Rule = Median | Hyperband


def _iter_rungs(minimum: int, maximum: int) -> Iterator[int]:
    """Iterate over the rungs below ``maximum``: ``minimum``, then ETA times the previous one."""
    while minimum < maximum:
        yield minimum
        minimum *= ETA


def _is_worse(value: float, reference: float, minimize: bool) -> bool:
    return value > reference if minimize else value < reference


class EarlyStopper:
    """The curves and the stopping decisions of one tuning job. All its state comes from the logs,
    so it can be created again at any time.
    """

    def __init__(self, logs: LogStore) -> None:
        self._logs = logs
        self._curves: dict[str, ObjectiveCurve] = {}
        self._complete_jobs: set[str] = set()
        """Jobs whose log has been read to its end."""
        self._verdict_counts: dict[str, int] = {}
        """Mapping of a job to the number of its values that the rule has already judged."""

    def read_new_values(
        self, job: str, nodes: int, metric: Mapping[str, Any], has_ended: bool
    ) -> None:
        """Read what a job has printed since the last call. ``has_ended``: the job will print
        nothing more.
        """
        if job in self._complete_jobs:
            return
        if job not in self._curves:
            self._curves[job] = ObjectiveCurve(self._logs, job, nodes, metric)
        self._curves[job].read_new_values()
        self._complete_jobs |= {job} if has_ended else set()

    def find_stop_reason(self, job: str, rule: Rule, order: Sequence[str]) -> str | None:
        """Evaluate each new value of the job once. Return the reason for stopping the job, or None
        if it continues.

        ``order`` has the names of the jobs to compare, this one included, in the order of their
        start.
        """
        curve = self._curves[job].values
        earlier = order[: order.index(job)]
        others = earlier if isinstance(rule, Median) else [name for name in order if name != job]
        curves = [self._curves[name].values for name in others]
        first, count = self._verdict_counts.get(job, 0), len(curve)
        self._verdict_counts[job] = count
        reasons = (
            rule.find_stop_reason(curve, position, curves)
            for position in range(first + 1, count + 1)
        )
        return next((reason for reason in reasons if reason), None)
