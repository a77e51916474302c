"""Compute the cost of a job so far, from the hours of its machines in the job's description."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from trainyard.language.definition_document import JOB_ENDED
from trainyard.language.step_types import STEP_TYPES, Job
from trainyard.plan.prices import Kind, Prices
from trainyard.runs.execution import SUMMARIES_KEY, TUNING

WAITS = ("Starting", "Pending", "LaunchingMLInstances", "PreparingTrainingStack")
"""Values of a training job's SecondaryStatus before it has its machines (botocore:
SecondaryStatus)."""

STARTS = ("TrainingStartTime", "ProcessingStartTime", "TransformStartTime")
"""Members of Describe…Job's response with the time at which the job started on its machines."""


def find_machine_start(job: Mapping[str, Any]) -> datetime | None:
    """Return the time at which the job got its machines; None before that, or if it is not known.

    ``job`` is the response of DescribeTrainingJob, DescribeProcessingJob or DescribeTransformJob.
    """
    for entry in job.get("SecondaryStatusTransitions", ()):
        if entry.get("Status") not in WAITS and "StartTime" in entry:
            return entry["StartTime"]
    return next((job[member] for member in STARTS if job.get(member)), None)


JOBS: Mapping[str, Job] = {kind.job.api: kind.job for kind in STEP_TYPES.values() if kind.job}
"""Mapping of a kind of job, such as ``TrainingJob``, to its properties."""

CHARGED_KEYS = {kind.metadata_key for kind in STEP_TYPES.values() if kind.is_charged}
"""Members of a step's Metadata that name a job or another thing that is charged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Time and cost of a job so far."""

    machines: str
    """Machines, such as ``2 × ml.m5.large``; empty if the job's description names none."""

    seconds: float
    """Seconds for which each of its machines is charged, so far."""

    usd: float | None
    """USD for these seconds at on-demand prices; of a spot job only the billed seconds count. None
    if the machines have no price."""

    usd_a_second: float | None
    """USD per second while the job runs; 0 before it has started and after it has ended. None if
    the machines have no price."""

    estimated: bool
    """True if a price was derived and not read from AWS's list."""


def compute_job_cost(kind: str, job: Mapping[str, Any], prices: Prices, now: datetime) -> Spent:
    """Compute the cost of a job so far.

    Machines are charged from the start of the job's own work (such as TrainingStartTime) to its
    end. If a training job has BillableTimeInSeconds, these seconds count instead.

    Args:
        kind: ``TrainingJob``, ``ProcessingJob``, ``TransformJob`` or ``TuningJob``.
        job: response of the Describe operation; for a tuning job the result of
            ``execution.describe_tuning_job``.
        prices: prices of the job's region.
        now: time until which a running job is charged; with a time zone.
    """
    if kind == TUNING:
        return _sum_training_costs(job, prices, now)
    groups = _list_instance_groups(JOBS[kind], job)
    seconds = _count_charged_seconds(kind, job, now)
    machine_kind = JOBS[kind].machines
    price_list: Kind = "training" if machine_kind == "training" else "processing"
    # The price table has no prices for the machines of transform jobs.
    hourly_prices = [
        None if machine_kind == "transform" else prices.compute_cluster(price_list, *group)
        for group in groups
    ]
    known_prices = [price for price in hourly_prices if price is not None]
    rate = (
        sum(price.usd for price in known_prices) / 3600
        if hourly_prices and len(known_prices) == len(hourly_prices)
        else None
    )
    is_over = job.get(f"{kind}Status") in JOB_ENDED
    return Spent(
        machines=" + ".join(f"{group[1]} × {group[0]}" for group in groups),
        seconds=seconds,
        usd=None if rate is None else rate * seconds,
        usd_a_second=rate and (0.0 if is_over or not seconds else rate),
        estimated=any(price.is_estimated for price in known_prices),
    )


def _sum_training_costs(search: Mapping[str, Any], prices: Prices, now: datetime) -> Spent:
    """Return the sum over a tuning job's training jobs; ``search`` is the result of
    ``execution.describe_tuning_job``.
    """
    definitions = search.get("TrainingJobDefinitions") or [search["TrainingJobDefinition"]]
    by_name = {entry.get("DefinitionName"): entry for entry in definitions}
    costs, spot = [], False
    for training in search[SUMMARIES_KEY]:
        definition = by_name[training.get("TrainingJobDefinitionName")]
        resources = definition.get(
            "ResourceConfig", definition.get("HyperParameterTuningResourceConfig")
        )
        costs.append(
            compute_job_cost("TrainingJob", {**training, "ResourceConfig": resources}, prices, now)
        )
        # The summaries do not have the billed seconds of a spot job, so its cost is an estimate.
        spot = spot or definition.get("EnableManagedSpotTraining", False)
    machines = " or ".join(dict.fromkeys(cost.machines for cost in costs))
    unknown = any(cost.usd is None for cost in costs)
    return Spent(
        machines=f"{len(costs)} training jobs on {machines}" if costs else "",
        seconds=sum(cost.seconds for cost in costs),
        usd=None if unknown else sum(cost.usd or 0.0 for cost in costs),
        usd_a_second=None if unknown else sum(cost.usd_a_second or 0.0 for cost in costs),
        estimated=spot or any(cost.estimated for cost in costs),
    )


def _count_charged_seconds(kind: str, job: Mapping[str, Any], now: datetime) -> float:
    """Return the seconds for which a job's machines are charged so far; 0 before it has them."""
    # With spot instances, the billed time is less than the time between start and end (API
    # reference, DescribeTrainingJob).
    if (billable_seconds := job.get("BillableTimeInSeconds")) is not None:
        return float(billable_seconds)
    work = kind.removesuffix("Job")
    began = job.get(f"{work}StartTime")
    if began is None:
        return 0.0
    is_over = job.get(f"{kind}Status") in JOB_ENDED
    end = job.get(f"{work}EndTime") or (job.get("LastModifiedTime") if is_over else None) or now
    return max(0.0, float((end - began).total_seconds()))


def _list_instance_groups(kind: Job, job: Mapping[str, Any]) -> Sequence[tuple[str, int, float]]:
    """Return (instance type, count, GB of storage per instance) of each instance group of a job.

    A homogeneous cluster counts as one group.
    """
    config: Any = job
    for name in kind.instances.split("."):
        config = config.get(name) or {}
    volume = config.get("VolumeSizeInGB") or 0
    members = config.get("InstanceGroups") or [config]
    return [
        (group["InstanceType"], group.get("InstanceCount") or 1, volume)
        for group in members
        if group.get("InstanceType")
    ]
