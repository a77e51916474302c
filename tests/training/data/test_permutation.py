"""Permutations that are computed: every number once, and nothing that a true one would not show.

Each p-value below has to exceed ALPHA. The names are fixed, so a test that passes passes always;
ALPHA says how unlucky the choice of names may have been: with some 60 p-values, a correct
permutation would have failed one of them with a probability of 0.6 %. numpy's own permutations go
through the same tests, and networks with fewer rounds have to fail them.
"""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.data.sample_order import ROUNDS, TABLE, Feistel, permutation, permutation_table

pytestmark = pytest.mark.long

ALPHA = 1e-4
HOPELESS = 1e-12  # what a network with too few rounds has to stay under

sizes = st.integers(1, 300) | st.integers(TABLE - 3, TABLE + 3) | st.integers(1, 70_000)


@given(name=st.text(), size=sizes, rounds=st.integers(0, ROUNDS))
def test_every_number_comes_once_and_again_the_same(name: str, size: int, rounds: int):
    positions = np.arange(size)
    for kind in (
        permutation(name, size),
        Feistel(name, size, rounds),
        permutation_table(name, size).take,
    ):
        values = kind(positions)
        assert values.dtype == np.int64
        assert (np.sort(values) == positions).all()
        some = positions[:: max(1, size // 7)][::-1]
        assert (kind(some) == values[some]).all()


@pytest.mark.parametrize("size", [1000, 10**6, 10**12 + 39, 2**62 - 1])
def test_names_differ_and_no_size_is_too_large(size: int):
    positions = np.arange(size - 50, size)
    one, other = (permutation(name, size)(positions) for name in "ab")
    assert (one != other).sum() > 45
    assert len(set(one.tolist())) == 50 and 0 <= one.min() <= one.max() < size


def test_the_permutation_is_the_same_on_every_machine():
    """A resumed run depends on it: these figures may never change."""
    assert permutation("a", 10)(np.arange(10)).tolist() == [1, 4, 5, 2, 0, 3, 6, 7, 9, 8]
    assert permutation("a", 10**9)(np.arange(3)).tolist() == [968811637, 617367936, 944698820]


def upper_tail(chi_square: float, freedom: int) -> float:
    """P(χ² ≥ …), Wilson & Hilferty 1931."""
    deviation = 2 / (9 * freedom)
    z = ((chi_square / freedom) ** (1 / 3) - 1 + deviation) / math.sqrt(deviation)
    return math.erfc(z / math.sqrt(2)) / 2


def fit(counts: np.ndarray, expected: np.ndarray | float, freedom: int) -> float:
    """p-value of counts against what is expected of them (Pearson 1900)."""
    return upper_tail(float(((counts - expected) ** 2 / expected).sum()), freedom)


def normal(value: float, mean: float, variance: float) -> float:
    """Return the two-sided p-value of a number that is normal if the permutation is uniform."""
    return math.erfc(abs(value - mean) / math.sqrt(2 * variance))


Make = Callable[[int, int], np.ndarray]  # (number, size) → the whole permutation
KINDS: dict[str, Make] = {
    "numpy": lambda number, size: np.random.default_rng(number).permutation(size),
    "ours": lambda number, size: permutation(str(number), size)(np.arange(size)),
    "feistel": lambda number, size: Feistel(str(number), size)(np.arange(size)),
}


def weak(rounds: int) -> Make:
    return lambda number, size: Feistel(str(number), size, rounds)(np.arange(size))


def all_permutations(make: Make, size: int, draws: int) -> float:
    """Return how evenly all size! permutations occur."""
    codes = {order: code for code, order in enumerate(itertools.permutations(range(size)))}
    drawn = [codes[tuple(make(number, size).tolist())] for number in range(draws)]
    counts = np.bincount(drawn, minlength=len(codes))
    return fit(counts, draws / len(codes), len(codes) - 1)


@pytest.mark.parametrize("size", [2, 3, 4, 5])
@pytest.mark.parametrize("kind", ["numpy", "ours"])
def test_all_permutations_of_few_numbers_come_equally_often(kind: str, size: int):
    assert all_permutations(KINDS[kind], size, 12_000) > ALPHA


@pytest.mark.parametrize("rounds", [2, 4, ROUNDS])
def test_a_network_over_few_numbers_would_be_noticed(rounds: int):
    """This is why small permutations are tables."""
    assert all_permutations(weak(rounds), 5, 5000) < HOPELESS


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


NEIGHBOURHOODS = [(TABLE, 300), (TABLE + 1, 300), (65_537, 20), (250_000, 5)]


@pytest.mark.parametrize(("size", "draws"), NEIGHBOURHOODS)
@pytest.mark.parametrize("kind", KINDS)
def test_neighbours_are_those_of_a_true_permutation(kind: str, size: int, draws: int):
    found = neighbours(KINDS[kind], size, draws)
    assert min(found.values()) > ALPHA, found


@pytest.mark.parametrize(("rounds", "size", "draws"), [
    *((rounds, *neighbourhood) for rounds in (1, 2, 3) for neighbourhood in NEIGHBOURHOODS),
    *((rounds, TABLE + 1, 300) for rounds in (4, 5)),
])  # fmt: skip
def test_neighbours_betray_a_network_with_fewer_rounds(rounds: int, size: int, draws: int):
    assert min(neighbours(weak(rounds), size, draws).values()) < HOPELESS


def longest_run(order: np.ndarray) -> int:
    """Return the length of the longest ascending run."""
    falls = np.flatnonzero(np.diff(order) < 0)
    return int(np.diff(np.concatenate(([-1], falls, [len(order) - 1]))).max())


def test_no_run_is_longer_than_chance_makes_it():
    """A run of k begins at a given place with probability 1/k!, so P(any) ≤ size / k!."""
    size, draws = 65_537, 10
    limit = next(k for k in itertools.count() if draws * size / math.factorial(k) < ALPHA)
    for kind in KINDS.values():
        assert 6 < max(longest_run(kind(number, size)) for number in range(draws)) < limit
    assert longest_run(weak(1)(0, size)) > limit


def coarse(make: Make, size: int, draws: int, bins: int = 32) -> float:
    """Return how evenly each part of the positions draws from each part of the numbers."""
    part = np.arange(size) * bins // size
    counts = sum(
        np.bincount(part * bins + part[make(number, size)], minlength=bins**2)
        for number in range(draws)
    )
    lengths = np.bincount(part)
    expected = draws * np.outer(lengths, lengths).ravel() / size
    return fit(counts, expected, (bins - 1) ** 2)


@pytest.mark.parametrize("size", [10_000, 65_537, 250_007])
def test_every_part_of_the_positions_draws_from_everywhere(size: int):
    draws = 2_000_000 // size
    for kind in KINDS.values():
        assert coarse(kind, size, draws) > ALPHA
    for rounds in (1, 2):
        assert coarse(weak(rounds), size, draws) < HOPELESS
