"""Metrics from blocks of scores: the ratios themselves, and errors that count groups."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training import scores
from training.scores import compute_ratios

rows = st.lists(
    st.tuples(st.integers(0, 6), st.floats(-5, 5), st.integers(1, 9)), min_size=2, max_size=40
)


def blocks(groups, sums, weights, cuts=()):
    """Split rows into blocks that end before ``cuts``."""
    columns = {
        "group": np.asarray(groups, np.int64),
        "loss.sum": np.asarray(sums, float),
        "loss.weight": np.asarray(weights, float),
    }
    parts = {name: np.split(column, sorted(cuts)) for name, column in columns.items()}
    return [dict(zip(parts, part, strict=True)) for part in zip(*parts.values(), strict=True)]


@given(rows, st.sets(st.integers(0, 40), max_size=4))
def test_a_metric_is_the_ratio_of_the_sums_and_its_error_that_of_the_groups_residuals(rows, cuts):
    groups, sums, weights = (np.array(column) for column in zip(*rows, strict=True))
    found = compute_ratios(blocks(groups, sums, weights, [c for c in cuts if c < len(rows)]))[
        "loss"
    ]
    value = sums.sum() / weights.sum()
    totals = [((sums - value * weights)[groups == g]).sum() for g in set(groups.tolist())]
    count = len(totals)
    error = math.sqrt(np.var(totals) * count**2 / (count - 1)) / weights.sum() if count > 1 else 0
    assert found["value"] == pytest.approx(value)
    if count == 1:
        assert math.isnan(found["standard_error"])
    else:
        assert found["standard_error"] == pytest.approx(error, abs=1e-9)


def test_the_standard_error_is_that_of_repeated_draws():
    random = np.random.default_rng(0)
    values, errors, naive = [], [], []
    for _ in range(300):
        group = np.repeat(np.arange(40), 5)
        weights = random.integers(1, 20, 200)
        sums = weights * (2 + random.normal(0, 0.5, 40)[group] + random.normal(0, 0.3, 200))
        [found] = compute_ratios(blocks(group, sums, weights)).values()
        values.append(found["value"])
        errors.append(found["standard_error"])
        naive.append(
            compute_ratios(blocks(np.arange(200), sums, weights))["loss"]["standard_error"]
        )
    assert np.mean(errors) == pytest.approx(np.std(values), rel=0.12)
    assert np.mean(naive) < 0.75 * np.std(values)


def test_more_groups_than_buckets_are_still_right(monkeypatch):
    random = np.random.default_rng(0)
    count = 8 * scores.BUCKETS
    ids = random.integers(-(2**63), 2**63, count)
    sums = random.normal(3, 1, count)
    found = compute_ratios(blocks(ids, sums, np.ones(count)))["loss"]
    assert found["standard_error"] == pytest.approx(1 / math.sqrt(count), rel=0.02)


@pytest.mark.parametrize("step", [1, 2**16, 2**32, -3], ids=str)
def test_ids_that_are_no_hashes_keep_apart(step):
    ids = np.arange(2000) * step
    found = compute_ratios(blocks(ids, np.arange(2000) % 7, np.ones(2000)))["loss"]
    expected = np.std(np.arange(2000) % 7, ddof=1) / math.sqrt(2000)
    assert found["standard_error"] == pytest.approx(expected, rel=0.05)


def test_what_is_no_number_is_no_metric():
    [found] = compute_ratios(blocks([1, 2], [math.nan, 1], [1, 1])).values()
    assert math.isnan(found["value"]) and math.isnan(found["standard_error"])
    [found] = compute_ratios(blocks([1, 2], [1, 1], [0, 0])).values()
    assert math.isnan(found["value"])
    assert compute_ratios([]) == {}
