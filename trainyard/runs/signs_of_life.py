"""A line a minute for each running step, where a log and not a terminal shows the run."""

import time
from collections.abc import Callable, Iterator
from typing import Any

from trainyard.runs.execution import Execution, Step
from trainyard.runs.run_display import Display, latest
from trainyard.runs.step_table import duration

INTERVAL_S = 60.0
_LONGEST = 120  # characters of a log's line


class SignsOfLife:
    """Writes the lines. A training's has its step, loss, pace and the time that is left, as far as
    they are known; another job's the last line of its log.

    Args:
        clock: returns seconds; for tests.
    """

    def __init__(self, display: Display, clock: Callable[[], float] = time.monotonic) -> None:
        self._display, self._clock = display, clock
        self._printed_at: dict[str, float] = {}
        self._first_step: dict[str, tuple[float, float]] = {}
        """Name of a step → (time, optimizer steps) when its training's first step was seen."""

    def lines(self, execution: Execution, steps: list[Step]) -> Iterator[tuple[Step, str]]:
        """Yield (step, what it does) for each running step whose last line is a minute old."""
        now = self._clock()
        for step in steps:
            if step.status != "Executing":
                continue
            job = self._training_job(execution, step, now)
            if now - self._printed_at.setdefault(step.name, now) >= INTERVAL_S:
                self._printed_at[step.name] = now
                sign = self._describe_training(step, job, now) or _last_line(execution, step)
                yield step, sign or f"running for {duration(step.seconds)}"

    def _training_job(self, execution: Execution, step: Step, now: float) -> dict[str, Any]:
        if step.job is None or step.job[0] != "TrainingJob":
            return {}
        job = execution.training_job(step.job[1])
        if (progress := self._display.progress(job)) and progress[0]:
            self._first_step.setdefault(step.name, (now, progress[0]))
        return job

    def _describe_training(self, step: Step, job: dict[str, Any], now: float) -> str:
        metrics = latest(job)
        losses = {name: value for name, value in metrics.items() if "loss" in name.lower()}
        selection = list((losses or metrics).items())[:3]
        words = [f"{name.rpartition(':')[2]} {value:,.4g}" for name, value in selection]
        if progress := self._display.progress(job):
            steps_done, total = progress
            words.insert(0, f"step {steps_done:.0f} of {total:.0f}")
            since, first = self._first_step.get(step.name, (now, steps_done))
            if steps_done > first:
                pace = (now - since) / (steps_done - first)
                words.append(f"{pace:.2g} s a step, {duration(pace * (total - steps_done))} left")
        return ", ".join(words)


def _last_line(execution: Execution, step: Step) -> str:
    ends = [lines[-1].strip() for lines in execution.last_lines(step, 1).values() if lines]
    return ends[0][:_LONGEST] if ends else ""
