"""The gate between a model and its int8 version: which one it passes, and what it says of both."""

import json
import re
from pathlib import Path

import pytest

from conditions.alpha_spending import spent
from steps.gate import job
from tests.conditions.evidence import CHAMPION, Evidence
from trainyard.common.errors import GateError

pytestmark = pytest.mark.long

MARGIN = ("--int8", "loss", "lower", "0.02")
NOT_WORSE = ("--non_inferiority", "loss", "lower", "0.02")
MODELS = ("s3://b/p/runs/x/train/model.tar.gz", "s3://b/p/runs/x/evaluate/int8/model.tar.gz")


def gate(root: Path, *arguments: str, champion: str = CHAMPION) -> dict:
    words = ["--primary_metric", "loss", "--direction", "lower", "--look", "1", *arguments]
    job.main([*words, "--champion", champion, "--models", *MODELS, "--root", str(root)])
    return json.loads((root / "processing/output/gate/gate.json").read_bytes())


def provenance(root: Path) -> dict:
    return json.loads((root / "processing/output/gate/provenance.json").read_bytes())


def test_an_int8_version_that_is_not_worse_is_registered(tmp_path):
    found = gate(Evidence(int8=0.004).write(tmp_path), *MARGIN, *NOT_WORSE)
    assert (found["verdict"], found["kinds"]["int8"]) == ("pass", "pass")
    versions = found["int8"]
    assert versions["registered"] and versions["model"] == "x/evaluate/int8/model.tar.gz"
    assert found["artifact_sha256"] == "int8's"
    assert found["metrics"] == versions["int8"]["metrics"] != versions["full"]["metrics"]
    [loss] = [check for check in found["checks"] if check["kind"] == "int8"]
    assert -0.02 < loss["low"] < loss["value"] < 0
    assert loss["confidence"] == pytest.approx(1 - spent(0.05, look_number=1))
    assert loss["champion"] == pytest.approx(versions["full"]["metrics"]["loss"])
    assert "int8 weights are registered; loss is worse by 0.00" in versions["says"]
    assert "model 0.8 MB instead of 3; p95 3 ms instead of 4" in versions["says"]
    recorded = provenance(tmp_path)
    assert recorded["precision"] == "int8"
    assert (recorded["artifact_sha256"], recorded["artifact_bytes"]) == ("int8's", 800_000)


@pytest.mark.parametrize(
    ("evidence", "arguments", "why"),
    [
        (Evidence(int8=0.03), MARGIN, "loss is"),
        (Evidence(int8=0.004), ("--int8", "loss", "lower", "0"), "loss is"),
        (Evidence(int8=0.004, groups=15, per_group=80), MARGIN, "the test split has 1"),
        (Evidence(improvement=0.01, noise=0.02, int8=0.0195), MARGIN, "superiority: loss is"),
    ],
    ids=["worse", "no margin", "few groups", "worse than the champion"],
)
def test_otherwise_full_precision_is_registered_and_the_gate_says_why(
    tmp_path, evidence, arguments, why
):
    superior = ("--superiority", "loss", "lower", "0")
    asked = ("--max_artifact_mb", "5", *(superior if "superiority" in why else ()))
    found = gate(evidence.write(tmp_path), *arguments, *asked)
    assert (found["verdict"], found["artifact_sha256"]) == ("pass", "challenger's")
    versions = found["int8"]
    assert not versions["registered"] and versions["model"] == "x/train/model.tar.gz"
    assert versions["int8"]["verdict"] == "reject"
    assert f"full precision is registered, not int8: {why}" in versions["says"]
    assert "model 0.8 MB instead of 3" in versions["says"]
    assert provenance(tmp_path)["precision"] == "full"


def test_a_model_that_the_gate_rejects_is_not_registered_as_int8_either(tmp_path):
    found = gate(Evidence(improvement=-0.05, int8=-0.2).write(tmp_path), *MARGIN, *NOT_WORSE)
    assert found["verdict"] == "reject" and found["int8"]["int8"]["verdict"] == "pass"
    assert found["artifact_sha256"] == "challenger's" and not found["int8"]["registered"]
    assert re.search(r"loss is better by 0\.\d+, at least 0\.\d+ better", found["int8"]["says"])


def test_the_size_counts_of_what_is_registered(tmp_path):
    root = Evidence(int8=0.004).write(tmp_path)
    small = gate(root, *MARGIN, "--max_artifact_mb", "1")
    assert small["verdict"] == "pass" and small["int8"]["registered"]
    assert small["int8"]["full"]["verdict"] == "reject"
    smaller = gate(root, *MARGIN, "--max_artifact_mb", "0.5")
    assert smaller["verdict"] == "reject" and not smaller["int8"]["registered"]


def test_without_a_champion_the_int8_version_is_compared_with_its_model_all_the_same(tmp_path):
    root = Evidence(int8=0.004, champion=None).write(tmp_path)
    found = gate(root, *MARGIN, *NOT_WORSE, "--look", "0", champion="none")
    assert found["verdict"] == "pass" and found["int8"]["registered"]
    worse = Evidence(int8=0.03, champion=None).write(tmp_path / "worse")
    assert not gate(worse, *MARGIN, "--look", "0", champion="none")["int8"]["registered"]


@pytest.mark.parametrize(
    ("changes", "look", "why"),
    [
        ({"int8": {"artifact_sha256": "another"}}, "1", "the scores are of artifact another"),
        ({"challenger": {"artifact_sha256": "another"}}, "1", "is of artifact another, not of"),
        ({"int8": {"test_fingerprint": "another"}}, "1", "the scores are of test split another"),
        ({}, "0", "the looks at this test split were not counted"),
    ],
)
def test_bad_evidence_leaves_full_precision(tmp_path, changes, look, why):
    root = Evidence(int8=0.004, changes=changes).write(tmp_path)
    found = gate(root, *MARGIN, "--max_artifact_mb", "5", "--look", look)
    assert found["verdict"] == "pass" and not found["int8"]["registered"]
    assert why in found["int8"]["says"]


def test_an_evaluation_without_an_int8_version_leaves_full_precision(tmp_path):
    found = gate(Evidence().write(tmp_path), *MARGIN, "--max_artifact_mb", "5")
    assert found["verdict"] == "pass" and not found["int8"]["registered"]
    assert "int8.parquet: is missing" in found["int8"]["says"]


def test_a_gate_that_is_not_told_where_the_models_are_ends_with_an_error(tmp_path):
    words = ["--primary_metric", "loss", "--direction", "lower", *MARGIN, "--root", str(tmp_path)]
    with pytest.raises(GateError, match="--models"):
        job.judge(job.parse(words))
