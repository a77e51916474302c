"""The training waits for its data (Debugger: IOBottleneck).

A minimum cost is required: milliseconds of waiting in short steps are not worth reporting.
"""

from itertools import pairwise

from training.watching.watch_rule import Finding, History, Plan, Rule, RuleSettings

SHARE = 0.5
"""Share of the recent lines' time in which rank 0 waits for the loader: Debugger's threshold."""

LINES = 20
"""Number of recent log lines examined."""

SECONDS = 10.0
"""Smallest total waiting time since the first line, in seconds, that is reported."""


def check(history: History, settings: RuleSettings, plan: Plan) -> Finding | None:
    """Return a finding with the share of rank 0's time that it waited for the loader.

    Single waits are normal for a loader that reads ahead, so the share is over many lines.
    """
    stall_lines = [line for line in history.lines[-LINES:] if "data_stall" in line]
    durations = [line.get("step_seconds", 0.0) for line in stall_lines]
    waits = [
        line["data_stall"] * duration for line, duration in zip(stall_lines, durations, strict=True)
    ]
    share = sum(waits) / (sum(durations) or 1.0)
    # A process's first line has no data_stall, so two lines may lack it.
    if len(history.lines) < LINES or len(stall_lines) < LINES - 2:
        return None
    if share < SHARE or (cost := _sum_waits(history)) < SECONDS:
        return None
    return Finding(
        share,
        SHARE,
        f"{share:.0%} of the time of the last {LINES} lines goes into waiting for data, "
        f"{cost:.3g} s so far",
        "raise loader_threads or use machines with more cores if samples are decoded; use "
        "input_mode FastFile with shuffle windowed, FSxLustre, or File if the data fit the volume",
    )


def _sum_waits(history: History) -> float:
    """Return the seconds that rank 0 has waited for the loader in all lines."""
    return sum(
        line["data_stall"] * line.get("step_seconds", 0.0) * (line["step"] - before["step"])
        for before, line in pairwise(history.lines)
        if "data_stall" in line
    )


RULE = Rule("The training spends its time waiting for the loader.", check)
