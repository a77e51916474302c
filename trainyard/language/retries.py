"""The causes of failure after which the service retries a step, and the limits of a retry policy.

The causes, limits and defaults are those of the developer guide, "Retry Policy for Pipeline Steps"
(https://docs.aws.amazon.com/sagemaker/latest/dg/pipelines-retry-policy.html). AWS's JSON schema of
definitions (aws-sagemaker-mlops/sagemaker-model-building-pipeline-definition-JSON-schema) also
names Emr.RESOURCE_LIMIT. It is left out, because neither the guide nor the SDK names it, and an EMR
step cannot have a retry policy.
"""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

GUIDE = "developer guide, pipelines-retry-policy"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryCause:
    """A kind of failure after which a step may be retried."""

    name: str
    """Its ExceptionType in a definition."""

    word: str
    """Its name in a recipe."""

    failures: tuple[str, ...]
    """Texts with which the FailureReason of such a failure begins; AlgorithmError is never one."""

    without_effect: tuple[str, ...] = ()
    """Step types whose jobs are retried after it even without a policy, so a policy has no
    effect."""

    @property
    def is_job_failure(self) -> bool:
        """True if the job itself fails, rather than the call that creates the job."""
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
"""Mapping of an ExceptionType to its cause."""

WORDS = {cause.word: cause for cause in CAUSES.values()}
"""Mapping of a name in a recipe to its cause."""

if TYPE_CHECKING:
    # A type checker cannot compute the names.
    Cause = str
else:
    Cause = Literal[*WORDS]

LIMITS = {"IntervalSeconds": (1, 43_200), "MaxAttempts": (0, 20), "ExpireAfterMin": (0, 14_400)}
"""Mapping of a member of a policy to its (smallest, largest) allowed value. If MaxAttempts or
ExpireAfterMin is 0, nothing is retried."""

INTERVAL_SECONDS, BACKOFF_RATE, MAX_ATTEMPTS = 1, 2.0, 5
"""Default values of members of a policy."""


@dataclass(slots=True)
class Retries:
    """The retries of one step in an execution."""

    policies: list[dict]
    start_time: float
    """Time of the first attempt, as ``time.time()`` returns it."""

    used: int = 0
    """Number of retries so far."""

    def schedule_retry(self, reason: str, code: str = "") -> float | None:
        """Count a retry after a failure, and return the seconds to wait before it.

        Return None if the step is not retried: no policy covers the cause and has retries left.

        Args:
            reason: FailureReason.
            code: error code of the call that should create the job, such as ResourceLimitExceeded.
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
        """Return whether the policy's ExpireAfterMin or MaxAttempts allows another retry now."""
        if "ExpireAfterMin" in policy:
            return time.time() - self.start_time < 60 * policy["ExpireAfterMin"]
        return self.used < policy.get("MaxAttempts", MAX_ATTEMPTS)
