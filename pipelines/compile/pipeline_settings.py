"""What a recipe sets for the whole pipeline: its parameters, the steps' cache and retries."""

from sagemaker.core.workflow.parameters import (
    Parameter,
    ParameterFloat,
    ParameterInteger,
    ParameterString,
)
from sagemaker.mlops.workflow.retry import (
    RetryPolicy,
    SageMakerJobExceptionTypeEnum,
    SageMakerJobStepRetryPolicy,
    StepExceptionTypeEnum,
    StepRetryPolicy,
)
from sagemaker.mlops.workflow.steps import CacheConfig

from conditions.no_champion import UNRESOLVED_ARN
from pipelines.recipe.config import Recipe
from pipelines.registry.ledger import PARAMETER as LOOK_PARAMETER
from steps.gate.config import threshold_parameter
from trainyard.language.retries import WORDS

STEP_CAUSES = {member.value: member for member in StepExceptionTypeEnum}
JOB_CAUSES = {member.value: member for member in SageMakerJobExceptionTypeEnum}
"""ExceptionType → the SDK's member; calling its enums would give their first member."""


def cache_config(recipe: Recipe) -> CacheConfig | None:
    """Return the cache settings; None when the cache is off, or with ``train.fsx``: its folder is
    named by the execution's id, so cached shards would not be found under it.
    """
    if not recipe.cache.enabled or recipe.train.fsx:
        return None
    return CacheConfig(enable_caching=True, expire_after=recipe.cache.expire_after)


def retry_policies(recipe: Recipe) -> tuple[RetryPolicy, ...]:
    """Return at most one policy for the service's faults and one for the job's, each with all
    causes.
    """
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


def pipeline_parameters(
    recipe: Recipe, no_champion: str
) -> dict[str, Parameter | str | int | float]:
    """Return the parameters: values that people change from run to run without an upsert, and
    values that ``start`` finds out.

    ``no_champion``: the URI that stands for no champion's model.
    """
    overridable_values: dict[str, str | int | None] = {
        "InputUri": recipe.data.input if recipe.data else None,
        "ShardInstanceCount": recipe.shard.instance_count,
        "TrainInstanceType": recipe.train.instance_type,
        "TrainInstanceCount": recipe.train.instance_count,
        "TransformInputUri": recipe.transform.input if recipe.transform else None,
        "MaxSteps": recipe.train.loop.max_steps if recipe.train.loop else None,
    }
    values = {
        **{n: v for n, v in overridable_values.items() if n in recipe.parameters and v is not None},
        **{threshold_parameter(name): value for name, value in recipe.gate.thresholds.items()},
    }
    run_values: dict[str, str | int] = {
        "ChampionArn": UNRESOLVED_ARN,
        "ChampionModelUri": no_champion,
    }
    run_values |= {LOOK_PARAMETER: 0} if recipe.gate.comparisons else {}
    # A field that the recipe does not list as overridable is fixed: a person who may start a run
    # cannot choose the thresholds of its verdict.
    constants = {n: value for n, value in values.items() if n not in recipe.pipeline.overridable}
    kinds = {str: ParameterString, int: ParameterInteger, float: ParameterFloat}
    parameters = {
        n: kinds[type(v)](n, default_value=v)
        for n, v in (values | run_values).items()
        if n not in constants
    }
    return constants | parameters
