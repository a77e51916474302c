"""A test of AWS's is judged by what its pipeline really did."""

from typing import Any

import pytest

from benchmarks.sdk_tests.judge import judge_test

pytestmark = pytest.mark.long

ARN = "arn:aws:sagemaker:us-east-1:123456789012:training-job/t"


def evidence(step: str = "Succeeded", job: str = "Completed", **other: Any) -> dict[str, Any]:
    """One execution with one step and its job."""
    made = {"name": "Train", "status": step, "reason": "why", "reused": False,
            "metadata": {"TrainingJob": {"Arn": ARN}}}  # fmt: skip
    execution = {"arn": "e", "status": step, "reason": "", "steps": [made]}
    ran = {"name": "t", "kind": "Training", "arn": ARN, "status": job, "reason": ""}
    base = {"pretended": [], "refusals": [], "executions": [execution], "jobs": [ran]}
    return base | other


@pytest.mark.parametrize(
    ("test", "passed", "found", "verdict"),
    [
        ("test_x", True, evidence(), "works"),
        ("test_x", True, evidence(executions=[], jobs=[]), "works"),
        ("test_x", True, evidence(jobs=[]), "vacuous"),
        ("test_x", True, evidence(job="Stopped"), "vacuous"),
        ("test_x", True, evidence(step="Executing", job="InProgress"), "vacuous"),
        ("test_x", True, evidence(step="Failed", job="Failed"), "vacuous"),
        ("test_decorator_step_failed", True, evidence(step="Failed", job="Failed"), "works"),
        ("test_x", True, evidence(pretended=["CreateTransformJob"]), "vacuous"),
        ("test_x", False, evidence(), "ours"),
        ("test_clarify_e2e", False, evidence(), "not here"),
        ("test_emr_x", False,
         evidence(refusals=["step 'E' has type 'EMR', which is not run by"]), "refused type"),
        ("test_emr_x", False, evidence(), "ours"),
    ],
)  # fmt: skip
def test_verdicts(test: str, passed: bool, found: dict[str, Any], verdict: str):
    assert judge_test(test, passed, "E   AssertionError", found).verdict == verdict


def test_the_reason_of_a_red_test_is_the_failed_steps():
    found = evidence(step="Failed", job="Failed")
    assert judge_test("test_x", False, "E   assert 1 == 2", found).reason == "step Train: why"
    skipped = "x SKIPPED\n===== 1 skipped, 1 warning in 0.75s =====\n"  # no work of ours
    found = judge_test("test_x", True, skipped, evidence(executions=[], jobs=[]))
    assert found.verdict == "not here"
