"""Retry causes and delays; and that whoever speaks of causes speaks of all of them."""

import json
import time

import pytest

from trainyard.language.retries import CAUSES, LIMITS, Retries
from trainyard.language.step_types import STEP_TYPES
from trainyard.validate import check_definition

INTERNAL = "InternalServerError: disk full"


@pytest.mark.parametrize("cause", CAUSES.values(), ids=lambda cause: cause.word)
def test_the_emulator_tries_again_after_each(cause):
    for failure in cause.failures:
        policy = {"ExceptionType": [cause.name]}
        assert Retries([policy], start_time=0.0).schedule_retry(f"{failure}: once") == 1


def broken(where: str, kind: str = "Training", **policy: int) -> set[str]:
    """The rules that a retry policy of a step of this type breaks there."""
    policies = [{"ExceptionType": ["Step.THROTTLING"], **policy}]
    step = {"Name": "S", "Type": kind, "Arguments": {}, "RetryPolicies": policies}
    body = json.dumps({"Version": "2020-12-01", "Parameters": [], "Steps": [step]})
    return {f.rule for f in check_definition(body) if f.path == f"$.Steps[0].RetryPolicies{where}"}


@pytest.mark.parametrize("kind", STEP_TYPES)
def test_only_some_types_of_steps_are_retried(kind: str):
    wrong = set() if STEP_TYPES[kind].is_retried else {"unknown-member"}
    assert broken("", kind, MaxAttempts=3) == wrong


@pytest.mark.parametrize("member", LIMITS)
def test_a_limit_is_so_large_at_most(member: str):
    least, most = LIMITS[member]
    for value, wrong in ((least, False), (most, False), (least - 1, True), (most + 1, True)):
        assert broken(f"[0].{member}", **{member: value}) == ({"range"} if wrong else set())


def test_the_types_are_those_of_the_guide_of_awss_schema_and_of_the_sdk():
    guide = {"Processing", "Training", "Tuning", "AutoML", "Model", "RegisterModel", "Transform"}
    schema_of_definitions = guide | {"QualityCheck", "ClarifyCheck"}
    sdk = {"EndpointConfig", "EMRServerless", "Job"}
    retried = {name for name, kind in STEP_TYPES.items() if kind.is_retried}
    assert retried == schema_of_definitions | sdk


def retries(*kinds: str, start_time: float | None = None, **more: float) -> Retries:
    policy = {"ExceptionType": list(kinds), "IntervalSeconds": 2, "BackoffRate": 3.0, **more}
    return Retries([policy], time.time() if start_time is None else start_time)


def test_backoff_until_the_attempts_are_used() -> None:
    three = retries("SageMaker.JOB_INTERNAL_ERROR", MaxAttempts=3)
    assert [three.schedule_retry(INTERNAL) for _ in range(4)] == [2, 6, 18, None]


@pytest.mark.parametrize(
    "reason", ["AlgorithmError: x, exit code: 1", "ClientError: no such bucket"]
)
def test_the_users_own_failures_are_never_retried(reason: str) -> None:
    assert retries(*CAUSES).schedule_retry(reason) is None


def test_a_policy_expires() -> None:
    for ago, delay in ((0, 2), (61, None)):
        begun = retries("Step.SERVICE_FAULT", ExpireAfterMin=1, start_time=time.time() - ago)
        assert begun.schedule_retry(INTERNAL) == delay


def test_a_call_that_was_refused_for_a_quota_is_tried_again_by_its_code() -> None:
    """SDK, SageMakerJobStepRetryPolicy: "exceptions thrown by synchronously creating the job. For
    instance the resource limit exception".
    """
    reason = "ClientError: Failed to invoke sagemaker:CreateTrainingJob. Error Details: ..."
    assert retries(*CAUSES).schedule_retry(reason, "ResourceLimitExceeded") == 2
    assert retries(*CAUSES).schedule_retry(reason, "ValidationException") is None
    assert (
        retries("SageMaker.CAPACITY_ERROR").schedule_retry(reason, "ResourceLimitExceeded") is None
    )
