"""Evaluate a tuning job's training jobs from their records alone, and build their requests."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainyard.emulator.sagemaker.tuning.objective_curves import Hyperband, Median, Rule
from trainyard.emulator.sagemaker.tuning.search_strategies import Space, Values, build_space
from trainyard.emulator.sagemaker.tuning.tuning_request import (
    CONFIG,
    find_objective,
    find_ranges,
    resolve_resources,
)
from trainyard.language.definition_document import JOB_ENDED
from trainyard.language.step_types.job_steps import has_driver_program

IMPROVEMENT = 0.01
"""Fraction of the best value by which a job must improve on it to count as an improvement: 1 %
(botocore).
"""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one training job of a tuning job."""

    tuning: str
    definition: str
    """The DefinitionName. Empty for a single definition without a name."""

    record: Mapping[str, Any]
    """The response of DescribeTrainingJob."""

    tuned_names: frozenset[str]
    """Names of the hyperparameters that the tuning job chooses."""

    minimize: bool

    @property
    def name(self) -> str:
        return str(self.record["TrainingJobName"])

    @property
    def status(self) -> str:
        return str(self.record["TrainingJobStatus"])

    @property
    def has_ended(self) -> bool:
        return self.status in JOB_ENDED

    @property
    def is_retryable(self) -> bool:
        """Whether it failed for a reason outside the job."""
        reason = self.record.get("FailureReason", "")
        return self.status == "Failed" and reason.startswith("InternalServerError")

    @property
    def values(self) -> Values:
        """The hyperparameters that the tuning job chose for this job."""
        hyperparameters = self.record["HyperParameters"]
        return {name: value for name, value in hyperparameters.items() if name in self.tuned_names}

    @property
    def objective(self) -> float | None:
        """The last value of the objective. None while the job runs, if it failed, or if it printed
        none.
        """
        if not self.has_ended or self.status == "Failed":
            return None
        metric_name = self.record["HyperParameters"][OBJECTIVE]
        metrics = self.record.get("FinalMetricDataList", ())
        values = [metric["Value"] for metric in metrics if metric["MetricName"] == metric_name]
        return float(values[0]) if values else None

    @property
    def objective_status(self) -> str:
        if not self.has_ended:
            return "Pending"
        return "Failed" if self.objective is None else "Succeeded"

    def summarize(self) -> dict[str, Any]:
        """Return the HyperParameterTrainingJobSummary."""
        keys = ("TrainingJobName", "TrainingJobArn", "CreationTime", "TrainingStartTime",
                  "TrainingEndTime", "TrainingJobStatus", "FailureReason")  # fmt: skip
        summary = {key: self.record[key] for key in keys if key in self.record}
        if self.definition:
            summary["TrainingJobDefinitionName"] = self.definition
        if self.objective is not None:
            summary["FinalHyperParameterTuningJobObjectiveMetric"] = {
                "Type": "Minimize" if self.minimize else "Maximize",
                "MetricName": self.record["HyperParameters"][OBJECTIVE],
                "Value": self.objective,
            }
        return summary | {
            "TuningJobName": self.tuning,
            "TunedHyperParameters": self.values,
            "ObjectiveStatus": self.objective_status,
        }


def rank_results(results: Iterable[Result]) -> list[Result]:
    """Return the results that have an objective, the best first. Of equal results, the earlier
    comes first.
    """
    scored_results = [result for result in results if result.objective is not None]
    return sorted(scored_results, key=_compute_rank_key)


def _compute_rank_key(result: Result) -> float:
    """Return the objective as a number that is lower for better results."""
    assert result.objective is not None
    return result.objective if result.minimize else -result.objective


