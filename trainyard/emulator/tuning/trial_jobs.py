"""The training jobs of a tuning job: their CreateTrainingJob requests."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainyard.emulator.tuning.objective_curves import Hyperband, Median, Rule
from trainyard.emulator.tuning.search_space import Space, Values, space_of
from trainyard.emulator.tuning.tuning_request import CONFIG, objective_of, ranges_of, resources
from trainyard.language.step_types.job_steps import starts_drivers

OBJECTIVE = "_tuning_objective_metric"
"""Hyperparameter by which the service tells algorithms their objective metric."""

IDLE = (
    "channel sm_drivers is present, but a tuning job does not run SDK v3's drivers: its API has no "
    "entry point. The image's toolkit starts the script, one process per node. For torchrun, set "
    "the static hyperparameter sagemaker_torch_distributed_enabled to true"
)
_PASSED_MEMBERS = (
    *("RoleArn", "InputDataConfig", "VpcConfig", "OutputDataConfig", "ResourceConfig"),
    *("StoppingCondition", "EnableNetworkIsolation", "EnableInterContainerTrafficEncryption"),
    *("EnableManagedSpotTraining", "CheckpointConfig", "Environment"),
)
_RESOURCES = ("InstanceType", "InstanceCount", "VolumeSizeInGB", "VolumeKmsKeyId")


def training_request(
    request: Mapping[str, Any], definition: Mapping[str, Any], name: str, values: Values
) -> dict[str, Any]:
    """Return CreateTrainingJob's request for a job that tries ``values``.

    Checkpoints go below the job's own name: otherwise a job would start from another's.
    """
    members = {key: definition[key] for key in _PASSED_MEMBERS if key in definition}
    static = definition.get("StaticHyperParameters") or {}
    metric = objective_of(request, definition)["MetricName"]
    if checkpoints := members.get("CheckpointConfig"):
        uri = f"{checkpoints['S3Uri'].rstrip('/')}/{name}"
        members["CheckpointConfig"] = {**checkpoints, "S3Uri": uri}
    return {
        "ResourceConfig": _machines(definition),
        **members,
        "TrainingJobName": name,
        "AlgorithmSpecification": definition["AlgorithmSpecification"],
        "HyperParameters": {**static, **values, OBJECTIVE: metric},
    }


def describe_definitions(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the training definitions as Describe has them.

    SDK v2's ``HyperparameterTuner.attach`` reads them (its integration tests pass on AWS): the
    objective is a static hyperparameter, and there is a ResourceConfig if the request had a
    HyperParameterTuningResourceConfig.
    """

    def with_objective(definition: Mapping[str, Any]) -> dict[str, Any]:
        static = definition.get("StaticHyperParameters") or {}
        metric = objective_of(request, definition)["MetricName"]
        static = {**static, OBJECTIVE: metric}
        machines = definition.get("ResourceConfig") or _machines(definition)
        return {**definition, "StaticHyperParameters": static, "ResourceConfig": machines}

    if several := request.get("TrainingJobDefinitions"):
        return {"TrainingJobDefinitions": [with_objective(definition) for definition in several]}
    return {"TrainingJobDefinition": with_objective(request["TrainingJobDefinition"])}


def drivers_idle(definition: Mapping[str, Any]) -> bool:
    """Return whether SDK v3 uploaded its drivers, and no hyperparameter starts them, or torchrun
    instead.
    """
    if starts_drivers(definition):
        return False
    channels = [channel["ChannelName"] for channel in definition.get("InputDataConfig") or ()]
    static = definition.get("StaticHyperParameters") or {}
    return "sm_drivers" in channels and "sagemaker_torch_distributed_enabled" not in static


def _machines(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Return HyperParameterTuningResourceConfig with the first of several kinds of instance."""
    config = definition.get("HyperParameterTuningResourceConfig") or {}
    first = (config.get("InstanceConfigs") or [{}])[0]
    return {key: value for key, value in {**config, **first}.items() if key in _RESOURCES}


def instances(definition: Mapping[str, Any]) -> int:
    """Return the number of nodes of each job."""
    machines = definition.get("ResourceConfig") or _machines(definition)
    return int(machines.get("InstanceCount", 1))


@dataclass(frozen=True, slots=True)
class TrainingDefinition:
    """An entry of TrainingJobDefinition or TrainingJobDefinitions, parsed."""

    document: dict[str, Any]
    name: str
    space: Space
    minimize: bool
    rule: Rule | None


def read(request: Mapping[str, Any], definition: dict[str, Any]) -> TrainingDefinition:
    """Return a parsed definition of a checked request."""
    config = request[CONFIG]
    minimize = objective_of(request, definition)["Type"] == "Minimize"
    rule: Rule | None = None
    if config["Strategy"] == "Hyperband":
        rule = Hyperband(minimize, *resources(config, definition))
    elif config.get("TrainingJobEarlyStoppingType") == "Auto":
        rule = Median(minimize)
    space = space_of(ranges_of(request, definition))
    return TrainingDefinition(
        definition, definition.get("DefinitionName", ""), space, minimize, rule
    )
