"""The training jobs of a tuning job: what CreateTrainingJob is asked for each."""

from collections.abc import Mapping
from typing import Any

from trainyard.emulator.tuning.request import objective_of
from trainyard.emulator.tuning.space import Values

OBJECTIVE = "_tuning_objective_metric"
"""The hyperparameter by which the service tells algorithms what they are compared by."""

_PASSED = (
    *("RoleArn", "InputDataConfig", "VpcConfig", "OutputDataConfig", "ResourceConfig"),
    *("StoppingCondition", "EnableNetworkIsolation", "EnableInterContainerTrafficEncryption"),
    *("EnableManagedSpotTraining", "CheckpointConfig", "Environment"),
)
_RESOURCES = ("InstanceType", "InstanceCount", "VolumeSizeInGB", "VolumeKmsKeyId")


def training_request(
    request: Mapping[str, Any], definition: Mapping[str, Any], name: str, values: Values
) -> dict[str, Any]:
    """CreateTrainingJob's request for a job that tries ``values``.

    Checkpoints go below the job's own name: else each job would begin with another's.
    """
    asked = {key: definition[key] for key in _PASSED if key in definition}
    static = definition.get("StaticHyperParameters") or {}
    metric = objective_of(request, definition)["MetricName"]
    if checkpoints := asked.get("CheckpointConfig"):
        uri = f"{checkpoints['S3Uri'].rstrip('/')}/{name}"
        asked["CheckpointConfig"] = {**checkpoints, "S3Uri": uri}
    return {
        "ResourceConfig": _machines(definition),
        **asked,
        "TrainingJobName": name,
        "AlgorithmSpecification": definition["AlgorithmSpecification"],
        "HyperParameters": {**static, **values, OBJECTIVE: metric},
    }


def _machines(definition: Mapping[str, Any]) -> dict[str, Any]:
    """HyperParameterTuningResourceConfig; of several kinds of instance the first."""
    wanted = definition.get("HyperParameterTuningResourceConfig") or {}
    first = (wanted.get("InstanceConfigs") or [{}])[0]
    return {key: value for key, value in {**wanted, **first}.items() if key in _RESOURCES}


def instances(definition: Mapping[str, Any]) -> int:
    """How many nodes each job has."""
    machines = definition.get("ResourceConfig") or _machines(definition)
    return int(machines.get("InstanceCount", 1))
