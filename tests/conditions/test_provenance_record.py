"""The record of a verdict: complete with good evidence, and there with any."""

import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conditions.gate_documents import (
    UNKNOWN,
    RunRecord,
    build_model_metadata,
    build_run_record,
    write_provenance,
)
from tests.documents import keys_that_differ


class Known(RunRecord):
    """What the test's definition knows, and what the run adds."""

    commit: str
    recipe: dict
    seed: int


EVALUATION = {
    "artifact": {"sha256": "a" * 64, "bytes": 10},
    "model": {"steps": 7, "packages_sha256": "b" * 64},
    "dataset": {"fingerprint": "c", "train_fingerprint": "d", "test_fingerprint": "e"},
}
GATE = {"verdict": "pass", "champion": "arn"}
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(sorted(EVALUATION)), inner),
)


def write_provenance_record(
    root: Path, evaluation: bytes | None, known: bytes | None
) -> tuple[dict, dict, bytes]:
    for name, body in (("evaluation/evaluation.json", evaluation),
                       ("provenance/provenance.json", known)):  # fmt: skip
        path = root / "processing/input" / name
        path.parent.mkdir(parents=True)
        if body is not None:
            path.write_bytes(body)
    output = root / "processing/output/gate"
    output.mkdir(parents=True)
    (output / "gate.json").write_bytes(b"{}")
    write_provenance(root, GATE)
    text = (output / "provenance.json").read_bytes()
    return json.loads(text), json.loads((output / "record.json").read_bytes()), text


def test_the_record_binds_evidence_verdict_and_origin(tmp_path):
    evaluation = json.dumps(EVALUATION).encode()
    known = json.dumps({"commit": "abc", "recipe": {"sha256": "f" * 64}, "seed": 0}).encode()
    found, told, text = write_provenance_record(tmp_path, evaluation, known)
    assert found["evaluation_sha256"] == hashlib.sha256(evaluation).hexdigest()
    assert found["gate_sha256"] == hashlib.sha256(b"{}").hexdigest()
    assert (found["artifact_sha256"], found["artifact_bytes"]) == ("a" * 64, 10)
    assert (found["checkpoint_step"], found["commit"]) == (7, "abc")
    assert (found["verdict"], found["champion"]) == ("pass", "arn")
    assert not keys_that_differ(found, Known)
    assert told["provenance_sha256"] == hashlib.sha256(text).hexdigest()
    assert (told["seed"], told["checkpoint_step"], told["recipe_sha256"]) == ("0", "7", "f" * 64)


@pytest.mark.parametrize("bad", [None, b"", b"no json", b"[]", b"[" * 100_000, b"\xff"])
def test_any_evidence_leaves_a_record_with_every_key(tmp_path, bad):
    whole = write_provenance_record(tmp_path / "good", json.dumps(EVALUATION).encode(), b"{}")
    found, told, _ = write_provenance_record(tmp_path / "bad", bad, bad)
    assert set(found) == set(whole[0]) and set(told) == set(whole[1])
    assert found["artifact_sha256"] is None and told["artifact_sha256"] == UNKNOWN


@given(JSON)
def test_every_value_that_the_registry_is_told_is_a_string(evaluation):
    told = build_model_metadata(build_run_record(evaluation, GATE, None, None, {}), "0" * 64)
    assert all(isinstance(value, str) and value for value in told.values())
