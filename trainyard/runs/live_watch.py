"""Show an execution live until it ends, and optionally stop it on Ctrl-C."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.text import Text

from trainyard.language.definition_document import END_STATUSES
from trainyard.runs.execution import Execution, Step
from trainyard.runs.run_display import (
    Display,
    build_steps_table,
    format_duration,
    format_status,
    print_summary,
    read_latest_metrics,
)
from trainyard.terminal import console

INTERRUPT_STATUS = 130  # exit status that a shell has for a command that Ctrl-C ended
ANY = Display()
Follow = Callable[[Execution, float], str]


def watch_execution(
    arn: str,
    *,
    region: str | None = None,
    poll_seconds: float = 1.0,
    stop_on_interrupt: bool = False,
    display: Display = ANY,
) -> int:
    """Show the execution live until it has succeeded, failed or stopped; return the exit status.

    The status is 0 if it succeeded, 1 if not, and 130 after Ctrl-C. In a terminal, show a live
    table. Elsewhere, such as in a log of CI, print a line for each change of a step's status, and
    one per minute while it runs. Ctrl-C ends the watching, and if ``stop_on_interrupt`` also the
    execution.

    Args:
        arn: ARN of the execution.
        region: its region; None for that of the environment.
        poll_seconds: seconds between two requests.
        stop_on_interrupt: stop the execution on Ctrl-C.
        display: an application's additions to what is shown.
    """
    execution = Execution(arn, region)
    follow = partial(_follow_live if console.is_terminal else _follow_lines, display)
    try:
        status = follow(execution, poll_seconds)
    except KeyboardInterrupt:
        return _handle_interrupt(execution, follow, poll_seconds, display, stop=stop_on_interrupt)
    print_summary(execution, display)
    return 0 if status == "Succeeded" else 1


def _handle_interrupt(
    execution: Execution, follow: Follow, poll_seconds: float, display: Display, *, stop: bool
) -> int:
    """Handle Ctrl-C: if ``stop``, stop the execution and follow it to its end; return the exit
    status. A second Ctrl-C ends the waiting.
    """
    try:
        if stop and execution.describe()["PipelineExecutionStatus"] not in END_STATUSES:
            console.print("Ctrl-C: stopping the run; press it again to stop waiting for its end")
            execution.stop("stopped by Ctrl-C")
            follow(execution, poll_seconds)
            print_summary(execution, display)
            return INTERRUPT_STATUS
    except KeyboardInterrupt:
        # The second Ctrl-C: the execution continues to stop without being watched.
        pass
    console.print(f"stopped watching; to resume: {display.watch} {execution.arn}", highlight=False)
    return INTERRUPT_STATUS


def _follow_live(display: Display, execution: Execution, poll_seconds: float) -> str:
    """Show a live table until the execution ends; return its status."""
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        while True:
            status = execution.describe()["PipelineExecutionStatus"]
            steps = execution.list_steps()
            live.update(
                Group(build_steps_table(steps), _render_progress(execution, steps, display))
            )
            if status in END_STATUSES:
                return status
            time.sleep(poll_seconds)


def _follow_lines(display: Display, execution: Execution, poll_seconds: float) -> str:
    """Print a line for each change until the execution ends; return its status."""
    last_lines: dict[str, str] = {}
    warned_steps: set[str] = set()
    alive = SignsOfLife(display)
    while True:
        status = execution.describe()["PipelineExecutionStatus"]
        steps = execution.list_steps()
        for step in steps:
            if last_lines.get(step.name) != step.status:
                last_lines[step.name] = step.status
                console.print(_format_activity(step, format_status(step)))
        for step, activity in alive.iter_quiet_steps(execution, steps):
            console.print(_format_activity(step, Text(activity, "dim")))
        # A warning about a training job is printed once, and not at each request while it holds.
        for step in _select_running_trainings(steps):
            if step.name not in warned_steps:
                job = execution.describe_training_job(step.job[1] if step.job else "")
                if warning := display.warns(execution, job):
                    warned_steps.add(step.name)
                    clock = time.strftime("%H:%M:%S")
                    console.print(Text(f"{clock}  {step.name:<10} {warning}", "yellow"))
        if status in END_STATUSES:
            return status
        time.sleep(poll_seconds)


def _select_running_trainings(steps: list[Step]) -> list[Step]:
    """Return the steps whose training job is running."""
    running = (step for step in steps if step.status == "Executing")
    return [step for step in running if step.job and step.job[0] == "TrainingJob"]


def _format_activity(step: Step, activity: Text) -> Text:
    clock = time.strftime("%H:%M:%S")
    took = f"  {format_duration(step.seconds)}" if step.ended else ""
    return Text.assemble(f"{clock}  {step.name:<10} ", activity, took)


def _render_progress(execution: Execution, steps: list[Step], display: Display) -> RenderableType:
    """Return a view of the first running training job: its progress and latest metrics.

    It is empty if no training job is running.
    """
    for step in _select_running_trainings(steps):
        job = execution.describe_training_job(step.job[1] if step.job else "")
        metrics = [
            f"{name.split(':')[-1]} {value:,.4g}"
            for name, value in read_latest_metrics(job).items()
        ]
        view: RenderableType = Text("  ".join(metrics), style="dim")
        if (progress := display.progress(job)) is not None:
            steps_done, total = progress
            bar = ProgressBar(total=total, completed=steps_done, width=40)
            view = Group(Columns([bar, f"step {steps_done:.0f} of {total:.0f}"]), view)
        warning = display.warns(execution, job)
        return Group(view, Text(warning, style="yellow")) if warning else view
    return ""


# In a log, which has no live table, print a line per minute for each running step.

INTERVAL_S = 60.0
_LONGEST = 120  # characters of a job's log line that are shown


class SignsOfLife:
    """Creates the lines that show in a log that steps are still running.

    The line of a training job has its optimizer step, loss, seconds per step and remaining time, as
    far as they are known. That of another job is the last line of the job's log.

    Args:
        display: reads a training job's progress.
        clock: returns seconds; tests replace it.
    """

    def __init__(self, display: Display, clock: Callable[[], float] = time.monotonic) -> None:
        self._display, self._clock = display, clock
        self._printed_at: dict[str, float] = {}
        self._first_step: dict[str, tuple[float, float]] = {}
        """Mapping of a step's name to (time, optimizer steps) when its training job was first seen
        to have completed a step."""

    def iter_quiet_steps(
        self, execution: Execution, steps: list[Step]
    ) -> Iterator[tuple[Step, str]]:
        """Yield (step, text) for each running step whose last line is a minute old."""
        now = self._clock()
        for step in steps:
            if step.status != "Executing":
                continue
            job: dict[str, Any] = {}
            if step.job and step.job[0] == "TrainingJob":
                job = execution.describe_training_job(step.job[1])
                # The pace is measured from the first optimizer step that is seen.
                if (progress := self._display.progress(job)) and progress[0]:
                    self._first_step.setdefault(step.name, (now, progress[0]))
            # Because of setdefault, a step's first line comes a minute after it was first seen.
            if now - self._printed_at.setdefault(step.name, now) >= INTERVAL_S:
                self._printed_at[step.name] = now
                sign = self._describe_training(step, job, now)
                if not sign:
                    last_lines = execution.read_last_lines(step, 1).values()
                    ends = [lines[-1].strip() for lines in last_lines if lines]
                    sign = ends[0][:_LONGEST] if ends else ""
                yield step, sign or f"running for {format_duration(step.seconds)}"

    def _describe_training(self, step: Step, job: dict[str, Any], now: float) -> str:
        """Return progress, metrics (losses first) and remaining time; empty if none is known."""
        metrics = read_latest_metrics(job)
        losses = {name: value for name, value in metrics.items() if "loss" in name.lower()}
        selection = list((losses or metrics).items())[:3]
        words = [f"{name.rpartition(':')[2]} {value:,.4g}" for name, value in selection]
        if progress := self._display.progress(job):
            steps_done, total = progress
            words.insert(0, f"step {steps_done:.0f} of {total:.0f}")
            since, first = self._first_step.get(step.name, (now, steps_done))
            if steps_done > first:
                pace = (now - since) / (steps_done - first)
                words.append(
                    f"{pace:.2g} s a step, {format_duration(pace * (total - steps_done))} left"
                )
        return ", ".join(words)
