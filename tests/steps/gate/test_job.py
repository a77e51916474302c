"""The gate job: a verdict for whatever lies in its input."""

import json
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from steps.gate import job

GOOD = {
    "metrics": {"bits_per_byte": {"value": 2.4}, "next_token_accuracy": {"value": 0.5}},
    "baselines": {"bigram": {"bits_per_byte": 3.5}},
    "dataset": {"fingerprint": "abc"},
}
PRIMARY = ["--primary_metric", "bits_per_byte", "--direction", "lower"]


def gate(root: Path, evidence: bytes | None, *arguments: str) -> dict:
    folder = root / "processing/input/evaluation"
    folder.mkdir(parents=True, exist_ok=True)
    if evidence is not None:
        (folder / "evaluation.json").write_bytes(evidence)
    job.main([*PRIMARY, *arguments, "--root", str(root)])
    return json.loads((root / "processing/output/gate/gate.json").read_bytes())


@pytest.mark.parametrize(
    ("arguments", "verdict", "reason"),
    [
        (["--threshold", "max_bits_per_byte", "2.6"], "pass", "at most 2.6"),
        (["--threshold", "max_bits_per_byte", "0.1"], "reject",
         "bits_per_byte is 2.4, the recipe demands at most 0.1"),
        (["--threshold", "min_next_token_accuracy", "0.6"], "reject", "at least 0.6"),
        (["--threshold", "max_perplexity", "9"], "reject", "perplexity is missing"),
        (["--below_baseline", "bigram", "--baseline_margin", "1"], "pass", "bigram"),
        (["--below_baseline", "bigram", "--baseline_margin", "1.2"], "reject",
         "bits_per_byte is 2.4, it must beat the bigram baseline's 3.5 by at least 1.2"),
        (["--below_baseline", "trigram"], "reject", "trigram baseline is missing"),
        ([], "reject", "no checks"),
    ],
)  # fmt: skip
def test_verdicts(tmp_path, arguments, verdict, reason):
    result = gate(tmp_path, json.dumps(GOOD).encode(), *arguments)
    assert result["verdict"] == verdict and reason in result["reason"]


def test_all_checks_are_made_and_all_failures_told(tmp_path):
    words = ["--threshold", "max_bits_per_byte", "0.1", "--below_baseline", "bigram"]
    words += ["--threshold", "min_next_token_accuracy", "0.4", "--baseline_margin", "2"]
    result = gate(tmp_path, json.dumps(GOOD).encode(), *words)
    assert [check["passed"] for check in result["checks"]] == [False, True, False]
    assert [check["threshold"] for check in result["checks"]] == [0.1, 0.4, 1.5]
    assert "at most 0.1; " in result["reason"] and "by at least 2" in result["reason"]


@given(evidence=st.none() | st.binary(max_size=40) | st.integers(0, 230))
@example(evidence=b"[" * 100_000)
@example(evidence=b'{"metrics": NaN}')
@example(evidence=b"\xff\xfe")
def test_broken_files_are_rejected_with_a_reason(tmp_path_factory, evidence):
    whole = json.dumps(GOOD).encode()
    if isinstance(evidence, int):
        evidence = whole[: evidence % len(whole)]
    root = tmp_path_factory.mktemp("gate")
    result = gate(root, evidence, "--threshold", "max_bits_per_byte", "2.6")
    assert result["verdict"] == "reject" and "bits_per_byte is missing" in result["reason"]


@pytest.mark.parametrize(
    ("name", "value"),
    [("bits_per_byte", "1"), ("max_", "1"), ("max_m", "low"), ("max_m", "inf"), ("min_m", "nan")],
)
def test_a_malformed_threshold_ends_the_job_with_one_message(tmp_path, name, value, capsys):
    with pytest.raises(SystemExit) as end:
        gate(tmp_path, json.dumps(GOOD).encode(), "--threshold", name, value)
    assert end.value.code == 1
    message = (tmp_path / "output/message").read_text()
    assert f"--threshold {name} {value}: expected max_<metric> or min_<metric>" in message
    assert capsys.readouterr().out.strip() == f"error: {message}"
    assert not (tmp_path / "processing/output/gate/gate.json").exists()


def test_the_gate_starts_without_numpy_and_torch(run_python):
    heavy = "{'numpy', 'torch', 'pydantic'}"
    code = f"import sys, steps.gate.job; print(sorted({heavy} & set(sys.modules)))"
    assert run_python("-c", code).stdout.strip() == "[]"
