"""Causes for which the service runs a step again, and the limits of a retry policy.

The causes, limits and defaults are those of the developer guide, "Retry Policy for Pipeline Steps"
(https://docs.aws.amazon.com/sagemaker/latest/dg/pipelines-retry-policy.html). AWS's JSON schema of
definitions (aws-sagemaker-mlops/sagemaker-model-building-pipeline-definition-JSON-schema) names
Emr.RESOURCE_LIMIT too: neither the guide nor the SDK does, and an EMR step takes no policy.
"""

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
    Cause = str  # which words there are is known only at run time
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
