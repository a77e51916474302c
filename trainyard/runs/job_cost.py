"""What a job has cost so far: its machines by the hour, as its own description tells them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from trainyard.language.statuses import JOB_ENDED
from trainyard.language.step_types import STEP_TYPES, Job
from trainyard.plan.prices import HOURS_A_MONTH, Kind, Prices

WAITS = ("Starting", "Pending", "LaunchingMLInstances", "PreparingTrainingStack")
"""Values of SecondaryStatus before a training job has its machines (botocore: SecondaryStatus)."""

STARTS = ("TrainingStartTime", "ProcessingStartTime", "TransformStartTime")
"""Members of Describe…Job's answer that say when the job began on its machines."""


def had_machines(job: Mapping[str, Any]) -> datetime | None:
    """When the job's machines began with it; None while they have not, or where nobody knows.

    ``job`` is what DescribeTrainingJob, DescribeProcessingJob or DescribeTransformJob answers.
    """
    for entry in job.get("SecondaryStatusTransitions", ()):
        if entry.get("Status") not in WAITS and "StartTime" in entry:
            return entry["StartTime"]
    return next((job[member] for member in STARTS if job.get(member)), None)


JOBS: Mapping[str, Job] = {kind.job.api: kind.job for kind in STEP_TYPES.values() if kind.job}
"""``TrainingJob`` → what there is to know of such jobs."""

CHARGED = {kind.metadata_key for kind in STEP_TYPES.values() if kind.charged}
"""Members of a step's Metadata that name something with a price."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """The time and the money of one job."""

    machines: str
    """``2 × ml.m5.large``; empty where its description names none."""

    seconds: float
    """For which each of its machines is charged, so far."""

    usd: float | None
    """On demand, or what a spot job was billed; None where there is no price for the machines."""

    usd_a_second: float | None
    """By which ``usd`` grows while the job runs; 0 when it has ended."""

    estimated: bool
    """Whether a price was derived and not read from AWS's list."""


def spent(kind: str, job: Mapping[str, Any], prices: Prices, now: datetime) -> Spent:
    """What a job has cost.

    Machines are charged from when the job's own work began (TrainingStartTime and the like) to its
    end. A training job's BillableTimeInSeconds counts instead, once it is there: it is less with
    spot instances (API reference, DescribeTrainingJob).

    Args:
        kind: ``TrainingJob``, ``ProcessingJob`` or ``TransformJob``.
        job: the Describe operation's answer.
        now: with a time zone; what runs is charged until then.
    """
    groups = _groups(JOBS[kind], job)
    seconds = _seconds(kind, job, now)
    each = [_hourly(JOBS[kind], group, prices) for group in groups]
    known = [price for price in each if price is not None]
    rate = sum(usd for usd, _ in known) / 3600 if each and len(known) == len(each) else None
    over = job.get(f"{kind}Status") in JOB_ENDED
    return Spent(
        machines=" + ".join(f"{group[1]} × {group[0]}" for group in groups),
        seconds=seconds,
        usd=None if rate is None else rate * seconds,
        usd_a_second=rate and (0.0 if over or not seconds else rate),
        estimated=any(estimated for _, estimated in known),
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
    """(instance type, how many, GB of storage each has)."""
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


def _hourly(kind: Job, group: tuple[str, int, float], prices: Prices) -> tuple[float, bool] | None:
    """USD an hour of a group of machines with their disks, and whether that is derived."""
    if kind.machines == "transform":  # of which the table has no prices
        return None
    instance_type, count, volume = group
    machine = prices.hourly(_list(kind), instance_type)
    if machine is None:
        return None
    disk = prices.storage(_list(kind))
    disks = disk.usd * volume / HOURS_A_MONTH if disk else 0.0
    return count * (machine.usd + disks), machine.estimated or bool(disk and disk.estimated)


def _list(kind: Job) -> Kind:
    return "training" if kind.machines == "training" else "processing"
