"""The baselines are fair: all features, converged, settings chosen on held-out rows."""

import logging
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from tests.training.workloads.tabular.tables import SETTINGS, dataset, measure_baselines, table
from training.data.manifest import Samples
from training.workloads import load_workload
from training.workloads.tabular import baselines
from training.workloads.tabular.baselines import BoostedTrees
from trainyard.common.errors import TrainingError

pytestmark = pytest.mark.long

CALM = SETTINGS | {"min_count": 1, "clip": 100.0}


def datasets(tmp_path, train, test):
    return (
        dataset(tmp_path / "train", CALM, {"a": train}),
        dataset(tmp_path / "test", CALM, {"a": test}),
    )


def evaluate(train, test, limit=10**6):
    workload = load_workload("tabular", CALM)
    workload.fit(train)
    return measure_baselines(workload, train, test, limit)


def fit_baseline(kind: type, folder, frame, settings=CALM) -> tuple[Any, Samples]:
    """Return (a baseline of this kind, the training samples that it has learned from)."""
    train = dataset(folder, settings, {"a": frame})
    workload = load_workload("tabular", settings)
    workload.fit(train)
    samples = train.read(np.arange(len(train)))
    return kind(workload.model().encoder, samples), samples


def test_it_is_as_good_as_scikit_learns_own_pipeline(tmp_path):
    train, test = (table(rows, seed).assign(age=1.0) for rows, seed in ((2000, 1), (500, 2)))
    found = evaluate(*datasets(tmp_path, train, test))["logistic_regression"]["log_loss"]
    scaled = (OneHotEncoder(), ["colour", "size"]), (StandardScaler(), ["weight"])
    losses = []
    for strength in baselines.C_VALUES:
        theirs = make_pipeline(make_column_transformer(*scaled), LogisticRegression(C=strength))
        theirs.fit(train, train["delay"] > 15)
        losses.append(log_loss(test["delay"] > 15, theirs.predict_proba(test)[:, 1]))
    assert found == pytest.approx(min(losses), abs=0.003)


def test_it_sees_the_limit_and_no_more_spread_over_the_whole(tmp_path):
    train, test = table(1000, 1), table(200, 2)
    train["delay"] = np.where(np.arange(1000) < 500, 15.0, 30.0)
    train.loc[:99, "delay"] = 30.0  # a front of 300 has another share of late rows
    [known, held_out] = datasets(tmp_path, train, test)
    few, all_rows = evaluate(known, held_out, 300), evaluate(known, held_out)
    rate = log_loss(test["delay"] > 15, np.full(200, 0.6))
    assert all_rows["base_rate"]["log_loss"] == pytest.approx(rate)
    assert all_rows["base_rate"]["auc"] == 0.5
    assert few["base_rate"]["log_loss"] == pytest.approx(rate, abs=0.01)
    assert few["logistic_regression"] != all_rows["logistic_regression"]


def test_groups_are_held_out_as_a_whole(tmp_path):
    """Each day's label is a coin toss, and one value identifies the day."""
    random = np.random.default_rng(0)
    days = np.tile(np.arange(100), 20)
    frame = table(2000, 1).assign(colour=days.astype(str), day=days.astype(str))
    frame["delay"] = np.where((random.random(100) < 0.5)[days], 15.0, 30.0)
    strengths = []
    for settings in (CALM, CALM | {"group": "day"}):
        folder = tmp_path / str(len(settings))
        strengths.append(fit_baseline(baselines.Regression, folder, frame, settings)[0].c)
    assert strengths == [max(baselines.C_VALUES), min(baselines.C_VALUES)]


def test_one_label_alone_cannot_be_fitted(tmp_path):
    train, test = table(100, 1).assign(delay=30.0), table(100, 2)
    with pytest.raises(TrainingError, match="100 training samples .* all have the label 1"):
        evaluate(*datasets(tmp_path, train, test))


@pytest.mark.filterwarnings("ignore:newton-cg failed to converge")
def test_half_a_baseline_is_none(tmp_path, monkeypatch):
    monkeypatch.setattr(baselines, "MAX_ITERATIONS", 1)
    with pytest.raises(TrainingError, match="has not converged after 1 iterations"):
        evaluate(*datasets(tmp_path, table(300, 1), table(100, 2)))


def test_too_few_rows_to_choose_on_are_said(tmp_path, caplog):
    train = table(4, 1).assign(delay=[15.0, 30, 15, 30])
    with caplog.at_level(logging.WARNING):
        evaluate(*datasets(tmp_path, train, table(100, 2)))
    assert "too few to choose C;" in caplog.text
    assert "too few to choose the number of rounds" in caplog.text


def test_trees_see_what_no_straight_line_tells(tmp_path):
    found = evaluate(*datasets(tmp_path, table(3000, 1), table(1000, 2)))
    assert found["boosted_trees"]["accuracy"] > 0.9  # 5 % of the labels are wrong
    assert found["boosted_trees"]["log_loss"] < found["logistic_regression"]["log_loss"] - 0.1


def test_trees_are_the_same_with_one_thread_and_with_two(tmp_path, monkeypatch):
    monkeypatch.setattr(baselines, "MOST_ROUNDS", 10)  # threads that wait for a core spin
    frame, logits = table(3000, 1), []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            trees, samples = fit_baseline(BoostedTrees, tmp_path / str(threads), frame)
            logits.append(trees.compute_logits(samples))
    finally:
        torch.set_num_threads(before)
    assert np.array_equal(*logits)


def test_of_a_category_with_many_values_the_rarest_share_a_code(tmp_path):
    random = np.random.default_rng(0)
    values = np.where(np.arange(2000) < 1000, "common", random.integers(0, 400, 2000).astype(str))
    frame = table(2000, 1).assign(colour=values)
    frame["delay"] = np.where((values == "common") ^ (random.random(2000) < 0.05), 30.0, 15.0)
    trees, samples = fit_baseline(BoostedTrees, tmp_path, frame)
    codes = trees.columns.encode_samples(samples)[:, 0]
    assert codes.max() == 254 and (codes == 0).sum() == 1000
    assert (trees.compute_logits(samples)[codes == 0] > 0).all()


def test_rounds_are_chosen_on_whole_groups(tmp_path):
    """A day determines its label, and says nothing about another: the fewer rounds, the better."""
    random = np.random.default_rng(0)
    days = np.tile(np.arange(100), 20)
    frame = table(2000, 1).assign(weight=days.astype(float), day=days.astype(str))
    frame["delay"] = np.where((random.random(100) < 0.5)[days], 15.0, 30.0)
    alone, _ = fit_baseline(BoostedTrees, tmp_path / "alone", frame)
    grouped, _ = fit_baseline(BoostedTrees, tmp_path / "grouped", frame, CALM | {"group": "day"})
    assert grouped.rounds <= 2 < alone.rounds


def test_scores_of_a_baseline_stand_on_the_models_rows(tmp_path):
    train, test = datasets(tmp_path, table(500, 1), table(300, 2))
    workload = load_workload("tabular", CALM)
    workload.fit(train)
    [ours] = workload.scores(workload.model().eval(), test)
    for blocks in workload.baseline_scores(train, test, 500).values():
        [theirs] = blocks
        assert set(theirs) == set(ours)
        for name in ("example", "group", "label", "log_loss.weight"):
            assert np.array_equal(theirs[name], ours[name])
