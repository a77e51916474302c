"""RetryPolicies of a step: which failures are tried again, how often and when."""

import time
from dataclasses import dataclass

from trainyard.language.retries import BACKOFF_RATE, CAUSES, INTERVAL_SECONDS, MAX_ATTEMPTS


@dataclass(slots=True)
class Retries:
    """The retries of one step's run. ``started``: time.time() at its first attempt."""

    policies: list[dict]
    started: float
    used: int = 0

    def delay(self, reason: str) -> float | None:
        """Seconds until the next attempt after a failure with ``reason``; None: give up."""
        causes = {cause.name for cause in CAUSES.values() if reason.startswith(cause.failures)}
        for policy in self.policies:
            if causes & set(policy.get("ExceptionType", ())) and self._left(policy):
                first = policy.get("IntervalSeconds", INTERVAL_SECONDS)
                wait = first * policy.get("BackoffRate", BACKOFF_RATE) ** self.used
                self.used += 1
                return wait
        return None

    def _left(self, policy: dict) -> bool:
        if "ExpireAfterMin" in policy:
            return time.time() - self.started < 60 * policy["ExpireAfterMin"]
        return self.used < policy.get("MaxAttempts", MAX_ATTEMPTS)
