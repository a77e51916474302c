"""The recipe's section ``tune``: whether what it searches are hyperparameters of this training."""

from typing import Any

from pydantic import ValidationError

from pipelines.recipe.data_section import Data
from steps.train.config import TrainStepConfig
from steps.tune.config import Range, TuneConfig, Value
from training.config import IMMATERIAL, TrainConfig
from trainyard.common.errors import nearest

BUDGET = {"max_steps": "the length of a training, which has to be the same for all"}


def refuse_tune(tune: TuneConfig | None, train: TrainStepConfig, data: Data | None) -> str | None:
    """Return the field of the recipe that stands in the way of the search, and why; None if none
    does.
    """
    if tune is None:
        return None
    for name in tune.ranges:
        if refused := _refuse_range(name, tune, train):
            return f"tune.ranges.{name}: {refused}"
    if train.loop is None:
        return _refuse_script(tune, train)
    if tune.metric is not None or tune.goal != "minimize":
        return "tune.metric: the loop's trainings are compared by their validation loss; remove it"
    if data is not None and data.mixture and tune.judged > 1:
        return "tune.judged: is for data of one input; several with weights need 1"
    if train.start_from is not None and train.start_from.checkpoint is not None:
        return "train.start_from.checkpoint: a search cannot begin with another training's middle"
    return None


def _refuse_range(name: str, tune: TuneConfig, train: TrainStepConfig) -> str | None:
    loop = train.loop
    known = train.arguments if loop is None else dict(loop)
    section = "train.arguments" if loop is None else "train.loop"
    if name not in known:
        return f"is not in {section}; {nearest(name, [*known])}"
    if loop is not None and (name in IMMATERIAL or name in BUDGET):
        what = BUDGET.get(name, "a setting that does not change the weights")
        return f"is {what}; {nearest(name, sorted({*known} - {*IMMATERIAL, *BUDGET}))}"
    one, default = tune.ranges[name], known[name]
    ends = [one.min, one.max] if isinstance(one, Range) else [*one]
    for value in ends if loop is not None else ():
        if refused := _refuse_value(name, value, loop):
            return f"{value!r}: {refused}"
    if isinstance(one, Range) and (
        isinstance(default, bool) or not isinstance(default, int | float)
    ):
        return f"{section}.{name} is {default!r}, not a number; give a list of values"
    if not tune.allows(name, default):
        return f"does not hold {section}.{name}, which is {default!r}; widen it, or change that"
    return None


def _refuse_value(name: str, value: Value, loop: TrainConfig | None) -> str | None:
    """Return why the loop does not take the value, with the recipe's other settings."""
    try:
        TrainConfig.model_validate({**dict(loop or {}), name: value})
    except ValidationError as error:
        return error.errors()[0]["msg"].removeprefix("Value error, ")
    return None


def _refuse_script(tune: TuneConfig, train: TrainStepConfig) -> str | None:
    if train.algorithm and tune.metric is None:
        return (
            f"tune.metric: is missing; name one that {train.algorithm} reports, as AWS's guide does"
        )
    if train.script and tune.metric not in train.metrics:
        named: list[Any] = [*train.metrics]
        return (
            f"tune.metric: is {tune.metric!r}; a script's trainings are compared by one of "
            f"train.metrics: {', '.join(named) or 'none is set'}"
        )
    if tune.judged != 1:
        return (
            f"tune.judged: is {tune.judged}; a script holds out no samples of its own: set it to 1"
        )
    if tune.strategy == "hyperband":
        return "tune.strategy: hyperband needs the number of lines with the metric; choose random"
    return None
