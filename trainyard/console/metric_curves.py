"""The metrics of a training job: from its log, or from CloudWatch if that is too long or gone.

The log is preferred because only there a value is next to its step: CloudWatch's metrics are means
over a minute, by time. The log is read in parts. A log of more than ``MOST`` characters
is not read to its end; then CloudWatch's metrics are shown or, if there are none, the last values,
which DescribeTrainingJob returns.
"""

import math
import threading
import time
from array import array
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainyard.console.account_cache import Account
from trainyard.console.log_lines import fetch_log_events, list_job_streams
from trainyard.runs.execution import LOG_GROUPS
from trainyard.runs.metric_lines import (
    Definition,
    LineMetrics,
    Sample,
    compile_definitions,
    explain_abandoned_metrics,
    parse_line_metrics,
    read_cloudwatch_metrics,
    read_final_metrics,
)

MOST = 64 << 20  # maximum characters of a log that are read
SECONDS = 0.25  # approximate seconds of reading per call
END_STATUSES = ("Completed", "Failed", "Stopped")


@dataclass(slots=True)
class Samples:
    """The values of one metric, in the order of the log. Each takes 24 bytes."""

    timestamps: "array[float]" = field(
        default_factory=lambda: array("d")
    )  # time of each value (ms since 1970)
    steps: "array[float]" = field(default_factory=lambda: array("d"))
    """The counter (step) of each value, or NaN if its line has none."""
    values: "array[float]" = field(default_factory=lambda: array("d"))
    lowest: int | None = None  # index of the lowest finite value, the first if there are several
    highest: int | None = None
    is_counted: bool = True  # true if every value has a counter

    @property
    def count(self) -> int:
        """Return the number of values."""
        return len(self.values)

    def add(self, sample: Sample) -> None:
        """Add the next value of the log."""
        self.timestamps.append(sample.timestamp)
        self.steps.append(math.nan if sample.step is None else sample.step)
        self.is_counted = self.is_counted and math.isfinite(self.steps[-1])
        self.values.append(sample.value)
        if math.isfinite(sample.value):
            if self.lowest is None or sample.value < self.values[self.lowest]:
                self.lowest = self.count - 1
            if self.highest is None or sample.value > self.values[self.highest]:
                self.highest = self.count - 1


@dataclass(slots=True)
class Metrics:
    """The metrics of one job that are known so far."""

    samples: dict[str, Samples] = field(default_factory=lambda: defaultdict(Samples))
    """Values of each metric, by name."""
    counter: str = ""  # name of the counter in the samples' ``step``; empty if lines have none
    source: str = "log"  # source of the values: ``log``, ``CloudWatch`` or ``last values``
    until: float | None = None
    """Time up to which the log has been read (ms since 1970). None if it was read to its end."""
    slow: list[str] = field(default_factory=list)
    """Messages about metrics whose regular expressions took too long."""

    @property
    def begin(self) -> float:
        """Return the time of the job's first value (ms since 1970), or 0 if there is none."""
        # A copy of the values, because the thread that reads the log may add a metric.
        return min(
            (some.timestamps[0] for some in list(self.samples.values()) if some.count), default=0.0
        )

    def add(self, timestamp: float, line_metrics: LineMetrics) -> None:
        """Add the values that were found in a line."""
        self.counter = self.counter or line_metrics.counter
        step = line_metrics.step if line_metrics.counter == self.counter else None
        for name, value in line_metrics.values.items():
            self.samples[name].add(Sample(timestamp, step, value))


