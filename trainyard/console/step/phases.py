"""Where the time of a job went: waiting for machines, downloading, training, uploading."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from trainyard.console.step.attempts import ended
from trainyard.language.statuses import JOB_ENDED

WORDS = {
    "Starting": "waiting for machines",
    "Pending": "waiting for machines",
    "LaunchingMLInstances": "waiting for machines",
    "PreparingTrainingStack": "preparing the container",
    "DownloadingTrainingImage": "downloading the image",
    "Downloading": "downloading the data",
    "Training": "training",
    "Uploading": "uploading the model",
    "Stopping": "stopping",
    "Interrupted": "interrupted (spot)",
    "Restarting": "restarting",
    "Updating": "updating",
}
"""SecondaryStatus of a training job → what it does meanwhile (API reference, DescribeTrainingJob).
"""


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a job's time."""

    name: str
    status: str
    """SageMaker's own word."""

    started: datetime
    ended: datetime | None
    message: str = ""


def phases(job: Mapping[str, Any], kind: str) -> list[Phase]:
    """The job's phases in their order; none where its description tells none."""
    if transitions := job.get("SecondaryStatusTransitions"):
        found = [_told(one) for one in transitions]
        return [one for one in found if one and one.status not in JOB_ENDED]
    return _of_times(job, kind)


def _told(transition: Mapping[str, Any]) -> Phase | None:
    status, started = transition.get("Status", ""), transition.get("StartTime")
    if started is None:
        return None
    message = transition.get("StatusMessage", "")
    return Phase(
        WORDS.get(status, status.lower()), status, started, transition.get("EndTime"), message
    )


def _of_times(job: Mapping[str, Any], kind: str) -> list[Phase]:
    """A processing or transform job tells when it was created, started and ended."""
    created = job.get("CreationTime")
    if created is None:
        return []
    over = job.get(f"{kind}Status") in JOB_ENDED
    end = ended(job, kind) if over else None
    began = job.get(f"{kind.removesuffix('Job')}StartTime")
    waiting = Phase("waiting for machines", "Starting", created, began or end)
    if began is None:
        return [waiting]
    return [waiting, Phase("running", "InProgress", began, end)]


def shares(found: Sequence[Phase], now: datetime) -> list[tuple[Phase, float, float]]:
    """(phase, where it begins, how long it is), both as shares of the whole, from 0 to 1."""
    if not found:
        return []
    began = found[0].started
    whole = max(((one.ended or now) - began).total_seconds() for one in found)
    if whole <= 0:
        return []
    return [
        (
            one,
            (one.started - began).total_seconds() / whole,
            ((one.ended or now) - one.started).total_seconds() / whole,
        )
        for one in found
    ]
