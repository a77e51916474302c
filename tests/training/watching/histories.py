"""Histories of invented trainings: healthy ones, and ones with a fault."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from training.watching.watch_rule import Line, Plan
from training.watching.watcher import Event, Watcher

Lines = list[dict[str, float]]


def healthy(lines: int = 120, seed: int = 0, noise: float = 0.05, interval: int = 1) -> Lines:
    """Return a loss that falls with noise, all else as usual; a validation every 20 lines."""
    random, found = np.random.default_rng(seed), Lines()
    for number in range(1, lines + 1):
        step, loss = number * interval, 1 + 3 * math.exp(-number / 30)
        found.append(
            {
                "step": step,
                "loss": loss * math.exp(random.normal(0, noise)),
                "learning_rate": 1e-3,
                "grad_norm": math.exp(random.normal(0, 0.4)),
                "step_seconds": 0.5 * math.exp(abs(random.normal(0, 0.1))),
                "checkpoint_seconds": 0.0,
                "straggler_ratio": 1 + abs(random.normal(0, 0.05)),
                "straggler_rank": int(random.integers(4)),
                "data_stall": random.uniform(0, 0.1),
                "unsaved_steps": step % 50,
                "checkpoint_failures": 0,
            }
        )
        if number % 20 == 0:
            found.append({"step": step, "validation_loss": loss * 1.02})
    return found


def change_lines_since(
    lines: Lines, since: int, change: Callable[[dict[str, float]], object]
) -> Lines:
    """Change the lines from a step on, in place; return the lines."""
    for line in lines:
        if line["step"] >= since:
            change(line)
    return lines


def _times(name: str, by: float) -> Callable[[dict[str, float]], object]:
    return lambda line: line.update({name: line[name] * by} if name in line else {})


def _is(**values: float) -> Callable[[dict[str, float]], object]:
    return lambda line: line.update(values if "loss" in line else {})


def _flat(line: dict[str, float]) -> None:
    if "loss" in line:
        line["loss"] = 4 + (line["loss"] - 1) % 0.3


WRONG: dict[str, Callable[[], Lines]] = {
    "loss_not_falling": lambda: change_lines_since(healthy(), 1, _flat),
    "stalled_rank": lambda: change_lines_since(
        healthy(), 60, _is(straggler_ratio=1.8, straggler_rank=2, step_seconds=1.0)
    ),
    "data_bottleneck": lambda: change_lines_since(healthy(), 60, _is(data_stall=0.7)),
    "checkpoint_failing": lambda: change_lines_since(healthy(), 60, _is(checkpoint_failures=1)),
    "cost_beyond_plan": lambda: change_lines_since(healthy(), 1, _times("step_seconds", 30)),
}
"""Rule → a history with the fault that it detects."""


def all_events(lines: Iterable[Line], settings: Any, plan: Plan) -> list[Event]:
    watcher = Watcher(settings, plan)
    return [event for line in lines for event in watcher.add(line)]
