"""Rules about whether Trainyard's loop fits into the memory of its devices.

Estimates can be wrong, so these rules only warn.
"""

from collections.abc import Iterator
from typing import Literal

from pipelines.advice.traced_shapes import StaleShapes
from pipelines.advice.training_setting import FIT, describe_memory_need, of_request
from pipelines.rules.trainyard_jobs import our_training
from trainyard.common.errors import ForesightError
from trainyard.foresight.memory import foresee
from trainyard.validate.rules.job_view import Job, member
from trainyard.validate.rules.rule import Violation, rule

SOURCE = "trainyard/foresight/memory.py; docs/foresight.md: its error against measurements"


@rule(
    "warning",
    select=our_training,
    reason="the training dies of CUDA out of memory, at its first steps or as it saves",
    fix="change what is kept in memory",
    source=SOURCE,
)
def training_runs_out_of_memory(job: Job) -> Iterator[Violation]:
    yield from _short(job, "no")


@rule(
    "warning",
    select=our_training,
    reason="it is too close to say whether the training dies of CUDA out of memory",
    fix="try some steps of it first, or change what is kept in memory",
    source=SOURCE,
)
def training_may_run_out_of_memory(job: Job) -> Iterator[Violation]:
    yield from _short(job, "unsure")


@rule(
    "warning",
    select=our_training,
    reason="whether the training fits, how long it takes and what it costs are not foreseen, "
    "though its model was traced once",
    fix="trace it again, as the message says, and commit the file; or delete it",
    source="pipelines/advice/traced_shapes.py; docs/foresight.md: In the verbs",
)
def traced_shapes_are_stale(job: Job) -> Iterator[Violation]:
    try:
        of_request(job)
    except StaleShapes as error:
        yield job.make_violation(member(job.hyperparameters_at, "workload"), str(error))
    except ForesightError:  # the model was not traced
        return


def _short(job: Job, fits: Literal["no", "unsure"]) -> Iterator[Violation]:
    """Yield a warning if the memory estimate of the job says ``fits``."""
    try:
        training = of_request(job)
    except ForesightError:  # there is no estimate
        return
    memory = foresee(training.setting, training.shapes)
    if memory.fits == fits:
        yield job.make_violation(
            job.resource("InstanceType"), describe_memory_need(training, memory), FIT
        )
