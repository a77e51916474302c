"""Check RetryPolicies: step types, causes and limits that the service accepts."""

from collections.abc import Iterator
from typing import Any

from trainyard.common.errors import nearest
from trainyard.language.definition_document import Step
from trainyard.language.retries import CAPACITY, CAUSES, GUIDE, INTERVAL_SECONDS, LIMITS
from trainyard.language.step_types import step_type
from trainyard.validate.rules.job_view import as_list
from trainyard.validate.rules.rule import Violation, rule, steps


def _policies(step: Step) -> Iterator[tuple[str, dict[str, Any]]]:
    for index, policy in enumerate(as_list(step.document.get("RetryPolicies"))):
        if isinstance(policy, dict):
            yield f"{step.path}.RetryPolicies[{index}]", policy


def _causes(policy: dict[str, Any]) -> list[Any]:
    return as_list(policy.get("ExceptionType"))


@rule(
    "error",
    select=steps,
    reason="the service refuses the definition",
    fix="leave RetryPolicies out; a Lambda step's function retries by itself",
    source=f"{GUIDE}: the step types that can be retried; #3922",
)
def retries_on_unsupported_step(step: Step) -> Iterator[Violation]:
    if step.document.get("RetryPolicies") and not step_type(step.type).is_retried:
        problem = f"steps of type {step.type} are not retried"
        yield Violation(step=step, path=f"{step.path}.RetryPolicies", problem=problem)


@rule(
    "error",
    select=steps,
    reason="the service refuses the definition",
    fix="name one of " + ", ".join(CAUSES),
    source=f"{GUIDE}: supported exception types",
)
def unknown_retry_cause(step: Step) -> Iterator[Violation]:
    for path, policy in _policies(step):
        for index, cause in enumerate(_causes(policy)):
            # A list, unlike a dict, also compares values that have no hash.
            if cause not in list(CAUSES):
                field = f"{path}.ExceptionType[{index}]"
                problem = f"{cause!r} is not an exception type"
                fix = nearest(str(cause), list(CAUSES))
                yield Violation(step=step, path=field, problem=problem, fix=fix)


@rule(
    "error",
    select=steps,
    reason="the service refuses the definition",
    fix="leave one of them out",
    source=f"{GUIDE}: only one of MaxAttempts or ExpireAfterMin",
)
def two_retry_limits(step: Step) -> Iterator[Violation]:
    for path, policy in _policies(step):
        if policy.get("MaxAttempts") is not None and policy.get("ExpireAfterMin") is not None:
            yield Violation(step=step, path=path, problem="has MaxAttempts and ExpireAfterMin")


@rule(
    "error",
    select=steps,
    reason="the service refuses the definition",
    fix="keep it within the limits",
    source=f"{GUIDE}: JSON schema",
)
def retry_limit_too_large(step: Step) -> Iterator[Violation]:
    for path, policy in _policies(step):
        for name, (least, most) in LIMITS.items():
            value = policy.get(name)
            if isinstance(value, int | float) and not least <= value <= most:
                problem = f"is {value}; expected {least} to {most}"
                yield Violation(step=step, path=f"{path}.{name}", problem=problem)


@rule(
    "warning",
    select=steps,
    reason="tuning and AutoML retry their jobs themselves: the policy has no effect",
    fix="set RetryStrategy in the training job definition",
    source=f"{GUIDE}: note on tuning and AutoML",
)
def retry_without_effect(step: Step) -> Iterator[Violation]:
    for path, policy in _policies(step):
        for cause in CAUSES.values():
            if step.type in cause.without_effect and cause.name in _causes(policy):
                problem = f"{cause.name} on a {step.type} step"
                yield Violation(step=step, path=path, problem=problem)


@rule(
    "warning",
    select=steps,
    reason="each attempt follows sooner than the last, when it should wait longer for what is "
    "missing",
    fix="set BackoffRate to 1 or more; 2 is the default",
    source=f"{GUIDE}: BackoffRate, by which the interval increases",
)
def retries_ever_sooner(step: Step) -> Iterator[Violation]:
    for path, policy in _policies(step):
        rate = policy.get("BackoffRate")
        if isinstance(rate, int | float) and rate < 1:
            problem = f"is {rate:g}: the interval shrinks"
            yield Violation(step=step, path=f"{path}.BackoffRate", problem=problem)


@rule(
    "warning",
    select=steps,
    reason="an attempt that fails for lack of capacity at once uses up the others within seconds",
    fix="set IntervalSeconds to 60 or more",
    source=f"{GUIDE}: IntervalSeconds is 1 by default",
)
def hasty_retries(step: Step) -> Iterator[Violation]:
    for path, policy in _policies(step):
        interval = policy.get("IntervalSeconds", INTERVAL_SECONDS)
        short = isinstance(interval, int | float) and interval < 30
        if short and CAPACITY.name in _causes(policy):
            problem = f"retries for capacity after {interval} s"
            yield Violation(step=step, path=f"{path}.IntervalSeconds", problem=problem)
