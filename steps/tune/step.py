"""Declare the tune step: a tuning job that starts training jobs like the train step's.

Its request is derived from the train step's. The SDK's HyperparameterTuner is not used, because it
drops volume keys, isolation and encryption, and puts a timestamp into the code's key (reference:
SDK 3.27, train/tuner.py).
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any

from sagemaker.core.helper.pipeline_variable import RequestType
from sagemaker.core.workflow.properties import Properties
from sagemaker.mlops.workflow.steps import ConfigurableRetryStep, StepTypeEnum, TrainingStep

from steps.processing import StepContext
from steps.train.step import TuningResult
from steps.train.train_script import format_hyperparameter
from steps.tune.config import Range, TuneConfig
from steps.workload_settings import as_hyperparameters
from training.config import TrainConfig

STARTER = "start_drivers.py"
DRIVERS = "/opt/ml/input/data/sm_drivers"
TRAINING_MEMBERS = (
    *("RoleArn", "InputDataConfig", "VpcConfig", "ResourceConfig", "StoppingCondition"),
    *("EnableNetworkIsolation", "EnableInterContainerTrafficEncryption", "RetryStrategy"),
    *("EnableManagedSpotTraining", "CheckpointConfig", "Environment"),
)
"""Members of CreateTrainingJob that a tuning job's TrainingJobDefinition also has."""
OBJECTIVE = "validation:loss"
MOST_METRICS = 20
"""Maximum metrics of a tuning job (developer guide, automatic-model-tuning-limits). A training job
may have 40."""
SCALES = {"linear": "Linear", "log": "Logarithmic"}


class TuneStep(ConfigurableRetryStep):
    """A pipeline step of type Tuning, for a request of CreateHyperParameterTuningJob."""

    def __init__(
        self, request: dict[str, Any], context: StepContext, train: TrainingStep, **about: str
    ) -> None:
        """Create the step.

        Args:
            request: request of CreateHyperParameterTuningJob.
            context: context whose retry policies the step gets.
            train: step whose request the search's training jobs share; its dependencies and cache
                settings are used, too.
            about: display_name and description.
        """
        super().__init__(
            "Tune", StepTypeEnum.TUNING, depends_on=train.depends_on,
            retry_policies=list(context.retries), **about,
        )  # fmt: skip
        self._request, self._cache = request, train.cache_config
        shapes = ["DescribeHyperParameterTuningJobResponse",
                  "ListTrainingJobsForHyperParameterTuningJobResponse"]  # fmt: skip
        self._properties = Properties(step_name=self.name, step=self, shape_names=shapes)

    @property
    def arguments(self) -> RequestType:
        """Return the request of CreateHyperParameterTuningJob."""
        return self._request

    @property
    def properties(self) -> Properties:
        """Return the properties of the tuning job and of its training jobs, best first."""
        return self._properties

    def to_request(self) -> RequestType:
        """Return the step's part of the definition, with the cache settings."""
        return super().to_request() | (self._cache.config if self._cache else {})


def make_tune_step(
    context: StepContext,
    config: TuneConfig,
    train: TrainingStep,
    *,
    loop: TrainConfig | None,
    extend_folder: Callable[[str, dict[str, bytes]], str],
) -> TuneStep:
    """Return the tune step; its trainings are like ``train``, the step with the recipe's values.

    Args:
        loop: the loop's settings; None for a script.
        extend_folder: function that takes the URI of a folder and further files, {name: content},
            and returns the URI of a folder with both.
    """
    request = dict(train.arguments)
    hyperparameters = request["HyperParameters"]
    algorithm, objective = request["AlgorithmSpecification"], config.metric or OBJECTIVE
    metric_definitions = algorithm.get("MetricDefinitions", ())
    # A tuning job takes fewer of them than a training job: the objective comes first, so that it is
    # kept.
    metrics = sorted(metric_definitions, key=lambda metric: metric["Name"] != objective)
    metrics = metrics[:MOST_METRICS]
    toolkit = {"sagemaker_program": STARTER, "sagemaker_submit_directory": DRIVERS}
    definition = {
        "AlgorithmSpecification": {
            "TrainingImage": algorithm["TrainingImage"],
            "TrainingInputMode": algorithm["TrainingInputMode"],
            **({"MetricDefinitions": metrics} if metrics else {}),
        },
        **{key: request[key] for key in TRAINING_MEMBERS if key in request},
        "InputDataConfig": [
            _add_starter(channel, extend_folder) for channel in request["InputDataConfig"]
        ],
        "OutputDataConfig": {
            **request["OutputDataConfig"],
            "S3OutputPath": context.build_run_uri("tune"),
        },
        "StaticHyperParameters": {
            **{name: value for name, value in hyperparameters.items() if name not in config.ranges},
            **toolkit,
        },
    }
    return TuneStep(
        {
            "HyperParameterTuningJobConfig": _build_tuning_config(config, loop, hyperparameters),
            "TrainingJobDefinition": definition,
            **({"Tags": context.build_aws_tags()} if context.tags else {}),
        },
        context,
        train,
        display_name="Search hyperparameters",
        description=f"{config.strategy}, {config.trainings} trainings at most, over "
        + ", ".join(config.ranges),
    )


