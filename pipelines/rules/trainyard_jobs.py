"""Find training jobs that run Trainyard's loop, whose settings are in the hyperparameters."""

from pydantic import ValidationError

from pipelines.advice.training_setting import build_largest_hyperparameters
from training.config import TrainConfig
from trainyard.language.definition_document import Document
from trainyard.language.evaluation import iter_unknowns
from trainyard.validate.rules.job_view import Job, select_training_jobs

MARKS = ("workload", "strategy", "global_batch", "micro_batch")  # only our loop has all of them


def select_our_trainings(document: Document) -> list[Job]:
    """Return our loop's training jobs with known or searched hyperparameters, for ``select``."""
    ours = []
    for job in select_training_jobs(document):
        values = build_largest_hyperparameters(job)
        if all(mark in values for mark in MARKS) and not any(iter_unknowns(values)):
            ours.append(job)
    return ours


def read_settings(job: Job) -> TrainConfig | None:
    """Return the loop's settings, with parameters at their defaults; None if they are invalid."""
    try:
        return parse_loop_settings(job)
    except ValidationError:
        return None


def parse_loop_settings(job: Job) -> TrainConfig:
    """Return the loop's settings, as ``read_settings`` does, but raise ValidationError if
    invalid.
    """
    fields, values = TrainConfig.model_fields, build_largest_hyperparameters(job)
    return TrainConfig(**{k: v for k, v in values.items() if k in fields})


def count_ranks(job: Job) -> int | None:
    """Return the number of ranks on all nodes; None if the nodes or their ranks are not known."""
    if not job.machine or not job.nodes:
        return None
    return job.nodes * (job.ranks_per_node or job.machine.accelerators or 1)
