"""The summary in the terminal when a run has ended."""

import re
from collections.abc import Iterable, Sequence

from rich.text import Text

from trainyard.runs.execution import Execution, Step
from trainyard.runs.run_display import COLOURS, Display, duration, steps_table
from trainyard.runs.why.cause_display import add_to_summary, print_cause
from trainyard.runs.why.diagnosis import Cause
from trainyard.runs.why.read_evidence import cause_of
from trainyard.terminal import console

LAST_LINES = 15
LOG_TAIL = 200
HOSTS_SHOWN = 2
# From such a line on, a log holds only launchers reporting that their programs have failed.
LAUNCHER = re.compile(r"E\d{4} .*torch/distributed/elastic|Command failed with exit code")


def print_summary(execution: Execution, display: Display) -> None:
    """Print steps and times, the display's tables, the model package; or why the run failed, which
    a job of GitHub Actions also shows on its summary page.
    """
    description = execution.describe()
    status = description["PipelineExecutionStatus"]
    steps = execution.steps()
    by_name = {step.name: step for step in steps}
    console.print()
    console.print(steps_table(steps))
    for table in display.tables:
        if (panel := table(execution, by_name)) is not None:
            console.print(panel)
    failed_steps = [step for step in steps if step.status == "Failed"]
    add_to_summary([_print_failure(execution, step) for step in failed_steps])
    reason = f": {note}" if (note := description.get("PipelineExecutionDescription")) else ""
    total = (description["LastModifiedTime"] - description["CreationTime"]).total_seconds()
    console.print(
        Text.assemble(
            "run ", (status, COLOURS.get(status, "")), f" after {duration(total)}", reason
        )
    )
    if arn := model_package(steps):
        console.print(f"model package {arn}", highlight=False)
        if registered_again(steps):
            console.print(
                "the model of an earlier run, registered again: every job was answered from the "
                "cache, which AWS has for jobs, not for registrations",
                highlight=False,
            )


def model_package(steps: list[Step]) -> str | None:
    """Return the ARN of the model package that the run registered; None if it registered none."""
    for step in steps:
        if arn := step.metadata.get("RegisterModel", {}).get("Arn"):
            return arn
    return None


def registered_again(steps: Sequence[Step]) -> bool:
    """Return whether the run registered a model that an earlier run had created."""
    jobs = [step for step in steps if step.job]
    return bool(jobs) and all(step.cached for step in jobs) and bool(model_package(list(steps)))


def _print_failure(execution: Execution, step: Step) -> Cause:
    console.print(Text.assemble((f"{step.name} failed: ", "bold red"), step.reason))
    logs = execution.last_lines(step, LOG_TAIL)
    for host in _worth_showing(logs, step.reason):
        console.print(Text(f"last lines of {host}:", style="dim"))
        for line in last_words(logs[host]):
            console.print(Text(f"  {line}", style="dim"))
    cause = cause_of(execution, step)
    # Both have been printed: the reason as such, the unknown as the log's last lines.
    if cause.name not in ("reason", "unknown"):
        print_cause(cause)
    return cause


def _worth_showing(hosts: Iterable[str], reason: str) -> list[str]:
    """Return the hosts that the reason names; else the first few: the ranks of a job fail alike."""
    hosts = sorted(hosts)
    named_hosts = [host for host in hosts if re.search(rf"\b{re.escape(host)}\b", reason)]
    return named_hosts or hosts[:HOSTS_SHOWN]


def last_words(lines: Sequence[str]) -> Sequence[str]:
    """Return the last lines that the job itself wrote to a log, before its launchers failed."""
    end = next((n for n, line in enumerate(lines) if LAUNCHER.match(line)), len(lines))
    return lines[max(0, end - LAST_LINES) : end]
