"""Causes for which the service runs a step again, and the limits of a retry policy.

The causes, limits and defaults are those of the developer guide, "Retry Policy for Pipeline Steps"
(https://docs.aws.amazon.com/sagemaker/latest/dg/pipelines-retry-policy.html). AWS's JSON schema of
definitions (aws-sagemaker-mlops/sagemaker-model-building-pipeline-definition-JSON-schema) names
Emr.RESOURCE_LIMIT too: neither the guide nor the SDK does, and an EMR step takes no policy.
"""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

GUIDE = "developer guide, pipelines-retry-policy"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryCause:
    """A kind of failure after which a step may be tried again."""

    name: str
    """ExceptionType in a definition."""

    word: str
    """Word for it in a recipe."""

    failures: tuple[str, ...]
    """Beginnings of the FailureReason of such a failure; never those of an AlgorithmError."""

    without_effect: tuple[str, ...] = ()
    """Step types whose jobs are retried anyway after it, so that a policy does nothing."""

    @property
    def of_job(self) -> bool:
        """True if a job fails with it, and not the call that creates one."""
        return self.name.startswith("SageMaker.")


SERVICE_FAULT = RetryCause(
    name="Step.SERVICE_FAULT", word="service_fault", failures=("InternalServerError",)
)
THROTTLING = RetryCause(
    name="Step.THROTTLING", word="throttling", failures=("ThrottlingException",)
)
CAPACITY = RetryCause(name="SageMaker.CAPACITY_ERROR", word="capacity", failures=("CapacityError",))
INTERNAL_ERROR = RetryCause(
    name="SageMaker.JOB_INTERNAL_ERROR",
    word="internal_error",
    failures=("InternalServerError",),
    without_effect=("Tuning", "AutoML"),
)
RESOURCE_LIMIT = RetryCause(
    name="SageMaker.RESOURCE_LIMIT", word="resource_limit", failures=("ResourceLimitExceeded",)
)
CAUSES = {
    cause.name: cause
    for cause in (SERVICE_FAULT, THROTTLING, CAPACITY, INTERNAL_ERROR, RESOURCE_LIMIT)
}
"""ExceptionType → the cause."""

WORDS = {cause.word: cause for cause in CAUSES.values()}
"""A recipe's word → the cause."""

if TYPE_CHECKING:
    # Which words there are is known only at run time.
    Cause = str
else:
    Cause = Literal[*WORDS]

LIMITS = {
    "IntervalSeconds": (1, 43_200),
    "MaxAttempts": (0, 20),
    "ExpireAfterMin": (0, 14_400),
}
"""Member of a policy → (least, most) allowed value. With 0 nothing is tried again."""

INTERVAL_SECONDS, BACKOFF_RATE, MAX_ATTEMPTS = 1, 2.0, 5
"""Values that apply where a policy does not set them."""


@dataclass(slots=True)
class Retries:
    """The retries of one step's run; ``start_time``: time.time() at its first attempt."""

    policies: list[dict]
    start_time: float
    used: int = 0

    def delay(self, reason: str, code: str = "") -> float | None:
        """Return seconds until the next attempt after a failure with ``reason``; None: give up.

        ``code``: the error code of a call that creates a job, such as ResourceLimitExceeded.
        """
        causes = {
            cause.name
            for cause in CAUSES.values()
            if reason.startswith(cause.failures) or code in cause.failures
        }
        for policy in self.policies:
            if causes & set(policy.get("ExceptionType", ())) and self._has_retries_left(policy):
                first = policy.get("IntervalSeconds", INTERVAL_SECONDS)
                wait = first * policy.get("BackoffRate", BACKOFF_RATE) ** self.used
                self.used += 1
                return wait
        return None

    def _has_retries_left(self, policy: dict) -> bool:
        if "ExpireAfterMin" in policy:
            return time.time() - self.start_time < 60 * policy["ExpireAfterMin"]
        return self.used < policy.get("MaxAttempts", MAX_ATTEMPTS)
