"""One rank keeps the others waiting (Debugger: StalledTraining, LoadBalancing).

A rank that does not come at all ends the job (``training.watching.watchdog``); which rank is slow,
in what, and what to check there is in a line of ``training.watching.step_progress`` beside
this one.
"""

from collections import Counter
from itertools import pairwise

from training.watching.watch_rule import Finding, History, Plan, Rule, RuleSettings

RATIO = 1.25
"""A rank is slow if its own work takes this multiple of the median. Means over a line's steps of
equal ranks differ by at most 10 % (one standard deviation, a busy CPU; GPUs: 1 to 3 %), so one of
two ranks is above it by chance in 6 % of the lines, one of many in 1.3 %."""

LINES, RECENT_LINES = 6, 8
"""A rank is named if it was slow in 6 of the last 8 metric lines: by chance once in 500,000 lines
of two ranks (28 × 2 × 0.057⁶), more rarely among more. A single long step (a checkpoint, a page
that was swapped out, a batch of long samples) is not reported."""


WINDOW = 100
"""Lines whose waiting is summed: on a busy machine some rank is slow for some lines, and on a
laptop all ranks share one."""


SECONDS = 10.0
"""Least time that the others have waited for it in the last 100 lines, in seconds."""


def check(history: History, settings: RuleSettings, plan: Plan) -> Finding | None:
    """Return a finding with the slowest rank's lowest ratio among its slow lines."""
    slow = [
        (int(line["straggler_rank"]), line["straggler_ratio"])
        for line in history.lines[-RECENT_LINES:]
        if line.get("straggler_ratio", 0) >= RATIO and "straggler_rank" in line
    ]
    if not slow:
        return None
    rank, times = Counter(rank for rank, _ in slow).most_common(1)[0]
    if times < LINES:
        return None
    ratio = min(ratio for slow_rank, ratio in slow if slow_rank == rank)
    wait_seconds = _sum_waits(history, rank)
    if wait_seconds < SECONDS:
        return None
    return Finding(
        ratio,
        RATIO,
        f"rank {rank} takes at least {ratio:.2f} times as long for its own work as the others in "
        f"{times} of the last {RECENT_LINES} lines, and they have waited {wait_seconds:.3g} s for "
        "it",
        "look at that rank's machine: its loader, its GPU's clock and temperature, other "
        "processes; replace the instance if it stays so",
    )


def _sum_waits(history: History, rank: int) -> float:
    """Return the seconds that the others waited in the last lines, if a step is all own work."""
    seconds = 0.0
    for before, line in pairwise(history.lines[-WINDOW:]):
        if line.get("straggler_rank") == rank and line.get("straggler_ratio", 0) >= RATIO:
            steps = line["step"] - before["step"]
            seconds += (1 - 1 / line["straggler_ratio"]) * line.get("step_seconds", 0.0) * steps
    return seconds


RULE = Rule("The same rank is persistently slower than the others.", check)
