"""gate.json: every key always there, and a pass only on whole, good evidence."""

import copy
import json
from dataclasses import fields
from typing import get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conditions.checks.baseline import check_against_baseline
from conditions.checks.threshold import check_against_threshold
from conditions.gate_check import Check
from conditions.gate_documents import Gate
from conditions.verdict import decide_verdict

pytestmark = pytest.mark.long

KEYS = set(
    """verdict reason checks kinds slices metrics champion_metrics baselines dataset_fingerprint
    train_fingerprint test_fingerprint artifact_sha256 champion_artifact_sha256 champion cold_start
    confidence look examples groups""".split()
)
CHECK_KEYS = set(
    """name kind metric direction value method low high confidence threshold passed reason slice
    challenger champion""".split()
)
GOOD = {
    "metrics": {"m": {"value": 2.0}, "other": {"value": 1.0}},
    "baselines": {"b": {"m": 3.0}},
    "dataset": {"fingerprint": "abc"},
}
EVIDENCE = [("metrics", "m", "value"), ("baselines", "b", "m"), ("dataset", "fingerprint")]

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
anything = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["metrics", "m", "value", "baselines", "b", "dataset", "fingerprint"]),
            inner,
        )
    ),
    max_leaves=15,
)


def test_the_document_says_which_keys_there_are():
    assert set(get_type_hints(Gate)) == KEYS
    assert {field.name for field in fields(Check)} == CHECK_KEYS


def judge(evaluation) -> dict:
    checks = [
        check_against_threshold(evaluation, "m", "lower", 2.5),
        check_against_baseline(evaluation, "m", "lower", "b", 0.5),
    ]
    result = decide_verdict(evaluation, checks)
    json.dumps(result, allow_nan=False)
    assert set(result) == KEYS
    assert all(set(check) == CHECK_KEYS for check in result["checks"])
    assert result["reason"]
    return result


def test_good_evidence_passes_and_one_failed_check_rejects_with_its_reason_alone():
    result = judge(GOOD)
    assert (result["verdict"], result["dataset_fingerprint"]) == ("pass", "abc")
    assert result["metrics"] == {"m": 2.0, "other": 1.0}
    kinds = result["kinds"]
    assert (kinds["threshold"], kinds["baseline"], kinds["latency"]) == ("pass", "pass", "none")
    result = judge(GOOD | {"baselines": {"b": {"m": 2.4}}})
    assert result["verdict"] == "reject"
    assert result["reason"] == "m is 2, it must beat the b baseline's 2.4 by at least 0.5"
    assert judge(GOOD | {"baselines": None})["kinds"]["baseline"] == "reject"


@pytest.mark.parametrize("path", [(), *EVIDENCE], ids=".".join)
@given(garbage=anything)
def test_any_piece_of_evidence_may_be_garbage_and_passes_only_when_it_is_good(path, garbage):
    evaluation = {"": copy.deepcopy(GOOD)}
    inner, path = evaluation, ("", *path)
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = garbage

    def read_evidence_value(*path):
        found = evaluation[""]
        for key in path:
            found = found.get(key) if isinstance(found, dict) else None
        return found

    value, baseline, fingerprint = (read_evidence_value(*one) for one in EVIDENCE)
    numbers = all(type(v) in (int, float) for v in (value, baseline))
    good = numbers and value <= 2.5 and value < baseline - 0.5 and baseline < float("inf")
    good = good and value > -float("inf") and isinstance(fingerprint, str) and fingerprint != ""
    assert judge(evaluation[""])["verdict"] == ("pass" if good else "reject")
    del inner[path[-1]]
    if path[1:]:
        assert judge(evaluation[""])["verdict"] == "reject"


def test_a_gate_without_checks_passes_nothing():
    result = decide_verdict(GOOD, [])
    assert (result["verdict"], set(result)) == ("reject", KEYS)
    assert "no checks" in result["reason"]


def test_a_reason_fits_into_a_failure_message_and_is_told_once():
    check = check_against_threshold({}, "m", "lower", 1.0)
    assert decide_verdict(GOOD, [check, check])["reason"] == check.reason
    many = [check_against_threshold({}, f"metric_{n}", "lower", 1.0) for n in range(100)]
    reason = decide_verdict(GOOD, many)["reason"]
    assert len(reason) <= 700 and reason.endswith("…")
