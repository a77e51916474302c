"""One rank keeps the others waiting (Debugger: StalledTraining, LoadBalancing).

A rank that does not respond at all ends the job (``training.watching.watchdog``). Which rank is
slow, in which part of a step, and what to check on its machine is in a log line of
``training.watching.step_progress``.
"""

from collections import Counter
from itertools import pairwise

from training.watching.watch_rule import Finding, History, Plan, Rule, RuleSettings

RATIO = 1.25
"""A rank is slow if its own work takes at least this multiple of the median. Means over a line's
steps of equal ranks differ by at most 10 % (one standard deviation, a busy CPU; GPUs: 1 to 3 %),
so one of two ranks is above it by chance in 6 % of the lines, one of many in 1.3 %.
"""

LINES, RECENT_LINES = 6, 8
"""A rank is reported if it was slow in 6 of the last 8 metric lines. By chance this happens once
in 500,000 lines of two ranks (28 × 2 × 0.057⁶), and more rarely with more ranks. A single long
step (a checkpoint, a page that was swapped out, a batch of long samples) is not reported.
"""


WINDOW = 100
"""Number of lines whose waiting is summed. On a busy machine some rank is slow for some lines,
and on a laptop all ranks share one machine.
"""


SECONDS = 10.0
"""Smallest time, in seconds, that the others have waited for the rank in the last 100 lines."""


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
        "processes; replace the instance if that persists",
    )


def _sum_waits(history: History, rank: int) -> float:
    """Return the seconds that the others waited for the rank in the last lines, assuming that a
    step consists of own work only.
    """
    seconds = 0.0
    for before, line in pairwise(history.lines[-WINDOW:]):
        if line.get("straggler_rank") == rank and line.get("straggler_ratio", 0) >= RATIO:
            steps = line["step"] - before["step"]
            seconds += (1 - 1 / line["straggler_ratio"]) * line.get("step_seconds", 0.0) * steps
    return seconds


RULE = Rule("The same rank is persistently slower than the others.", check)
