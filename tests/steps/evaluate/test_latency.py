"""A latency that was disturbed is measured again, and said to be disturbed."""

import pytest

from conditions.checks.latency_p95 import within_latency
from steps.evaluate.latency import BUSY, PATIENCE, ROUNDS, Round, quietest


def rounds(*waited: float | None, seconds: float = 0.1):
    """A measurement that gives these one after the other."""
    found = iter(Round([seconds], share) for share in waited)
    return lambda: next(found)


@pytest.mark.parametrize(
    "waited, chosen, count",
    [
        ((0.0,), 0.0, 1),
        ((None,), None, 1),
        ((BUSY,), BUSY, 1),
        ((0.9, 0.1), 0.1, 2),
        ((0.9, 0.5, 0.7, 0.05), 0.05, 4),
        ((0.9, 0.5, 0.7, 0.6, 0.8), 0.5, ROUNDS),
    ],
)
def test_the_first_quiet_round_counts_else_the_quietest(waited, chosen, count: int):
    best, number = quietest(rounds(*waited))
    assert (best.waited_share, number) == (chosen, count)
    assert best.busy == (chosen is not None and chosen > BUSY)


def test_a_slow_model_on_a_busy_machine_is_not_measured_for_ever():
    _, number = quietest(rounds(*[0.9] * ROUNDS, seconds=PATIENCE / 2 + 1))
    assert number == 2


def evaluation(p95: float, **more) -> dict:
    return {"latency": {"p95_ms": p95, **more}}


def test_beyond_the_budget_a_busy_machine_is_named_and_the_model_still_rejected():
    check = within_latency(evaluation(680, waited_share=0.83, busy=True), 500)
    assert not check.passed
    assert "the machine was busy: 83% of the time" in check.reason
    assert within_latency(evaluation(480, waited_share=0.83, busy=True), 500).passed


@pytest.mark.parametrize("more", [{}, {"waited_share": 0.1, "busy": False}, {"busy": True}])
def test_a_quiet_machine_is_not_called_busy(more: dict):
    check = within_latency(evaluation(680, **more), 500)
    assert not check.passed and "busy" not in check.reason
