"""The recipe's cache and retry settings in the SDK's words."""

from sagemaker.mlops.workflow.retry import (
    RetryPolicy,
    SageMakerJobExceptionTypeEnum,
    SageMakerJobStepRetryPolicy,
    StepExceptionTypeEnum,
    StepRetryPolicy,
)
from sagemaker.mlops.workflow.steps import CacheConfig

from pipelines.recipe.config import Recipe
from trainyard.language.retries import WORDS

STEP_CAUSES = {member.value: member for member in StepExceptionTypeEnum}
JOB_CAUSES = {member.value: member for member in SageMakerJobExceptionTypeEnum}
"""ExceptionType → the SDK's member; its enums give their first one when they are called."""


def cache_config(recipe: Recipe) -> CacheConfig | None:
    """None when the cache is off, and with FSx: a mounted folder is named by the execution's id,
    so shards that the cache answered with would not be found under it."""
    if not recipe.cache.enabled or recipe.train.fsx:
        return None
    return CacheConfig(enable_caching=True, expire_after=recipe.cache.expire_after)


def retry_policies(recipe: Recipe) -> tuple[RetryPolicy, ...]:
    """At most one policy for the service's faults and one for the job's, each with all causes."""
    retry = recipe.retry
    if not retry.max_attempts:
        return ()
    timing = {
        "interval_seconds": retry.interval_seconds,
        "backoff_rate": retry.backoff_rate,
        "max_attempts": retry.max_attempts,
    }
    causes = [WORDS[word] for word in retry.causes]
    policies: list[RetryPolicy] = []
    if step := [STEP_CAUSES[cause.name] for cause in causes if not cause.of_job]:
        policies.append(StepRetryPolicy(exception_types=step, **timing))
    if job := [JOB_CAUSES[cause.name] for cause in causes if cause.of_job]:
        policies.append(SageMakerJobStepRetryPolicy(exception_types=job, **timing))
    return tuple(policies)
