"""No rule reports healthy trainings that look wrong: schedules, precisions, losses, fine-tuning."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.training.watching.histories import Lines, all_events, healthy
from training.watching.watch_rule import Plan
from training.watching.watcher import parse_watching

pytestmark = pytest.mark.long

PLAN = Plan(max_steps=10_000, warmup_steps=5)
SEEDS = pytest.mark.parametrize("seed", range(2))


def find_event_rules(lines: Lines, plan: Plan = PLAN) -> set[str]:
    return {event.rule for event in all_events(lines, parse_watching(""), plan)}


def with_(lines: Lines, change: Callable[[int, dict[str, float]], dict[str, float]]) -> Lines:
    """Change training lines by ``change`` of each line's number (from 0) and content."""
    number = 0
    for line in lines:
        if "loss" in line:
            line.update(change(number, line))
            number += 1
    return lines


def test_when_all_is_learned_every_gradient_goes_to_nothing():
    def fades(n: int, line: dict[str, float]) -> dict[str, float]:
        left = 0.8**n
        return {"loss": 3 * left, "grad_norm": left}

    assert find_event_rules(with_(healthy(120), fades)) == set()


@SEEDS
def test_a_training_may_leave_a_plateau(seed):
    random = np.random.default_rng(seed)

    def make_plateau_line(n: int, line: dict[str, float]) -> dict[str, float]:
        loss = 2.3 - 0.05 * min(30, max(0, n - 60)) - 0.001 * n
        norm = 0.01 if n < 60 else 0.5
        return {"loss": loss + random.normal(0, 0.01),
                "grad_norm": norm * math.exp(random.normal(0, 0.3))}  # fmt: skip

    assert find_event_rules(with_(healthy(120), make_plateau_line)) == set()


@SEEDS
@pytest.mark.parametrize(("floor", "noise"), [(2.0, 0.05), (1e-3, 0.3), (-3.0, 0.02)])
def test_a_fine_tuning_may_begin_at_its_floor(floor, noise, seed):
    """Its first loss may also be lower than others by chance, but the loss must not rise."""
    random = np.random.default_rng(seed)

    def make_floor_line(n: int, line: dict[str, float]) -> dict[str, float]:
        return {"loss": floor + abs(floor) * noise * (random.normal() if n else -2)}

    lines, tuned = with_(healthy(200), make_floor_line), replace(PLAN, fine_tuning=True)
    assert find_event_rules(lines, tuned) == set()
    rises = with_(lines, lambda n, line: {"loss": line["loss"] + 9 * abs(floor) * (n > 20)})
    assert find_event_rules(rises, tuned) == {"loss_not_falling"}