def count_statuses(results: Iterable[Result]) -> dict[str, dict[str, int]]:
    """Return TrainingJobStatusCounters and ObjectiveStatusCounters."""
    jobs = dict.fromkeys(
        ("Completed", "InProgress", "RetryableError", "NonRetryableError", "Stopped"), 0
    )
    objectives = dict.fromkeys(("Succeeded", "Pending", "Failed"), 0)
    for result in results:
        if result.status == "Failed":
            jobs["RetryableError" if result.is_retryable else "NonRetryableError"] += 1
        else:
            jobs[result.status if result.has_ended else "InProgress"] += 1
        objectives[result.objective_status] += 1
    return {"TrainingJobStatusCounters": jobs, "ObjectiveStatusCounters": objectives}


def sort_by_end(results: Iterable[Result]) -> list[Result]:
    """Return the results that have an objective, in the order in which the jobs ended."""
    return sorted(
        (result for result in results if result.objective is not None),
        key=lambda result: float(result.record["TrainingEndTime"]),
    )


def count_jobs_without_improvement(results: Iterable[Result]) -> int:
    """Return the number of jobs that ended after the last improvement of the best value by 1 %."""
    best, count = None, 0
    for result in sort_by_end(results):
        value = _compute_rank_key(result)
        if best is None or value < best - IMPROVEMENT * abs(best):
            best, count = value, 0
        else:
            best, count = min(best, value), count + 1
    return count


CONVERGENCE_JOBS = 10
ATTEMPTS = 5
"""Number of jobs without a success after which a tuning job fails
(amazon-sagemaker-examples#2437).
"""


def find_convergence_time(results: Sequence[Result]) -> float | None:
    """Return the time at which the search converged, in seconds since the epoch. Return None if it
    has not converged.
    """
    ended_results = sort_by_end(results)
    for count in range(1, len(ended_results) + 1):
        first_results = ended_results[:count]
        if count_jobs_without_improvement(first_results) >= max(
            CONVERGENCE_JOBS, 3 * len(first_results[-1].tuned_names)
        ):
            return float(first_results[-1].record["TrainingEndTime"])
    return None


def is_criterion_met(criteria: Mapping[str, Any], results: Sequence[Result]) -> bool:
    """Return whether one of the TuningJobCompletionCriteria is met."""
    target = criteria.get("TargetObjectiveMetricValue")
    if target is not None and any(_reaches_target(result, target) for result in results):
        return True
    patience = criteria.get("BestObjectiveNotImproving") or {}
    max_jobs = patience.get("MaxNumberOfTrainingJobsNotImproving")
    if max_jobs is not None and count_jobs_without_improvement(results) >= max_jobs:
        return True
    switch = (criteria.get("ConvergenceDetected") or {}).get("CompleteOnConvergence")
    return switch == "Enabled" and find_convergence_time(results) is not None


def _reaches_target(result: Result, target: float) -> bool:
    if result.objective is None:
        return False
    return result.objective <= target if result.minimize else result.objective >= target


def explain_failure(results: Sequence[Result], last: bool) -> str | None:
    """Return why the tuning job fails: no job succeeded, or none printed the objective. Return None
    if it continues.

    ``last``: no further job will start.
    """
    ended_results = [result for result in results if result.has_ended]
    if len(ended_results) < (1 if last else ATTEMPTS) or any(
        result.objective_status == "Succeeded" for result in ended_results
    ):
        return None
    failures = [result for result in ended_results if result.status == "Failed"]
    if len(failures) < len(ended_results):
        return (
            f"No objective metrics found after running {len(ended_results)} training jobs. Please "
            "ensure that the custom algorithm is emitting the objective metric as defined by the "
            "regular expression provided."
        )
    example = f"The first: {failures[0].name}: {failures[0].record.get('FailureReason', '')}"
    if last and len(ended_results) < ATTEMPTS:
        return (
            "All training jobs failed. Please take a look at the training jobs failures to get "
            f"more details. {example}"
        )
    return (
        f"No training job succeeded after {len(ended_results)} attempts. Please take a look at the "
        f"training job failures to get more details. {example}"
    )


# The training jobs of a tuning job: their CreateTrainingJob requests.

OBJECTIVE = "_tuning_objective_metric"
"""Hyperparameter with which the service tells algorithms their objective metric."""

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


