"""Answers are called worse where their truths say so beyond chance, by the evaluation's record."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.metrics import brier_score_loss, log_loss

from pipelines.endpoint.answer_quality import (
    OF_TRUTHS,
    RecordedQuality,
    RecordedRequest,
    compute_quality_change,
    judge_quality,
    read_captures,
    read_truths,
)
from pipelines.endpoint.drift import QUALITY, Change, compare_columns
from tests.pipelines.upserting import clean_aws
from trainyard.common.errors import DataError

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
RECORD = RecordedQuality("version-2", "log_loss", True, 0.5, 0.01)


def make_recorded_answer(probability: Any, truth: float | None, **more: Any) -> RecordedRequest:
    return RecordedRequest(
        {}, {"probability": probability}, **{"variant": "version-2", **more}, truth=truth
    )


def test_metrics_are_those_of_scikit_learn():
    random = np.random.default_rng(0)
    p, y = random.random(500), random.integers(0, 2, 500).astype(float)
    assert OF_TRUTHS["log_loss"](p, y).mean() == pytest.approx(log_loss(y, p))
    assert OF_TRUTHS["brier"](p, y).mean() == pytest.approx(brier_score_loss(y, p))
    assert OF_TRUTHS["accuracy"](p, y).mean() == pytest.approx(((p > 0.5) == y).mean())
    assert OF_TRUTHS["log_loss"](np.array([0.0]), np.array([1.0]))[0] < 40, "not infinite"


def test_the_chance_is_welchs_and_requests_of_one_group_count_as_one():
    losses = np.random.default_rng(0).normal(0.53, 0.2, 400)
    found = compute_quality_change(losses, None, RECORD)
    error = np.hypot(losses.std(ddof=1) / 20, 0.01)
    assert found.p_value == pytest.approx(norm.sf((losses.mean() - 0.5) / error), rel=0.05)
    assert found.movement == f"0.5 when evaluated → {losses.mean():.4g} of 400 answers"
    losses = np.repeat(np.random.default_rng(0).normal(0.6, 0.1, 8), 100)
    groups = np.repeat(np.arange(8), 100)
    alone, together = (
        compute_quality_change(losses, one, RECORD).p_value for one in (None, groups)
    )
    assert alone < together / 1e6
    assert compute_quality_change(losses, np.zeros(800), RECORD).p_value == 1, (
        "one group says nothing of others"
    )
    exact = RecordedQuality("version-2", "log_loss", True, 0.5, 0.0)
    assert compute_quality_change(np.full(9, 0.6), None, exact).p_value == 0
    assert compute_quality_change(np.full(9, 0.5), None, exact).p_value == 1


@pytest.mark.parametrize(("lower", "metric"), [(True, "log_loss"), (False, "accuracy")])
def test_only_worse_than_the_margin_counts(lower: bool, metric: str):
    sign = 1 if lower else -1
    for worse, found in ((-0.2, False), (0.04, False), (0.2, True)):
        losses = np.random.default_rng(0).normal(0.5 + sign * worse, 0.1, 400)
        record = RecordedQuality("version-2", metric, lower, 0.5, 0.01, margin=0.05)
        assert (compute_quality_change(losses, None, record).p_value < 0.01) == found, worse


def test_what_another_model_answered_and_what_cannot_be_compared_is_left_out():
    right = [make_recorded_answer(0.9, n % 2) for n in range(40)]
    wrong = [
        make_recorded_answer(1.5, 1),
        make_recorded_answer(0.5, 2),
        make_recorded_answer(0.5, None),
    ]
    wrong.append(RecordedRequest({}, None, "version-2"))
    other = [make_recorded_answer(0.0, 1, variant="version-1")] * 40
    found, notes = judge_quality([*right, *wrong, *other], "probability", None, RECORD)
    assert found is not None and found.movement.endswith("of 40 answers")
    assert [*notes] == ["log_loss: 4 of 44 truths not compared: not a probability and a truth of "
                        "0 or 1"]  # fmt: skip
    found, notes = judge_quality(other, "probability", None, RECORD)
    assert found is None
    assert [*notes] == ["log_loss: not compared, too few truths of version-2: 0"]
    record = RecordedQuality("version-2", "mae", True, 0.5, 0.01)
    values = [0.4, 0.6, float("nan"), float("inf"), 10**400, True, "1"]
    found, notes = judge_quality(
        [make_recorded_answer(v, 0.0) for v in values], "probability", None, record
    )
    assert found is not None and found.movement == "0.5 when evaluated → 0.5 of 2 answers"
    assert [*notes] == ["mae: 5 of 7 truths not compared: not a number and its truth"]


def test_the_error_holds_for_drift_and_quality_together():
    """Holm's correction counts the metric among the features: 1 % becomes 2 %."""
    worse = Change("log_loss", QUALITY, 0.01, None, "")
    same = {"x": [str(n) for n in range(50)]}
    limits: Any = {"error": 0.05, "least_psi": 0.1, "also": [worse]}
    [first, _] = compare_columns(same, same, {"x"}, **limits)
    assert (first.feature, first.p_value, first.has_drifted) == ("log_loss", 0.02, True)


