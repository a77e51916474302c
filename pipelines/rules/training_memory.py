"""Rules about whether Trainyard's loop fits into the memory of its devices.

Estimates can be wrong, so these rules only warn.
"""

from collections.abc import Iterator
from typing import Literal

from pipelines.advice.traced_shapes import StaleShapes
from pipelines.advice.training_setting import FIT, derive_request_training, describe_memory_need
from pipelines.rules.trainyard_jobs import select_our_trainings
from trainyard.common.errors import ForesightError
from trainyard.foresight.memory import predict_memory
from trainyard.validate.rules.job_view import Job, join_member
from trainyard.validate.rules.rule import Violation, rule

SOURCE = "trainyard/foresight/memory.py; docs/foresight.md: its error against measurements"


@rule(
    "warning",
    select=select_our_trainings,
    reason="the training runs out of CUDA memory, in its first steps or while it saves",
    fix="change what is kept in memory",
    source=SOURCE,
)
def training_runs_out_of_memory(job: Job) -> Iterator[Violation]:
    yield from _check_memory(job, "no")


@rule(
    "warning",
    select=select_our_trainings,
    reason="the estimate is too close to the limit to tell whether the training runs out of CUDA "
    "memory",
    fix="try a few training steps first, or change what is kept in memory",
    source=SOURCE,
)
def training_may_run_out_of_memory(job: Job) -> Iterator[Violation]:
    yield from _check_memory(job, "unsure")


@rule(
    "warning",
    select=select_our_trainings,
    reason="whether the training fits, how long it takes and what it costs cannot be predicted, "
    "although its model was traced once",
    fix="trace the model again, as the message says, and commit the file; or delete the file",
    source="pipelines/advice/traced_shapes.py; docs/foresight.md: In the verbs",
)
def traced_shapes_are_stale(job: Job) -> Iterator[Violation]:
    try:
        derive_request_training(job)
    except StaleShapes as error:
        yield job.make_violation(join_member(job.hyperparameters_path, "workload"), str(error))
    except ForesightError:  # the model was not traced
        return


def _check_memory(job: Job, fits: Literal["no", "unsure"]) -> Iterator[Violation]:
    """Yield a warning if the job's memory estimate has the given value of ``fits``."""
    try:
        training = derive_request_training(job)
    except ForesightError:  # there is no estimate
        return
    memory = predict_memory(training.setting, training.shapes)
    if memory.fits == fits:
        yield job.make_violation(
            job.build_resource_path("InstanceType"), describe_memory_need(training, memory), FIT
        )
