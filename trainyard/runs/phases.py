"""When a step's machines were there: what came before is waiting, for capacity or a place."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

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
