"""Permutations that are computed: every number once, and nothing that a true one would not show.

Each p-value below has to exceed ALPHA. The names are fixed, so a test that passes passes always;
ALPHA says how unlucky the choice of names may have been. Networks with fewer rounds have to fail
the same tests.
"""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from training.data.sample_order import (
    ROUNDS,
    TABLE,
    Feistel,
    build_permutation_table,
    create_permutation,
)

pytestmark = pytest.mark.long

ALPHA = 1e-4
HOPELESS = 1e-12  # what a network with too few rounds has to stay under

sizes = st.integers(1, 300) | st.integers(TABLE - 3, TABLE + 3) | st.integers(1, 70_000)


@given(name=st.text(), size=sizes, rounds=st.integers(0, ROUNDS))
def test_every_number_comes_once_and_again_the_same(name: str, size: int, rounds: int):
    positions = np.arange(size)
    for kind in (
        create_permutation(name, size),
        Feistel(name, size, rounds),
        build_permutation_table(name, size).take,
    ):
        values = kind(positions)
        assert values.dtype == np.int64
        assert (np.sort(values) == positions).all()
        some = positions[:: max(1, size // 7)][::-1]
        assert (kind(some) == values[some]).all()


@pytest.mark.parametrize("size", [1000, 10**6, 10**12 + 39, 2**62 - 1])
def test_names_differ_and_no_size_is_too_large(size: int):
    positions = np.arange(size - 50, size)
    one, other = (create_permutation(name, size)(positions) for name in "ab")
    assert (one != other).sum() > 45
    assert len(set(one.tolist())) == 50 and 0 <= one.min() <= one.max() < size


def test_the_permutation_is_the_same_on_every_machine():
    """A resumed run depends on it: these figures may never change."""
    assert create_permutation("a", 10)(np.arange(10)).tolist() == [1, 4, 5, 2, 0, 3, 6, 7, 9, 8]
    assert create_permutation("a", 10**9)(np.arange(3)).tolist() == [
        968811637,
        617367936,
        944698820,
    ]


def fit(counts: np.ndarray, expected: np.ndarray | float, freedom: int) -> float:
    """p-value of counts against what is expected of them (Pearson 1900)."""
    return float(stats.chi2.sf(((counts - expected) ** 2 / expected).sum(), freedom))


def normal(value: float, mean: float, variance: float) -> float:
    """Return the two-sided p-value of a number that is normal if the permutation is uniform."""
    return math.erfc(abs(value - mean) / math.sqrt(2 * variance))


Make = Callable[[int, int], np.ndarray]  # (number, size) → the whole permutation


def list_permuted_positions(number: int, size: int) -> np.ndarray:
    return create_permutation(str(number), size)(np.arange(size))


def weak(rounds: int) -> Make:
    return lambda number, size: Feistel(str(number), size, rounds)(np.arange(size))


@pytest.mark.parametrize("size", [2, 3, 5])
def test_all_permutations_of_few_numbers_come_equally_often(size: int):
    codes = {order: code for code, order in enumerate(itertools.permutations(range(size)))}
    drawn = [
        codes[tuple(list_permuted_positions(number, size).tolist())] for number in range(12_000)
    ]
    counts = np.bincount(drawn, minlength=len(codes))
    assert fit(counts, len(drawn) / len(codes), len(codes) - 1) > ALPHA


def neighbours(make: Make, size: int, draws: int) -> dict[str, float]:
    """Return p-values of neighbouring numbers, over several permutations together."""
    low = math.isqrt(size - 1) + 1
    low += low % 2  # the network's own step: where a defect of its would show
    ups, same, follows, precedes, serial, by_step = 0, 0, 0, 0, 0.0, np.zeros(low)
    steps = np.arange(1 - size, size)
    chances = np.bincount(steps % low, weights=(size - np.abs(steps)) * (steps != 0))
    for number in range(draws):
        order = make(number, size)
        step = np.diff(order)
        ups, same = ups + (step > 0).sum(), same + (order == np.arange(size)).sum()
        follows, precedes = follows + (step == 1).sum(), precedes + (step == -1).sum()
        by_step += np.bincount(step % low, minlength=low)
        centred = order - (size - 1) / 2
        serial += (centred[1:] * centred[:-1]).sum() / (centred**2).sum()
    pairs = draws * (size - 1)
    return {
        "ascents": normal(ups, pairs / 2, draws * (size + 1) / 12),
        "fixed points": normal(same, draws, draws),
        "+1": normal(follows, pairs / size, pairs / size),
        "-1": normal(precedes, pairs / size, pairs / size),
        "serial correlation": normal(serial, -draws / size, draws / size),
        "steps": fit(by_step, chances / chances.sum() * pairs, low - 1),
    }


@pytest.mark.parametrize(
    ("size", "draws"), [(TABLE, 300), (TABLE + 1, 300), (65_537, 20), (250_000, 5)]
)
def test_neighbours_are_those_of_a_true_permutation(size: int, draws: int):
    found = neighbours(list_permuted_positions, size, draws)
    assert min(found.values()) > ALPHA, found


@pytest.mark.parametrize(("rounds", "size", "draws"), [
    (1, 250_000, 5), (2, 65_537, 20), (3, TABLE + 1, 300), (5, TABLE + 1, 300),
])  # fmt: skip
def test_neighbours_betray_a_network_with_fewer_rounds(rounds: int, size: int, draws: int):
    assert min(neighbours(weak(rounds), size, draws).values()) < HOPELESS
