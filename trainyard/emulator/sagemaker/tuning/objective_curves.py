"""Objective values that running training jobs print: each counts as one unit of resource.

They are read from the log streams, so that a new emulator finds the curves of ended jobs. As on AWS
the service does not know who printed a line, and several ranks that print the same epoch would
count it several times. Here such a line counts once: only lines of one node count; of lines that
name an epoch, iteration, round or step, only the first with its number; of lines that name none,
only the first of equal consecutive lines. Different lines without a number cannot be distinguished:
print the objective on rank 0 only.
"""

import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainyard.emulator.logs.log_store import LogStore, read_forward
from trainyard.emulator.sagemaker.jobs.training_job import compile_regex
from trainyard.runs.metric_lines import number

GROUP = "/aws/sagemaker/TrainingJobs"
TWICE = (
    "the objective was printed more than once for the same unit of resource, {line!r}: counted "
    "once; on AWS each would count, and stop jobs wrongly. Print it on rank 0 only"
)
_RANK = re.compile(r"^\s*(\[(rank|default|algo-)?\d+\]:|\[\d+,mpirank:\d+,algo-\d+\]<std\w+>:?)\s*")
_COUNTER = re.compile(r"\b(epoch|iter|iteration|round|step)s?\b\W{0,3}(\d+)", re.IGNORECASE)
_XGBOOST = re.compile(r"\[(\d+)\](?:\s|#011)")
OWN_PREFIX = "[emulator] "


class Emissions:
    """Objective values of one training job, in order."""

    def __init__(self, logs: LogStore, job: str, nodes: int, metric: Mapping[str, Any]) -> None:
        self.values: list[float] = []
        self.repeated_line = ""
        """First line that repeated another."""
        self._logs, self._job, self._nodes = logs, job, nodes
        self._pattern = compile_regex(metric).pattern
        self._streams: dict[Path, int] = {}
        """File → offset up to which it has been read."""
        self._first: Path | None = None
        """File of the node that counts: the first that printed the objective."""
        self._seen_lines: set[tuple[str, ...]] = set()
        self._last = ""

    def read(self) -> None:
        """Add values printed since the last call."""
        # A node has a stream only once it has begun to log.
        if len(self._streams) < self._nodes:
            streams = self._logs.streams(GROUP, f"{self._job}/")
            self._streams = {stream.path: 0 for stream in streams} | self._streams
        for path, start in self._streams.items():
            for event in read_forward(path, start):
                self._streams[path] = event.stop
                if not event.message.startswith(OWN_PREFIX):
                    self._consider(path, event.message)

    def _consider(self, path: Path, line: str) -> None:
        match = self._pattern.search(line)
        value = number(match) if match else None
        if match is None or value is None or not math.isfinite(value):
            return
        self._first = self._first or path
        text = _RANK.sub("", line).strip()
        rest = _RANK.sub("", f"{line[: match.start(1)]}{line[match.end(1) :]}")
        counters = tuple(f"{word} {count}".lower() for word, count in _COUNTER.findall(rest))
        if round_ := _XGBOOST.match(rest):
            counters += (round_[0],)
        is_repetition = counters in self._seen_lines if counters else text == self._last
        if path != self._first or is_repetition:
            self.repeated_line = self.repeated_line or text
            return
        self._last = text
        self._seen_lines.add(counters)
        self.values.append(value)


ETA = 3
Curve = Sequence[float]


@dataclass(frozen=True, slots=True)
class Median:
    """Early stopping by the median, TrainingJobEarlyStoppingType Auto."""

    minimize: bool

    def verdict(self, curve: Curve, position: int, others: Sequence[Curve]) -> str | None:
        """Return why the job is stopped at its value number ``position``, from 1; None when it
        continues.

        ``others``: curves of the jobs that were started before it.
        """
        averages = [
            statistics.fmean(other[:position]) for other in others if len(other) >= position
        ]
        if not averages:
            return None
        median = statistics.median(averages)
        if not _worse(curve[position - 1], median, self.minimize):
            return None
        return (
            f"early stopping: value {position} of the objective, {curve[position - 1]:g}, is "
            f"worse than {median:g}, the median of the earlier jobs' averages so far"
        )


@dataclass(frozen=True, slots=True)
class Hyperband:
    """Stopping by Hyperband, with the limits of HyperbandStrategyConfig."""

    minimize: bool
    least: int
    most: int

    def verdict(self, curve: Curve, position: int, others: Sequence[Curve]) -> str | None:
        """Decide like :meth:`Median.verdict`; ``others`` are all other jobs' curves."""
        # At MaxResource a job may end by itself, so that it can save its model; it is stopped when
        # it prints one more value.
        if position > self.most:
            return f"Hyperband: it went on after MaxResource, {self.most} values of the objective"
        if position not in self.rungs():
            return None
        value = curve[position - 1]
        values = [other[position - 1] for other in others if len(other) >= position]
        better = sum(_worse(value, other, self.minimize) for other in values)
        places = max(1, (len(values) + 1) // ETA)
        if better < places:
            return None
        return (
            f"Hyperband: with {value:g} at {position} values of the objective it is number "
            f"{better + 1} of {len(values) + 1}, and the best {places} of them go on"
        )

    def rungs(self) -> list[int]:
        """Return the numbers of values at which jobs are compared."""
        return list(_rungs(self.least, self.most))


Rule = Median | Hyperband


def _rungs(least: int, most: int) -> Iterator[int]:
    while least < most:
        yield least
        least *= ETA


def _worse(value: float, reference: float, minimize: bool) -> bool:
    return value > reference if minimize else value < reference


class Watch:
    """Curves and decisions of one tuning job. It can be created again at any time, from the
    logs.
    """

    def __init__(self, logs: LogStore) -> None:
        self._logs = logs
        self._curves: dict[str, Emissions] = {}
        self._complete_jobs: set[str] = set()
        """Jobs whose log has been read to its end."""
        self._verdict_counts: dict[str, int] = {}
        """Job → number of its values that the rule has seen."""
        self._reported_jobs: set[str] = set()

    def read(self, job: str, nodes: int, metric: Mapping[str, Any], has_ended: bool) -> None:
        """Read what a job has printed since the last call; ``has_ended``: it prints nothing
        more.
        """
        if job in self._complete_jobs:
            return
        if job not in self._curves:
            self._curves[job] = Emissions(self._logs, job, nodes, metric)
        self._curves[job].read()
        self._complete_jobs |= {job} if has_ended else set()

    def verdict(self, job: str, rule: Rule, order: Sequence[str]) -> tuple[list[str], str | None]:
        """Return messages for the job's log, and why it is stopped; None when it continues.

        ``order``: the compared jobs in the order of their start, including this one.
        """
        curve = self._curves[job]
        earlier = order[: order.index(job)]
        others = earlier if isinstance(rule, Median) else [name for name in order if name != job]
        curves = [self._curves[name].values for name in others]
        first, count = self._verdict_counts.get(job, 0), len(curve.values)
        self._verdict_counts[job] = count
        reasons = (
            rule.verdict(curve.values, position, curves) for position in range(first + 1, count + 1)
        )
        notices = (
            [TWICE.format(line=curve.repeated_line)]
            if curve.repeated_line and job not in self._reported_jobs
            else []
        )
        self._reported_jobs |= {job} if notices else set()
        return notices, next((reason for reason in reasons if reason), None)
