"""What stopping trainings early saved in a pipeline's last search."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from statistics import median
from typing import Any

from trainyard.plan.execution_history import History
from trainyard.plan.plan_display import dollars
from trainyard.plan.prices import Prices
from trainyard.runs.execution import SEARCHED, TUNING, search
from trainyard.runs.job_cost import spent
from trainyard.runs.step_table import duration

STEP = "Tune"


def remarks(sagemaker: Any, history: History, prices: Prices) -> Iterator[str]:
    """Yield a plan's line on the last search that the plan has read of; nothing without one, or
    where that saved no time.
    """
    ran = (run.steps[STEP] for run in history.runs if STEP in run.steps)
    last = next((step for step in ran if step.source is None), None)
    if last is None:
        return
    found = search(sagemaker, last.job)
    stopped, seconds = saved(found[SEARCHED])
    if not seconds:
        return
    cost = spent(TUNING, found, prices, datetime.now(UTC))
    rate = cost.usd / cost.seconds if cost.usd else None
    usd = f", {dollars(rate * seconds, estimated=True)}" if rate else ""
    yield (
        f"{STEP}: the last search stopped {stopped} of {len(found[SEARCHED])} trainings early, and "
        f"saved {duration(seconds)} of training{usd}: the others' median, less what these took"
    )


def saved(trainings: Sequence[Mapping[str, Any]]) -> tuple[int, float]:
    """Return how many trainings were stopped early, and the seconds by which they are shorter than
    the median of those that came to their end; 0 where none did.

    ``trainings``: TrainingJobSummaries of ListTrainingJobsForHyperParameterTuningJob.
    """
    taken: dict[str, list[float]] = {"Completed": [], "Stopped": []}
    for one in trainings:
        if one.get("TrainingJobStatus") in taken and "TrainingStartTime" in one:
            seconds = (one["TrainingEndTime"] - one["TrainingStartTime"]).total_seconds()
            taken[one["TrainingJobStatus"]].append(seconds)
    whole = median(taken["Completed"]) if taken["Completed"] else 0.0
    return len(taken["Stopped"]), sum(max(0.0, whole - seconds) for seconds in taken["Stopped"])