class Reader:
    """Reads more of a training job's metrics at each call. Thread-safe."""

    def __init__(self, account: Account, job: str) -> None:
        self.metrics = Metrics()
        self._account, self._job = account, job
        self._lock = threading.Lock()
        self._tokens: dict[str, str] = {}
        self._metric_definitions: list[Definition] | None = None
        self._unread: deque[dict[str, Any]] = deque()
        """Events that were fetched but not yet processed."""
        self._size = 0

    def read(self) -> Metrics:
        """Read for about ``SECONDS``; return all metrics that are known so far."""
        with self._lock:
            job = describe_training(self._account, self._job)
            is_ended = job.get("TrainingJobStatus") in END_STATUSES
            if self.metrics.source == "log" and self._size < MOST:
                self._read_more_log(job)
            has_any = bool(self.metrics.samples)
            if self._size >= MOST or (is_ended and not has_any and self.metrics.until is None):
                self._read_cloudwatch(job)
            return self.metrics

    def _read_more_log(self, job: Mapping[str, Any]) -> None:
        """Read more of the first host's log. One host suffices if every rank prints the metrics."""
        if self._metric_definitions is None:
            self._metric_definitions = compile_definitions(job)
        if not self._metric_definitions:
            return
        limit = time.monotonic() + SECONDS
        for events in self._iter_event_batches():
            self._unread.extend(events)
            until = self._process_events(self._metric_definitions, limit)
            if until is not None:
                break
        self.metrics.until, self.metrics.slow = (
            until,
            explain_abandoned_metrics(self._metric_definitions),
        )

    def _process_events(
        self, metric_definitions: Sequence[Definition], limit: float
    ) -> float | None:
        """Process fetched events until none are left or the time is up.

        Return the time of the last processed event (ms since 1970) if the time is up, else None.
        """
        while self._unread:
            event = self._unread.popleft()
            self._size += len(event.get("message", ""))
            if (
                line_metrics := parse_line_metrics(metric_definitions, event.get("message", ""))
            ) is not None:
                self.metrics.add(event.get("timestamp", 0), line_metrics)
            if time.monotonic() > limit:
                return float(event.get("timestamp", 0))
        return None

    def _iter_event_batches(self) -> Iterator[list[dict[str, Any]]]:
        """Yield lists of new events. The first list is empty, to process leftover events first."""
        yield []
        streams = list_job_streams(self._account, LOG_GROUPS["TrainingJob"], self._job)
        first_host = [candidate for candidate in streams if candidate.host == streams[0].host]
        # ``list_job_streams`` returns a host's newest stream first, but the oldest has to be read
        # first.
        for stream in reversed(first_host):
            is_end = False
            while not is_end:
                token = self._tokens.get(stream.name)
                how = {"nextToken": token} if token else {}
                page = fetch_log_events(self._account, stream, startFromHead=True, **how)
                following = page.get("nextForwardToken", "")
                self._tokens[stream.name] = following
                events, is_end = page.get("events", []), not following or following == token
                yield events

    def _read_cloudwatch(self, job: Mapping[str, Any]) -> None:
        """Replace the metrics with CloudWatch's: at most 500, which is the limit of one request.

        If CloudWatch has none, use the last values in the job's description.
        """
        names = [definition.name for definition in compile_definitions(job)]
        last = read_final_metrics(job)
        # AWS's own algorithms have metrics that no definition of the job names.
        names = list(dict.fromkeys([*names, *last]))[:500]
        samples = read_cloudwatch_metrics(self._account.cloudwatch, self._job, names, job)
        source = "CloudWatch"
        if not samples:
            source = "last values"
            samples = {name: [sample] for name, sample in last.items()}
        metrics = Metrics(source=source, slow=self.metrics.slow)
        for name, values in samples.items():
            for value in values:
                metrics.samples[name].add(value)
        self.metrics = metrics


def describe_training(account: Account, job: str) -> dict[str, Any]:
    """Return the response of DescribeTrainingJob."""
    return account.call_sagemaker(
        "describe_training_job", max(2.0, account.seconds), TrainingJobName=job
    )


def read_metrics(account: Account, job: str) -> Metrics:
    """Return the metrics of a training job that are known so far. All callers share one reader."""
    reader = account.read_cached(("metrics of", job), lambda: Reader(account, job), 24 * 3_600)
    is_ended = describe_training(account, job).get("TrainingJobStatus") in END_STATUSES
    is_done = is_ended and reader.metrics.until is None and reader.metrics.samples
    seconds = 60.0 if is_done else account.seconds
    return account.read_cached(("metrics read of", job), reader.read, seconds)
