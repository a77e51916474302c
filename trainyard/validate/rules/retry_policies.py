"""Check RetryPolicies: do they have an effect, and are their intervals sensible?

What the service refuses in them is checked by the shape of a step (``step_request_checks``).
"""

from collections.abc import Iterator
from typing import Any

from trainyard.language.definition_document import Step
from trainyard.language.retries import CAPACITY, CAUSES, GUIDE, INTERVAL_SECONDS
from trainyard.validate.rules.job_view import as_list
from trainyard.validate.rules.rule import Violation, rule, select_steps


def _iter_policies(step: Step) -> Iterator[tuple[str, dict[str, Any]]]:
    """Iterate over (path, policy) of a step's retry policies."""
    for index, policy in enumerate(as_list(step.document.get("RetryPolicies"))):
        if isinstance(policy, dict):
            yield f"{step.path}.RetryPolicies[{index}]", policy


def _list_causes(policy: dict[str, Any]) -> list[Any]:
    return as_list(policy.get("ExceptionType"))


@rule(
    "warning",
    select=select_steps,
    reason="tuning and AutoML retry their jobs themselves: the policy has no effect",
    fix="set RetryStrategy in the training job definition",
    source=f"{GUIDE}: note on tuning and AutoML",
)
def retry_without_effect(step: Step) -> Iterator[Violation]:
    for path, policy in _iter_policies(step):
        for cause in CAUSES.values():
            if step.type in cause.without_effect and cause.name in _list_causes(policy):
                problem = f"{cause.name} on a {step.type} step"
                yield Violation(step=step, path=path, problem=problem)


@rule(
    "warning",
    select=select_steps,
    reason="each attempt follows sooner than the last, although it should wait longer for the "
    "missing resource",
    fix="set BackoffRate to 1 or more; 2 is the default",
    source=f"{GUIDE}: BackoffRate, by which the interval increases",
)
def retries_ever_sooner(step: Step) -> Iterator[Violation]:
    for path, policy in _iter_policies(step):
        rate = policy.get("BackoffRate")
        if isinstance(rate, int | float) and rate < 1:
            problem = f"is {rate:g}: the interval shrinks"
            yield Violation(step=step, path=f"{path}.BackoffRate", problem=problem)


@rule(
    "warning",
    select=select_steps,
    reason="if capacity is lacking, the attempts fail at once and are used up within seconds",
    fix="set IntervalSeconds to 60 or more",
    source=f"{GUIDE}: IntervalSeconds is 1 by default",
)
def hasty_retries(step: Step) -> Iterator[Violation]:
    for path, policy in _iter_policies(step):
        interval = policy.get("IntervalSeconds", INTERVAL_SECONDS)
        short = isinstance(interval, int | float) and interval < 30
        if short and CAPACITY.name in _list_causes(policy):
            problem = f"retries for capacity after {interval} s"
            yield Violation(step=step, path=f"{path}.IntervalSeconds", problem=problem)
