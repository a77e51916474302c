"""A curve's bias is found where there is one, and rarely where steps only resemble each other."""

import numpy as np

from benchmarks.strategies.bias import bias


def curves(seed: int, shift: float = 0.0) -> tuple[dict[int, float], dict[int, float]]:
    """A curve and a reference, whose relative difference is an AR(1) process about ``shift``."""
    random, off, now = np.random.default_rng(seed), [], 0.0
    for _ in range(100):
        now = 0.6 * now + random.normal(0, 1e-4)
        off.append(now + shift)
    reference = {step: 5.0 - step / 50 for step in range(1, 101)}
    return {step: reference[step] * (1 + off[step - 1]) for step in reference}, reference


def test_steps_that_resemble_each_other_are_no_bias():
    assert sum(bias(*curves(seed)).found for seed in range(300)) <= 6


def test_a_bias_is_found():
    found = [bias(*curves(seed, shift=3e-4)) for seed in range(50)]
    assert sum(one.found for one in found) >= 48
    assert abs(np.mean([one.mean for one in found]) - 3e-4) < 3e-5
