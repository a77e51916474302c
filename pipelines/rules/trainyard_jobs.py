"""Training jobs that run Trainyard's loop, whose settings stand in the hyperparameters."""

from typing import Any

from pydantic import ValidationError

from training.config import TrainConfig
from trainyard.language.document import UNKNOWN, Document
from trainyard.validate.rules.jobs import Job, as_list, known_text, training

MARKS = ("workload", "strategy", "global_batch", "micro_batch")
PROCESSES = "PET_NPROC_PER_NODE"
"""Where a definition says how many processes a node has; without it, one a GPU."""

SHARD = ["/opt/ml/processing/input/code/steps/container.sh", "shard"]
"""Our shard step's entry point, without the shell before it."""


def our_training(document: Document) -> list[Job]:
    """For ``over``: training jobs with our hyperparameters, all of them known before the run."""
    return [job for job in training(document) if _is_ours(job.hyperparameters)]


def shards(job: Job) -> bool:
    """Whether it is our shard step: its instances read the same data, and pack parts of it."""
    return as_list(job.get("AppSpecification.ContainerEntrypoint"))[-2:] == SHARD


def _is_ours(values: dict[str, Any]) -> bool:
    return all(mark in values for mark in MARKS) and UNKNOWN not in values.values()


def settings(job: Job) -> TrainConfig | None:
    """The loop's settings with parameters at their defaults; None when they are wrong."""
    try:
        return parse(job)
    except ValidationError:
        return None


def parse(job: Job) -> TrainConfig:
    """As ``settings``, raising pydantic's ValidationError."""
    known = TrainConfig.model_fields
    return TrainConfig(**{k: v for k, v in job.hyperparameters.items() if k in known})


def ranks_per_node(job: Job) -> int | None:
    """Processes on each node, as the environment says; None when it does not."""
    text = known_text(job.environment.get(PROCESSES)) or ""
    return int(text) if text.isdecimal() else None


def world(job: Job) -> int | None:
    """Ranks in all; None when the number of nodes, or of ranks on one, is not known."""
    if not job.machine or not job.nodes:
        return None
    return job.nodes * (ranks_per_node(job) or job.machine.accelerators or 1)
