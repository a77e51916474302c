"""The cost of a job so far: its machines by the hour, from the job's own description."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from trainyard.language.definition_document import JOB_ENDED
from trainyard.language.step_types import STEP_TYPES, Job
from trainyard.plan.prices import Kind, Prices
from trainyard.runs.execution import SUMMARIES_KEY, TUNING

WAITS = ("Starting", "Pending", "LaunchingMLInstances", "PreparingTrainingStack")
"""Values of SecondaryStatus before a training job has its machines (botocore: SecondaryStatus)."""

STARTS = ("TrainingStartTime", "ProcessingStartTime", "TransformStartTime")
"""Members of Describe…Job's answer with the time at which the job began on its machines."""


def had_machines(job: Mapping[str, Any]) -> datetime | None:
    """Return the time at which the job's machines began with it; None before that, or if unknown.

    ``job`` is the answer of DescribeTrainingJob, DescribeProcessingJob or DescribeTransformJob.
    """
    for entry in job.get("SecondaryStatusTransitions", ()):
        if entry.get("Status") not in WAITS and "StartTime" in entry:
            return entry["StartTime"]
    return next((job[member] for member in STARTS if job.get(member)), None)


JOBS: Mapping[str, Job] = {kind.job.api: kind.job for kind in STEP_TYPES.values() if kind.job}
"""Kind, such as ``TrainingJob`` → its properties."""

CHARGED_KEYS = {kind.metadata_key for kind in STEP_TYPES.values() if kind.is_charged}
"""Members of a step's Metadata that name something with a price."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Time and cost of a job."""

    machines: str
    """Machines, such as ``2 × ml.m5.large``; empty if its description names none."""

    seconds: float
    """Seconds for which each of its machines is charged, so far."""

    usd: float | None
    """USD on demand, or the amount billed for a spot job; None if the machines have no price."""

    usd_a_second: float | None
    """USD per second while the job runs; 0 when it has ended."""

    estimated: bool
    """True if a price was derived and not read from AWS's list."""


def spent(kind: str, job: Mapping[str, Any], prices: Prices, now: datetime) -> Spent:
    """Compute the cost of a job.

    Machines are charged from the start of the job's own work (TrainingStartTime and the like) to
    its end. A training job's BillableTimeInSeconds counts instead, once it is there.

    Args:
        kind: ``TrainingJob``, ``ProcessingJob``, ``TransformJob`` or ``TuningJob``.
        job: the Describe operation's answer; for a tuning job that of ``execution.search``.
        now: with a time zone; a running job is charged until then.
    """
    if kind == TUNING:
        return _of_trainings(job, prices, now)
    groups = _groups(JOBS[kind], job)
    seconds = _seconds(kind, job, now)
    machine_kind = JOBS[kind].machines
    price_list: Kind = "training" if machine_kind == "training" else "processing"
    # The table has no prices for a transform's machines.
    hourly_prices = [
        None if machine_kind == "transform" else prices.cluster(price_list, *group)
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


def _of_trainings(search: Mapping[str, Any], prices: Prices, now: datetime) -> Spent:
    """Return the sum over a tuning job's training jobs."""
    definitions = search.get("TrainingJobDefinitions") or [search["TrainingJobDefinition"]]
    by_name = {entry.get("DefinitionName"): entry for entry in definitions}
    costs, spot = [], False
    for training in search[SUMMARIES_KEY]:
        definition = by_name[training.get("TrainingJobDefinitionName")]
        resources = definition.get(
            "ResourceConfig", definition.get("HyperParameterTuningResourceConfig")
        )
        costs.append(spent("TrainingJob", {**training, "ResourceConfig": resources}, prices, now))
        # The summaries lack what a spot job was billed, so its price on demand is an estimate.
        spot = spot or definition.get("EnableManagedSpotTraining", False)
    machines = " or ".join(dict.fromkeys(cost.machines for cost in costs))
    unknown = any(cost.usd is None for cost in costs)
    return Spent(
        machines=f"{len(costs)} trainings on {machines}" if costs else "",
        seconds=sum(cost.seconds for cost in costs),
        usd=None if unknown else sum(cost.usd or 0.0 for cost in costs),
        usd_a_second=None if unknown else sum(cost.usd_a_second or 0.0 for cost in costs),
        estimated=spot or any(cost.estimated for cost in costs),
    )


def _seconds(kind: str, job: Mapping[str, Any], now: datetime) -> float:
    # Less than the time between start and end with spot instances (API reference,
    # DescribeTrainingJob).
    if (billable_seconds := job.get("BillableTimeInSeconds")) is not None:
        return float(billable_seconds)
    work = kind.removesuffix("Job")
    began = job.get(f"{work}StartTime")
    if began is None:
        return 0.0
    is_over = job.get(f"{kind}Status") in JOB_ENDED
    end = job.get(f"{work}EndTime") or (job.get("LastModifiedTime") if is_over else None) or now
    return max(0.0, float((end - began).total_seconds()))


def _groups(kind: Job, job: Mapping[str, Any]) -> Sequence[tuple[str, int, float]]:
    """Return (instance type, count, GB of storage each) of each group."""
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