def find_best_training(tune: TuneStep, ranges: Iterable[str]) -> TuningResult:
    """Return the search's best training job, with its values of the searched hyperparameters."""
    best = tune.properties.BestTrainingJob
    values = {name: best.TunedHyperParameters[name] for name in ranges}
    trial_count = tune.properties.TrainingJobStatusCounters.Completed.to_string()
    return TuningResult(best.TrainingJobName, values, trial_count)


def _add_starter(
    channel: dict[str, Any], extend_folder: Callable[[str, dict[str, bytes]], str]
) -> dict[str, Any]:
    """Add the program that starts the drivers to their channel; return other channels unchanged."""
    if channel["ChannelName"] != Path(DRIVERS).name:
        return channel
    source = channel["DataSource"]["S3DataSource"]
    starter = {STARTER: Path(__file__).with_name(STARTER).read_bytes()}
    source = {**source, "S3Uri": extend_folder(source["S3Uri"], starter)}
    return {**channel, "DataSource": {"S3DataSource": source}}


def _build_tuning_config(
    config: TuneConfig, loop: TrainConfig | None, hyperparameters: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the HyperParameterTuningJobConfig.

    ``hyperparameters`` maps each hyperparameter to the recipe's own value.
    """
    limits = {
        "MaxNumberOfTrainingJobs": config.trainings,
        "MaxParallelTrainingJobs": config.parallel,
        **({"MaxRuntimeInSeconds": round(config.max_hours * 3600)} if config.max_hours else {}),
    }
    tuning_config: dict[str, Any] = {
        "Strategy": config.strategy.capitalize(),
        "HyperParameterTuningJobObjective": {
            "Type": config.goal.capitalize(),
            "MetricName": config.metric or OBJECTIVE,
        },
        "ResourceLimits": limits,
        "ParameterRanges": _build_parameter_ranges(config.ranges, loop, hyperparameters),
        "TrainingJobEarlyStoppingType": "Auto" if config.stop_early else "Off",
        "RandomSeed": config.seed,
    }
    if config.strategy == "hyperband":
        # A unit of resource is one log line with the objective. The loop prints one after each
        # validation.
        resource = {"MinResource": 1}
        if loop is not None:
            resource["MaxResource"] = ceil(loop.max_steps / loop.validation_interval)
        tuning_config["StrategyConfig"] = {"HyperbandStrategyConfig": resource}
    return tuning_config


def _build_parameter_ranges(
    ranges: Mapping[str, Range | Sequence[Any]],
    loop: TrainConfig | None,
    hyperparameters: Mapping[str, Any],
) -> dict[str, list[dict[str, Any]]]:
    """Return the ParameterRanges.

    A range is of integers if its ends and the recipe's own value are all integers.
    """
    to_text = format_hyperparameter if loop is None else str  # as the train step writes them
    workload_values = (
        as_hyperparameters(json.loads(hyperparameters["workload_config"])) if loop else {}
    )
    parameter_ranges: dict[str, list[dict[str, Any]]] = {}
    for name, search_range in ranges.items():
        if not isinstance(search_range, Range):
            values = {"Name": name, "Values": [to_text(value) for value in search_range]}
            parameter_ranges.setdefault("CategoricalParameterRanges", []).append(values)
            continue
        if name in workload_values:
            own_value = workload_values[name]
        else:
            own_value = json.loads(hyperparameters[name])
        is_whole = all(
            isinstance(value, int) for value in (search_range.min, search_range.max, own_value)
        )
        kind = "Integer" if is_whole else "Continuous"
        ends = {"MinValue": str(search_range.min), "MaxValue": str(search_range.max)}
        item = {"Name": name, **ends, "ScalingType": SCALES[search_range.scale]}
        parameter_ranges.setdefault(f"{kind}ParameterRanges", []).append(item)
    return parameter_ranges
