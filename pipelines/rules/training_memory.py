"""Rules about whether Trainyard's loop fits into the memory of its devices.

Estimates can be wrong, so these rules only warn.
"""

from collections.abc import Iterator
from typing import Literal

from pipelines.advice.traced_shapes import StaleShapes
from pipelines.advice.training_setting import FIT, derive_request_training, describe_memory_need
from pipelines.rules.trainyard_jobs import select_our_trainings
from trainyard.common.errors import ForesightError
from trainyard.foresight.memory import foresee
from trainyard.validate.rules.job_view import Job, join_member
from trainyard.validate.rules.rule import Violation, rule

SOURCE = "trainyard/foresight/memory.py; docs/foresight.md: its error against measurements"


@rule(
    "warning",
    select=select_our_trainings,
    reason="the training dies of CUDA out of memory, at its first steps or as it saves",
    fix="change what is kept in memory",
    source=SOURCE,
)
def training_runs_out_of_memory(job: Job) -> Iterator[Violation]:
    yield from _check_memory(job, "no")


@rule(
    "warning",
    select=select_our_trainings,
    reason="it is too close to say whether the training dies of CUDA out of memory",
    fix="try some steps of it first, or change what is kept in memory",
    source=SOURCE,
)
def training_may_run_out_of_memory(job: Job) -> Iterator[Violation]:
    yield from _check_memory(job, "unsure")


@rule(
    "warning",
    select=select_our_trainings,
    reason="whether the training fits, how long it takes and what it costs are not foreseen, "
    "though its model was traced once",
    fix="trace it again, as the message says, and commit the file; or delete it",
    source="pipelines/advice/traced_shapes.py; docs/foresight.md: In the verbs",
)
def traced_shapes_are_stale(job: Job) -> Iterator[Violation]:
    try:
        derive_request_training(job)
    except StaleShapes as error:
        yield job.make_violation(join_member(job.hyperparameters_at, "workload"), str(error))
    except ForesightError:  # the model was not traced
        return


def _check_memory(job: Job, fits: Literal["no", "unsure"]) -> Iterator[Violation]:
    """Yield a warning if the memory estimate of the job says ``fits``."""
    try:
        training = derive_request_training(job)
    except ForesightError:  # there is no estimate
        return
    memory = foresee(training.setting, training.shapes)
    if memory.fits == fits:
        yield job.make_violation(
            job.build_resource_path("InstanceType"), describe_memory_need(training, memory), FIT
        )
