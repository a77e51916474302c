"""The pipeline's parameters: what a run may change, and what is constant until an upsert."""

from sagemaker.core.workflow.parameters import (
    Parameter,
    ParameterFloat,
    ParameterInteger,
    ParameterString,
)

from conditions.no_champion import UNRESOLVED_ARN
from pipelines.recipe.config import Recipe
from pipelines.registry.ledger import PARAMETER as LOOK_PARAMETER
from steps.gate.config import threshold_parameter


def pipeline_parameters(
    recipe: Recipe, no_champion: str
) -> dict[str, Parameter | str | int | float]:
    """Return the parameters: values that people change from run to run without an upsert, and
    values that ``start`` finds out.

    A field that the recipe does not list as overridable is fixed: a person who may start a run
    cannot choose the thresholds of its verdict. ``no_champion``: the URI that stands for no
    champion's model.
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
    constants = {n: value for n, value in values.items() if n not in recipe.pipeline.overridable}
    parameters = {
        n: _parameter(n, v) for n, v in (values | run_values).items() if n not in constants
    }
    return constants | parameters


def _parameter(name: str, value: str | int | float) -> Parameter:
    kind = {str: ParameterString, int: ParameterInteger, float: ParameterFloat}[type(value)]
    return kind(name, default_value=value)
