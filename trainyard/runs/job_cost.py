"""The cost of a job so far: its machines by the hour, from the job's own description."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from trainyard.language.statuses import JOB_ENDED
from trainyard.language.step_types import STEP_TYPES, Job
from trainyard.plan.prices import Price, Prices
from trainyard.runs.execution import SEARCHED, TUNING

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

CHARGED = {kind.metadata_key for kind in STEP_TYPES.values() if kind.charged}
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
    its end. A training job's BillableTimeInSeconds counts instead, once it is there: it is less
    with spot instances (API reference, DescribeTrainingJob).

    Args:
        kind: ``TrainingJob``, ``ProcessingJob``, ``TransformJob`` or ``TuningJob``.
        job: the Describe operation's answer; for a tuning job that of ``execution.search``.
        now: with a time zone; a running job is charged until then.
    """
    if kind == TUNING:
        return _of_trainings(job, prices, now)
    groups = _groups(JOBS[kind], job)
    seconds = _seconds(kind, job, now)
    each = [_hourly(JOBS[kind], group, prices) for group in groups]
    known = [price for price in each if price is not None]
    rate = sum(price.usd for price in known) / 3600 if each and len(known) == len(each) else None
    over = job.get(f"{kind}Status") in JOB_ENDED
    return Spent(
        machines=" + ".join(f"{group[1]} × {group[0]}" for group in groups),
        seconds=seconds,
        usd=None if rate is None else rate * seconds,
        usd_a_second=rate and (0.0 if over or not seconds else rate),
        estimated=any(price.estimated for price in known),
    )


def _of_trainings(search: Mapping[str, Any], prices: Prices, now: datetime) -> Spent:
    """Return the sum over a tuning job's training jobs.

    Their summaries lack what a spot job was billed, so its price on demand is an estimate.
    """
    definitions = search.get("TrainingJobDefinitions") or [search["TrainingJobDefinition"]]
    by_name = {one.get("DefinitionName"): one for one in definitions}
    each, spot = [], False
    for training in search[SEARCHED]:
        definition = by_name[training.get("TrainingJobDefinitionName")]
        where = definition.get(
            "ResourceConfig", definition.get("HyperParameterTuningResourceConfig")
        )
        each.append(spent("TrainingJob", {**training, "ResourceConfig": where}, prices, now))
        spot = spot or definition.get("EnableManagedSpotTraining", False)
    machines = " or ".join(dict.fromkeys(one.machines for one in each))
    unknown = any(one.usd is None for one in each)
    return Spent(
        machines=f"{len(each)} trainings on {machines}" if each else "",
        seconds=sum(one.seconds for one in each),
        usd=None if unknown else sum(one.usd or 0.0 for one in each),
        usd_a_second=None if unknown else sum(one.usd_a_second or 0.0 for one in each),
        estimated=spot or any(one.estimated for one in each),
    )


def _seconds(kind: str, job: Mapping[str, Any], now: datetime) -> float:
    if (billed := job.get("BillableTimeInSeconds")) is not None:
        return float(billed)
    work = kind.removesuffix("Job")
    began = job.get(f"{work}StartTime")
    if began is None:
        return 0.0
    over = job.get(f"{kind}Status") in JOB_ENDED
    end = job.get(f"{work}EndTime") or (job.get("LastModifiedTime") if over else None) or now
    return max(0.0, float((end - began).total_seconds()))


def _groups(kind: Job, job: Mapping[str, Any]) -> Sequence[tuple[str, int, float]]:
    """Return (instance type, count, GB of storage each) of each group."""
    where: Any = job
    for name in kind.instances.split("."):
        where = where.get(name) or {}
    volume = where.get("VolumeSizeInGB") or 0
    members = where.get("InstanceGroups") or [where]
    return [
        (one["InstanceType"], one.get("InstanceCount") or 1, volume)
        for one in members
        if one.get("InstanceType")
    ]


def _hourly(kind: Job, group: tuple[str, int, float], prices: Prices) -> Price | None:
    """Return USD per hour of a group of machines with their disks."""
    if kind.machines == "transform":  # the table has no prices for it
        return None
    return prices.cluster("training" if kind.machines == "training" else "processing", *group)
