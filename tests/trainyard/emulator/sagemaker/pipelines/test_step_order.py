"""Retries after failures, and their delays."""

import time

import pytest

from trainyard.emulator.sagemaker.pipelines.step_order import Retries
from trainyard.language.retries import CAUSES

INTERNAL = "InternalServerError: disk full"


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