def build_training_request(
    request: Mapping[str, Any], definition: Mapping[str, Any], name: str, values: Values
) -> dict[str, Any]:
    """Return the CreateTrainingJob request for a job that tries ``values``."""
    members = {key: definition[key] for key in _PASSED_MEMBERS if key in definition}
    static = definition.get("StaticHyperParameters") or {}
    metric = find_objective(request, definition)["MetricName"]
    # Each job's checkpoints go below its own name: otherwise it would start from another job's
    # checkpoints.
    if checkpoints := members.get("CheckpointConfig"):
        uri = f"{checkpoints['S3Uri'].rstrip('/')}/{name}"
        members["CheckpointConfig"] = {**checkpoints, "S3Uri": uri}
    return {
        # A ResourceConfig in ``members`` overrides this one.
        "ResourceConfig": _build_resource_config(definition),
        **members,
        "TrainingJobName": name,
        "AlgorithmSpecification": definition["AlgorithmSpecification"],
        "HyperParameters": {**static, **values, OBJECTIVE: metric},
    }


def describe_definitions(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the training definitions as Describe shows them.

    SDK v2's ``HyperparameterTuner.attach`` reads them (its integration tests pass on AWS): the
    objective is a static hyperparameter, and there is a ResourceConfig even if the request had a
    HyperParameterTuningResourceConfig.
    """

    def with_objective(definition: Mapping[str, Any]) -> dict[str, Any]:
        static = definition.get("StaticHyperParameters") or {}
        metric = find_objective(request, definition)["MetricName"]
        static = {**static, OBJECTIVE: metric}
        machines = definition.get("ResourceConfig") or _build_resource_config(definition)
        return {**definition, "StaticHyperParameters": static, "ResourceConfig": machines}

    if several := request.get("TrainingJobDefinitions"):
        return {"TrainingJobDefinitions": [with_objective(definition) for definition in several]}
    return {"TrainingJobDefinition": with_objective(request["TrainingJobDefinition"])}


def has_unused_drivers(definition: Mapping[str, Any]) -> bool:
    """Return whether SDK v3 uploaded its drivers, but no hyperparameter starts them or torchrun."""
    if has_driver_program(definition):
        return False
    channels = [channel["ChannelName"] for channel in definition.get("InputDataConfig") or ()]
    static = definition.get("StaticHyperParameters") or {}
    return "sm_drivers" in channels and "sagemaker_torch_distributed_enabled" not in static


def _build_resource_config(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Return HyperParameterTuningResourceConfig as a ResourceConfig, with the first of several
    instance types.
    """
    config = definition.get("HyperParameterTuningResourceConfig") or {}
    first = (config.get("InstanceConfigs") or [{}])[0]
    return {key: value for key, value in {**config, **first}.items() if key in _RESOURCES}


def count_instances(definition: Mapping[str, Any]) -> int:
    """Return the number of nodes of each training job."""
    machines = definition.get("ResourceConfig") or _build_resource_config(definition)
    return int(machines.get("InstanceCount", 1))


@dataclass(frozen=True, slots=True)
class TrainingDefinition:
    """An entry of TrainingJobDefinition or TrainingJobDefinitions, parsed."""

    document: dict[str, Any]
    name: str
    space: Space
    minimize: bool
    rule: Rule | None


def parse_training_definition(
    request: Mapping[str, Any], definition: dict[str, Any]
) -> TrainingDefinition:
    """Parse a training definition of a request that has been checked."""
    config = request[CONFIG]
    minimize = find_objective(request, definition)["Type"] == "Minimize"
    rule: Rule | None = None
    if config["Strategy"] == "Hyperband":
        rule = Hyperband(minimize, *resolve_resources(config, definition))
    elif config.get("TrainingJobEarlyStoppingType") == "Auto":
        rule = Median(minimize)
    space = build_space(find_ranges(request, definition))
    return TrainingDefinition(
        definition, definition.get("DefinitionName", ""), space, minimize, rule
    )