@pytest.fixture
def s3(emulator, monkeypatch: pytest.MonkeyPatch) -> Any:
    return clean_aws(emulator.env, monkeypatch)[0]


def line(name: str, data: Any) -> str:
    return json.dumps({"groundTruthData": {"data": data, "encoding": "CSV"},
                       "eventMetadata": {"eventId": name}, "eventVersion": "0"})  # fmt: skip


@pytest.mark.long
def test_truths_are_joined_by_inference_id_or_else_event_id(s3: Any):
    lines = [line("a", "1"), line("b", "false"), line("c", "late"), line("e", "nan")]
    s3.put_object(Bucket="bkt", Key="t/2026/11/28/10/x.jsonl", Body="\n".join(lines).encode())
    s3.put_object(Bucket="bkt", Key="t/2026/11/29/00/x.jsonl", Body=line("d", "1").encode())
    events = []
    names = [{"inferenceId": "a"}, {"eventId": "b"}, {"eventId": "c"}, {"eventId": "d"}]
    for number, ids in enumerate([*names, {"eventId": "a", "inferenceId": "z"}]):
        side = {"encoding": "JSON", "data": json.dumps({"n": number})}
        events.append({
            "captureData": {"endpointInput": side, "endpointOutput": side},
            "eventMetadata": ids | {"inferenceTime": "2026-11-28T09:00:00Z"},
        })  # fmt: skip
    body = "\n".join(map(json.dumps, events)).encode()
    s3.put_object(Bucket="bkt", Key="q/version-2/2026/11/28/09/x.jsonl", Body=body)
    start = NOW - timedelta(days=7)
    known = read_truths(s3, "s3://bkt/t", start, NOW)
    assert known == {"a": 1.0, "b": 0.0, "c": None, "e": None}, "d arrives after the end"
    found = read_captures(s3, "s3://bkt/q", start, NOW, known)
    assert found.number == 5 and found.truth_source is not None
    kept = [(one.record["n"], one.truth) for one in found.truth_source.requests]
    assert kept == [(0, 1), (1, 0), (2, None)]


@pytest.mark.long
@pytest.mark.parametrize("body", ["{", '{"eventMetadata": {}}', "[1]", "[" * 100_000])
def test_a_line_that_is_no_ground_truth_is_named(s3: Any, body: str):
    s3.put_object(Bucket="bkt", Key="bad/2026/11/28/10/x.jsonl", Body=body.encode())
    with pytest.raises(DataError, match=r"bad/2026/11/28/10/x.jsonl, line 1: .*groundTruthData"):
        read_truths(s3, "s3://bkt/bad", NOW - timedelta(days=1), NOW)
