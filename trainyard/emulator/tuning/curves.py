"""What training jobs print of the objective while they run: one emission, one unit of resource.

Read from the log streams, so that a new emulator finds the curves of what has ended. As on AWS the
service cannot see who printed a line, and several ranks that print the same epoch would count it
several times. Here such a line counts once: lines of one node alone count, and of those that name
an epoch, iteration, round or step only the first with its number; of those that name none, only
the first of equal lines that follow each other. What differs and carries no number cannot be told
apart: print the objective on rank 0 only.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainyard.emulator.jobs.metrics import compiled, number
from trainyard.emulator.logs import LogStore, read_forward

GROUP = "/aws/sagemaker/TrainingJobs"
TWICE = (
    "the objective was printed more than once for the same unit of resource, {line!r}: counted "
    "once; on AWS each would count, and stop jobs wrongly. Print it on rank 0 only"
)
_RANK = re.compile(r"^\s*(\[(rank|default|algo-)?\d+\]:|\[\d+,mpirank:\d+,algo-\d+\]<std\w+>:?)\s*")
_COUNTER = re.compile(r"\b(epoch|iter|iteration|round|step)s?\b\W{0,3}(\d+)", re.IGNORECASE)
_XGBOOST = re.compile(r"\[(\d+)\](?:\s|#011)")
OWN = "[emulator] "


class Emissions:
    """The objective's values in order, of one training job."""

    def __init__(self, logs: LogStore, job: str, nodes: int, metric: Mapping[str, Any]) -> None:
        self.values: list[float] = []
        self.repeated = ""
        """The first line that repeated another."""
        self._logs, self._job, self._nodes = logs, job, nodes
        self._pattern = compiled(metric)
        self._streams: dict[Path, int] = {}
        """File → the offset up to which it has been read."""
        self._first: Path | None = None
        """The node that counts: the first that printed the objective."""
        self._seen: set[tuple[str, ...]] = set()
        self._last = ""

    def read(self) -> None:
        """Adds what was printed since the last call."""
        if len(self._streams) < self._nodes:
            found = self._logs.streams(GROUP, f"{self._job}/")
            self._streams = {stream.path: 0 for stream in found} | self._streams
        for path, start in self._streams.items():
            for event in read_forward(path, start):
                self._streams[path] = event.stop
                if not event.message.startswith(OWN):
                    self._consider(path, event.message)

    def _consider(self, path: Path, line: str) -> None:
        match = self._pattern.search(line)
        value = number(match) if match else None
        if match is None or value is None:
            return
        self._first = self._first or path
        text = _RANK.sub("", line).strip()
        rest = _RANK.sub("", f"{line[: match.start(1)]}{line[match.end(1) :]}")
        counters = tuple(f"{word} {count}".lower() for word, count in _COUNTER.findall(rest))
        if round_ := _XGBOOST.match(rest):
            counters += (round_[0],)
        twice = counters in self._seen if counters else text == self._last
        if path != self._first or twice:
            self.repeated = self.repeated or text
            return
        self._last = text
        self._seen.add(counters)
        self.values.append(value)
