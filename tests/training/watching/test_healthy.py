"""No rule reports healthy trainings that look wrong: schedules, precisions, losses, fine-tuning."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.training.watching.histories import Lines, healthy
from training.watching.watch_rule import Plan
from training.watching.watcher import all_events, read_watching

pytestmark = pytest.mark.long

PLAN = Plan(max_steps=10_000, warmup_steps=5)
SEEDS = pytest.mark.parametrize("seed", range(4))


def said(lines: Lines, plan: Plan = PLAN) -> set[str]:
    return {event.rule for event in all_events(lines, read_watching(""), plan)}


def with_(lines: Lines, change: Callable[[int, dict[str, float]], dict[str, float]]) -> Lines:
    """Change training lines by ``change`` of each line's number (from 0) and content."""
    number = 0
    for line in lines:
        if "loss" in line:
            line.update(change(number, line))
            number += 1
    return lines


@pytest.mark.parametrize("size", [1e-14, 1e-9, 4e-8])
def test_no_gradient_is_too_small_for_lamb_and_for_adamw_one_below_its_epsilon_is(size):
    small = with_(healthy(40), lambda n, line: {"gradient_least": size})
    assert said(small, replace(PLAN, optimizer="lamb")) == set()
    assert said(small) == ({"vanishing_gradients"} if size < 1e-8 else set())


@pytest.mark.parametrize("warmup", [0, 30])
@pytest.mark.parametrize("power", [1, 2])
def test_what_begins_at_zero_may_grow(warmup, power):
    """LoRA's B and a head of zeros let no gradient through at first, and little for some time."""
    plan = replace(PLAN, warmup_steps=warmup, fine_tuning=True)
    began = 1e-10 if warmup else 2e-9
    lines = with_(
        healthy(60),
        lambda n, line: {"gradient_least": began * n**power, "update_ratio_least": 1e-4 * (n > 0)},
    )
    assert said(lines, plan) == set()


def test_when_all_is_learned_every_gradient_goes_to_nothing():
    def fades(n: int, line: dict[str, float]) -> dict[str, float]:
        left = 0.8**n
        return {"loss": 3 * left, "grad_norm": left, "gradient_least": 1e-5 * left,
                "update_ratio_least": 1e-4 if n < 60 else 0.0}  # fmt: skip

    assert said(with_(healthy(120), fades)) == set()


def test_a_layer_vanishes_also_where_the_whole_becomes_shorter():
    lines = with_(healthy(60), lambda n, line: {"grad_norm": 0.95**n, "gradient_least": 1e-12})
    assert said(lines) == {"vanishing_gradients"}


@pytest.mark.parametrize("schedule", [lambda p: (1 + math.cos(math.pi * p)) / 2, lambda p: 1 - p])
def test_a_schedule_may_end_at_zero(schedule):
    """Learning rates in the last lines of 10,000,000 steps are a billionth of the peak."""
    left = [schedule(min(1.0, step / 10**7)) for step in range(10**7 - 79, 10**7 + 1)]
    lines = with_(
        healthy(120),
        lambda n, line: (
            (rate := 1.0 if n < 40 else left[n - 40])
            and {"learning_rate": 1e-3 * rate, "update_ratio_least": 1e-4 * rate}
            or {"learning_rate": 0.0, "update_ratio_least": 0.0}
        ),
    )
    assert said(lines) == set()


@SEEDS
@pytest.mark.parametrize("hard", [0.05, 0.2, 0.4])
def test_hard_samples_are_spikes_where_the_usual_norm_is_tiny(hard, seed):
    random = np.random.default_rng(seed)

    def spikes(n: int, line: dict[str, float]) -> dict[str, float]:
        high = random.random() < hard or n < 3
        return {"grad_norm": (1.0 if high else 0.005) * math.exp(random.normal(0, 0.5)),
                "loss": (0.3 if high else 0.002) * math.exp(random.normal(0, 0.5))}  # fmt: skip

    assert "exploding_gradients" not in said(with_(healthy(200), spikes))


@SEEDS
def test_a_training_may_leave_a_plateau(seed):
    random = np.random.default_rng(seed)

    def left(n: int, line: dict[str, float]) -> dict[str, float]:
        loss = 2.3 - 0.05 * min(30, max(0, n - 60)) - 0.001 * n
        norm = 0.01 if n < 60 else 0.5
        return {"loss": loss + random.normal(0, 0.01),
                "grad_norm": norm * math.exp(random.normal(0, 0.3))}  # fmt: skip

    assert said(with_(healthy(120), left)) == set()
    stays = with_(with_(healthy(120), left), lambda n, line: {"loss": 2.3 + random.normal(0, 0.01)})
    assert "exploding_gradients" in said(stays)


@SEEDS
@pytest.mark.parametrize(("floor", "noise"), [(2.0, 0.05), (1e-3, 0.3), (-3.0, 0.02)])
def test_a_fine_tuning_may_begin_at_its_floor(floor, noise, seed):
    """Its first loss may also be lower than others by chance, but the loss must not rise."""
    random = np.random.default_rng(seed)

    def at(n: int, line: dict[str, float]) -> dict[str, float]:
        return {"loss": floor + abs(floor) * noise * (random.normal() if n else -2)}

    lines, tuned = with_(healthy(200), at), replace(PLAN, fine_tuning=True)
    assert said(lines, tuned) == set()
    rises = with_(lines, lambda n, line: {"loss": line["loss"] + 9 * abs(floor) * (n > 20)})
    assert said(rises, tuned) == {"loss_not_falling"}


@SEEDS
def test_of_a_validation_loss_near_zero_the_lowest_look_is_low_by_chance(seed):
    random = np.random.default_rng(seed)
    lines = [line for line in healthy(400, seed) if "loss" in line]
    looks = [
        {"step": step, "validation_loss": 0.01 * math.exp(random.normal(0, 0.08))}
        for step in range(10, 401, 10)
    ]
    assert said(sorted(lines + looks, key=lambda line: line["step"])) == set()
    for look in looks[15:]:
        look["validation_loss"] *= 1 + (look["step"] - 150) / 100
    assert said(sorted(lines + looks, key=lambda line: line["step"])) == {"overfitting"}


@SEEDS
def test_a_step_of_long_samples_may_take_long(seed):
    random = np.random.default_rng(seed)

    def ragged(n: int, line: dict[str, float]) -> dict[str, float]:
        long = random.random() < 0.2
        return {"step_seconds": 9.0 if long else 1.0, "units_per_second": 100.0}

    lines = with_(healthy(120), ragged)
    assert said(lines) == set()
    assert said(with_(lines, lambda n, line: {"units_per_second": 100 / line["step_seconds"]})) == {
        "step_outliers"
    }
