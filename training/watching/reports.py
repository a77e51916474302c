"""Output of a training: metric lines, their history, and the trackers that receive them."""

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from training.watching.metric_line import metric_line
from training.watching.trackers import Tracker
from training.watching.watcher import Event
from trainyard.common import atomic_file

log = logging.getLogger(__name__)


class Reports:
    """Rank 0 prints, keeps and forwards each metric line to the trackers; other ranks do nothing.

    The history is written beside the checkpoints whenever one is saved, whole and in one step, and
    read back up to the resumed step: so it holds each step once, since the beginning of
    the training and not of the process.

    Args:
        path: the history's file, in the folder that SageMaker synchronises with S3.
    """

    def __init__(self, path: Path, rank: int, trackers: Sequence[Tracker] = ()) -> None:
        self._path, self._first, self._trackers = path, rank == 0, trackers
        self._open_trackers: list[Tracker] = []
        self.history: list[dict[str, float]] = []

    def __enter__(self) -> "Reports":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for tracker in self._open_trackers:
            tracker.close(has_failed=kind is not None)

    def begin(self, step: int) -> None:
        """Start reporting before the first step of this process; ``step`` steps are done.

        Raises:
            TrainingError: a tracker cannot be reached.
        """
        if not self._first:
            return
        self.history = read_history(self._path, step)
        for tracker in self._trackers:
            tracker.begin(step, self.history)
            self._open_trackers.append(tracker)

    def line(self, metrics: Mapping[str, float]) -> None:
        """Report a metric line; one of the metrics must be ``step``."""
        if not self._first:
            return
        self._add(metric_line(metrics), metrics)

    def event(self, event: Event) -> None:
        """Report what a rule has found; called on rank 0 only."""
        self._add(event.line, event.metrics)

    def keep(self) -> None:
        """Write the history before a checkpoint is saved, so that each is resumed with its
        curve.
        """
        if self._first:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            lines = "".join(json.dumps(line) + "\n" for line in self.history)
            atomic_file.write(self._path, lines)

    def _add(self, text: str, metrics: Mapping[str, float]) -> None:
        print(text, flush=True)
        self.history.append(dict(metrics))
        for tracker in self._open_trackers:
            tracker.log(metrics)


def read_history(path: Path, step: int) -> list[dict[str, float]]:
    """Return the metric lines up to a step; none, with a warning, if missing or damaged."""
    if not step:
        return []
    try:
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        return [line for line in lines if line["step"] <= step]
    except (FileNotFoundError, ValueError, KeyError, TypeError) as error:
        log.warning("%s: the curve begins at step %d (%s)", path, step, error)
        return []
