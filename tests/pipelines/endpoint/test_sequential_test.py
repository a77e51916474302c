"""Equal models are seldom called worse, however often one looks; bad ones soon."""

import math
import random

import pytest

from pipelines.endpoint.rollout import ErrorTest, MeanTest

LOOKS, REQUESTS = 40, 50


def errors(new: float, old: float, share: float, seed: int) -> bool:
    draw, test = random.Random(seed), ErrorTest(0.05)
    for _ in range(LOOKS):
        mine = sum(draw.random() < share for _ in range(REQUESTS))
        counts = [(mine, new), (REQUESTS - mine, old)]
        test.add(*((n, sum(draw.random() < rate for _ in range(n))) for n, rate in counts))
        if test.is_worse:
            return True
    return False


def means(delta: float, seed: int, better: str = "lower") -> bool:
    draw, test = random.Random(seed), MeanTest(0.05, better)
    for _ in range(LOOKS):
        new = [draw.expovariate(1) + delta for _ in range(REQUESTS // 2)]
        test.add(new, [draw.expovariate(1) for _ in range(REQUESTS // 2)])
        if test.is_worse:
            return True
    return False


@pytest.mark.parametrize(
    ("rate", "share"), [(0.01, 0.1), (0.05, 0.5), pytest.param(0.3, 0.2, marks=pytest.mark.sweep)]
)
def test_an_equal_model_is_seldom_said_to_fail_more(rate: float, share: float) -> None:
    assert sum(errors(rate, rate, share, seed) for seed in range(100)) <= 11  # 5 % and 3 errors
    assert not any(errors(rate / 4, rate, share, seed) for seed in range(50))


def test_a_failing_model_is_found_even_where_nothing_failed_before() -> None:
    assert all(errors(0.3, 0.0, 0.1, seed) for seed in range(20))
    assert all(errors(0.2, 0.02, 0.1, seed) for seed in range(20))


def test_an_equal_model_is_seldom_said_to_answer_worse() -> None:
    assert sum(means(0, seed) for seed in range(100)) <= 11
    assert not any(means(-0.3, seed) for seed in range(50))
    assert all(means(0.4, seed) for seed in range(20))
    assert all(means(-0.4, seed, "higher") for seed in range(20))


def test_little_says_nothing() -> None:
    test = MeanTest(0.05, "lower")
    for _ in range(10):
        test.add([10.0] * 2, [])
        test.add([], [0.0] * 100)
    assert test.lower_bound == -math.inf and not test.is_worse
    unseen = ErrorTest(0.05)
    unseen.add((10, 10), (0, 0))
    assert unseen.evidence == 1
