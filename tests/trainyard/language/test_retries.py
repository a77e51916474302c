"""Retry causes and delays; and that whoever speaks of causes speaks of all of them."""

import json
import time

import pytest

from trainyard.language.retries import CAUSES, LIMITS, Retries
from trainyard.language.step_types import STEP_TYPES
from trainyard.validate import check

INTERNAL = "InternalServerError: disk full"


@pytest.mark.parametrize("cause", CAUSES.values(), ids=lambda cause: cause.word)
def test_the_emulator_tries_again_after_each(cause):
    for failure in cause.failures:
        retries = Retries([{"ExceptionType": [cause.name]}], start_time=0.0)
        assert retries.delay(f"{failure}: once") == 1


def definition(kind: str, policy: dict) -> str:
    step = {"Name": "S", "Type": kind, "Arguments": {}, "RetryPolicies": [policy]}
    return json.dumps({"Version": "2020-12-01", "Parameters": [], "Steps": [step]})


@pytest.mark.parametrize("kind", STEP_TYPES)
def test_only_some_types_of_steps_are_retried(kind: str):
    policy = {"ExceptionType": ["Step.THROTTLING"], "MaxAttempts": 3}
    found = [f for f in check(definition(kind, policy)) if f.path == "$.Steps[0].RetryPolicies"]
    rules = {finding.rule for finding in found}
    assert rules in (set(), {"unknown-member"})
    assert bool(rules) != STEP_TYPES[kind].is_retried


@pytest.mark.parametrize("member", LIMITS)
def test_a_limit_is_so_large_at_most(member: str):
    least, most = LIMITS[member]
    for value, wrong in ((least, False), (most, False), (least - 1, True), (most + 1, True)):
        policy = {"ExceptionType": ["Step.THROTTLING"], member: value}
        where = f"$.Steps[0].RetryPolicies[0].{member}"
        rules = {f.rule for f in check(definition("Training", policy)) if f.path == where}
        assert rules == ({"range"} if wrong else set())


def test_the_types_are_those_of_the_guide_of_awss_schema_and_of_the_sdk():
    guide = {"Processing", "Training", "Tuning", "AutoML", "Model", "RegisterModel", "Transform"}
    schema_of_definitions = guide | {"QualityCheck", "ClarifyCheck"}
    sdk = {"EndpointConfig", "EMRServerless", "Job"}
    retried = {name for name, kind in STEP_TYPES.items() if kind.is_retried}
    assert retried == schema_of_definitions | sdk


def policy(*kinds: str, **more: float) -> dict:
    return {"ExceptionType": list(kinds), "IntervalSeconds": 2, "BackoffRate": 3.0, **more}


def test_backoff_until_the_attempts_are_used() -> None:
    retries = Retries([policy("SageMaker.JOB_INTERNAL_ERROR", MaxAttempts=3)], time.time())
    assert [retries.delay(INTERNAL) for _ in range(4)] == [2, 6, 18, None]


@pytest.mark.parametrize(
    "reason", ["AlgorithmError: x, exit code: 1", "ClientError: no such bucket"]
)
def test_the_users_own_failures_are_never_retried(reason: str) -> None:
    every = policy("SageMaker.JOB_INTERNAL_ERROR", "SageMaker.CAPACITY_ERROR", "Step.SERVICE_FAULT")
    assert Retries([every], time.time()).delay(reason) is None


def test_a_policy_expires() -> None:
    expired = policy("Step.SERVICE_FAULT", ExpireAfterMin=1)
    assert Retries([expired], time.time()).delay(INTERNAL) == 2
    assert Retries([expired], time.time() - 61).delay(INTERNAL) is None


def test_a_call_that_was_refused_for_a_quota_is_tried_again_by_its_code() -> None:
    """SDK, SageMakerJobStepRetryPolicy: "exceptions thrown by synchronously creating the job. For
    instance the resource limit exception".
    """
    reason = "ClientError: Failed to invoke sagemaker:CreateTrainingJob. Error Details: ..."
    every = policy(*CAUSES)
    assert Retries([every], time.time()).delay(reason, "ResourceLimitExceeded") == 2
    assert Retries([every], time.time()).delay(reason, "ValidationException") is None
    other = policy("SageMaker.CAPACITY_ERROR")
    assert Retries([other], time.time()).delay(reason, "ResourceLimitExceeded") is None
