"""What stopping trainings early saved in a pipeline's last search."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from statistics import median
from typing import Any

from trainyard.plan.execution_history import History
from trainyard.plan.plan_display import dollars
from trainyard.plan.prices import Prices
from trainyard.runs.execution import SUMMARIES_KEY, TUNING, search
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
    tuning_job = search(sagemaker, last.job)
    stop_count, seconds = sum_savings(tuning_job[SUMMARIES_KEY])
    if not seconds:
        return
    cost = spent(TUNING, tuning_job, prices, datetime.now(UTC))
    rate = cost.usd / cost.seconds if cost.usd else None
    usd = f", {dollars(rate * seconds, is_estimate=True)}" if rate else ""
    yield (
        f"{STEP}: the last search stopped {stop_count} of {len(tuning_job[SUMMARIES_KEY])} "
        "trainings early, and "
        f"saved {duration(seconds)} of training{usd}: the others' median, less what these took"
    )


def sum_savings(trainings: Sequence[Mapping[str, Any]]) -> tuple[int, float]:
    """Return how many trainings were stopped early, and the seconds by which they are shorter than
    the median of those that came to their end; 0 where none did.

    ``trainings``: TrainingJobSummaries of ListTrainingJobsForHyperParameterTuningJob.
    """
    durations: dict[str, list[float]] = {"Completed": [], "Stopped": []}
    for training in trainings:
        if training.get("TrainingJobStatus") in durations and "TrainingStartTime" in training:
            seconds = (training["TrainingEndTime"] - training["TrainingStartTime"]).total_seconds()
            durations[training["TrainingJobStatus"]].append(seconds)
    median_seconds = median(durations["Completed"]) if durations["Completed"] else 0.0
    return len(durations["Stopped"]), sum(
        max(0.0, median_seconds - seconds) for seconds in durations["Stopped"]
    )
