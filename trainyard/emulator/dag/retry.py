"""RetryPolicies of a step: which failures are tried again, how often and when.

Source: the developer guide, "Retry policy for SageMaker Pipelines steps".
"""

import time
from dataclasses import dataclass

FAILURES = {
    "InternalServerError": ("SageMaker.JOB_INTERNAL_ERROR", "Step.SERVICE_FAULT"),
    "CapacityError": ("SageMaker.CAPACITY_ERROR",),
    "ResourceLimitExceeded": ("SageMaker.RESOURCE_LIMIT",),
    "ThrottlingException": ("Step.THROTTLING",),
}
"""How a FailureReason begins -> the ExceptionTypes that it is. An AlgorithmError is none."""


@dataclass(slots=True)
class Retries:
    """The retries of one step's run. ``started``: time.time() at its first attempt."""

    policies: list[dict]
    started: float
    used: int = 0

    def delay(self, reason: str) -> float | None:
        """Seconds until the next attempt after a failure with ``reason``; None: give up."""
        kinds = next((k for begin, k in FAILURES.items() if reason.startswith(begin)), ())
        for policy in self.policies:
            if set(policy.get("ExceptionType", ())) & set(kinds) and self._left(policy):
                wait = (
                    policy.get("IntervalSeconds", 1) * policy.get("BackoffRate", 2.0) ** self.used
                )
                self.used += 1
                return wait
        return None

    def _left(self, policy: dict) -> bool:
        if "ExpireAfterMin" in policy:
            return time.time() - self.started < 60 * policy["ExpireAfterMin"]
        return self.used < policy.get("MaxAttempts", 5)  # 5: the guide's default
