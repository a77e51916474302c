"""The metrics against scikit-learn's, and the standard errors against repeated draws."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss, roc_auc_score

from training.workloads.tabular import scores
from trainyard.common.errors import DataError

pytestmark = pytest.mark.long


def metrics(logits, labels, groups=None, size=1000):
    """Return the metrics of rows that come in blocks of ``size``."""
    groups = np.arange(len(labels)) if groups is None else groups
    cuts = range(size, len(labels), size)
    parts = zip(*(np.split(column, cuts) for column in (logits, labels, groups)), strict=True)
    return scores.compute_metrics([{**scores.build_columns(z, y), "group": g} for z, y, g in parts])


row = st.tuples(st.sampled_from([-3.0, -1, 0.1, 0.5, 4]), st.booleans())


@given(st.lists(row, min_size=2).filter(lambda rows: len({label for _, label in rows}) == 2))
def test_the_metrics_are_what_their_names_say(rows):
    logits, labels = (np.array(column) for column in zip(*rows, strict=True))
    p = 1 / (1 + np.exp(-logits))
    expected = {
        "log_loss": log_loss(labels, p),
        "auc": roc_auc_score(labels, p),
        "accuracy": accuracy_score(labels, p > 0.5),
        "brier": brier_score_loss(labels, p),
    }
    found = metrics(logits.astype(np.float32), labels.astype(np.uint8))
    assert {name: m["value"] for name, m in found.items()} == pytest.approx(expected, abs=1e-6)
    error = np.std((logits > 0) == labels, ddof=1) / np.sqrt(len(rows))
    assert found["accuracy"]["standard_error"] == pytest.approx(error)


def test_rows_of_one_group_count_as_little_as_they_tell():
    """Whole days are easy or hard: compared with the spread over many draws of 40 days."""
    random = np.random.default_rng(0)
    values, errors, naive = [], [], []
    for _ in range(200):
        days = np.repeat(np.arange(40), 25)
        labels = random.random(1000) < 1 / (1 + np.exp(1 - random.normal(0, 1.5, 40)[days]))
        logits = random.normal(-1, 1, 1000) + labels + random.normal(0, 1, 40)[days]
        found = metrics(logits, labels, random.permutation(2**40 + np.arange(40))[days])
        values.append([m["value"] for m in found.values()])
        errors.append([m["standard_error"] for m in found.values()])
        naive.append(metrics(logits, labels)["log_loss"]["standard_error"])
    assert np.mean(errors, axis=0) == pytest.approx(np.std(values, axis=0), rel=0.12)
    assert np.mean(naive) < 0.8 * np.std(values, axis=0)[0]


def test_groups_of_one_row_are_no_groups():
    random = np.random.default_rng(0)
    logits, labels = random.normal(0, 1, 50), random.random(50) < 0.5
    grouped = metrics(logits, labels, random.permutation(50))
    for name, found in metrics(logits, labels).items():
        assert grouped[name] == pytest.approx(found)


def test_one_group_alone_tells_no_error_and_certain_and_wrong_costs_no_infinity():
    found = metrics(np.array([1e4, -1e4, 1e4]), np.array([0, 0, 1], np.uint8), np.full(3, 7))
    assert all(np.isnan(m["standard_error"]) for m in found.values())
    assert found["log_loss"]["value"] == pytest.approx(1e4 / 3)


@pytest.mark.parametrize("label", [0, 1])
def test_labels_that_are_all_equal_are_refused(label):
    with pytest.raises(DataError, match=f"all 3 rows .* have the label {label}"):
        metrics(np.zeros(3), np.full(3, label, np.uint8))


def test_the_area_is_as_exact_as_it_says_and_rows_are_counted_piece_by_piece(monkeypatch):
    random = np.random.default_rng(0)
    monkeypatch.setattr(scores, "WAITING", 3000)
    labels = random.random(50_000) < 0.2
    logits = random.normal(-1.5, 1, 50_000) + labels
    exact = roc_auc_score(labels, logits)
    assert metrics(logits, labels)["auc"]["value"] == pytest.approx(exact, abs=1e-5)


@pytest.mark.filterwarnings("ignore:invalid value encountered")
def test_a_probability_that_is_no_number_is_no_metric():
    found = metrics(np.array([np.nan, -1, 2]), np.array([1, 0, 1], np.uint8))
    assert all(np.isnan(m["value"]) for m in found.values() if m is not found["accuracy"])


@pytest.mark.parametrize("centre", [-20, 0, 9, 14])
def test_confident_predictions_are_told_apart_at_both_ends(centre):
    """Nearly all likely, or nearly all unlikely: 0.82 was reported where 0.92 was true."""
    random = np.random.default_rng(0)
    labels = random.random(20_000) < 0.5
    logits = random.normal(centre, 1, 20_000) + 2 * labels
    found = metrics(logits, labels)["auc"]["value"]
    assert found == pytest.approx(roc_auc_score(labels, logits), abs=2e-4)
    assert metrics(-logits, ~labels)["auc"]["value"] == pytest.approx(found, abs=2e-4)
