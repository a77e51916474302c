"""Estimate the training steps that run our loop, for plan and budget."""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from pipelines.advice.training_setting import LoopTraining, describe_memory_need, of_request, remedy
from trainyard.common.errors import ForesightError
from trainyard.foresight import measured_corrections, memory, model_shapes
from trainyard.foresight.cloud_machines import machines
from trainyard.foresight.interrupted_run import Run
from trainyard.foresight.interrupted_run import foresee as foresee_run
from trainyard.foresight.interval import Spread
from trainyard.foresight.measured_corrections import Calibration
from trainyard.foresight.memory import Memory
from trainyard.foresight.step_time import Time
from trainyard.plan.run_cost import Foreseen, Foresight, NotForeseen
from trainyard.runs.run_display import duration
from trainyard.validate.outer_form import read
from trainyard.validate.rules.job_view import Job, training

LONGEST = 28 * 24 * 60
"""Most minutes that a training job may run (service quotas: "longest run time for a
training job").
"""

GIVEN_UP = 50
"""Multiple of its undisturbed duration after which a training that never ends is
assumed stopped.
"""


def foresee(document: Mapping[str, Any], region: str) -> Foresight:
    """Return training step → its forecast, with parameters at their defaults.

    Raises:
        ForesightError: the calibration cannot be read.
    """
    calibration = measured_corrections.read()
    readable, _ = read(json.dumps(document))
    jobs = () if readable is None else training(readable)
    trainings = (job for job in jobs if job.step.type == "Training")
    return {job.step.name: _foresee(job, calibration, region) for job in trainings}


def _foresee(job: Job, calibration: Calibration, region: str) -> Foreseen | NotForeseen:
    try:
        training = of_request(job)
    except ForesightError as error:
        return NotForeseen(str(error))
    time = calibration.time(training.setting, training.shapes)
    memory_need = memory.foresee(training.setting, training.shapes)
    mode = "spot" if job.spot else "on demand"
    # Start, steps, saves and interruptions. The machines are without a price: a plan has its own.
    run = foresee_run(
        machines(str(job.instance_type), job.nodes, mode, region=region),
        (training.shapes or model_shapes.from_setting(training.setting)).parameters,
        time.step_seconds,
        training.steps,
        interval_seconds=training.loop.checkpoint_interval * time.step_seconds.p50,
    )
    seconds = _charged_seconds(training, time, run)
    return Foreseen(
        seconds=seconds,
        grounds=_grounds(training, time, calibration.count(training.setting.gpu)),
        parts=time.parts,
        remarks=(
            _describe_end(job, run),
            *_fits(training, memory_need),
            *(f"assumes {assumption}" for assumption in training.assumptions),
        ),
        warnings=(*_never(run), *_too_slow(job, seconds), *_too_large(training, memory_need)),
    )


def _charged_seconds(training: LoopTraining, time: Time, run: Run) -> Spread:
    """Return the seconds for which the machines run; for a run that never ends, until it is given
    up.
    """
    hours = run.charged_hours
    ends = [value * 3600 for value in (hours.p10, hours.p50, hours.p90)]
    most = max([*filter(math.isfinite, ends), GIVEN_UP * training.steps * time.step_seconds.p90])
    return Spread(*(value if math.isfinite(value) else most for value in ends))


def _never(run: Run) -> Iterator[str]:
    if math.isinf(run.hours.p90):
        yield (
            "may never end: an interruption undoes more than is saved until the next; lower "
            "train.loop.checkpoint_interval, or take no spot machines"
        )


def _describe_end(job: Job, run: Run) -> str:
    """Return when the training is done, including the waits, and why that takes longer than it
    runs.
    """
    mode, lost = "on spot" if job.spot else "on demand", run.interruptions
    p10, p50, p90 = (
        duration(hours * 3600) if math.isfinite(hours) else "never"
        for hours in (run.hours.p10, run.hours.p50, run.hours.p90)
    )
    return (
        f"{mode} is done after {p50} ({p10} – {p90}) with the waits for machines; "
        f"{lost.p50:,.1f} interruptions expected ({lost.p10:,.1f} – {lost.p90:,.1f})"
    )


def _grounds(training: LoopTraining, time: Time, trainings: int) -> str:
    """Return the basis of a forecast, as ``20,000 steps of 1.29 s (1.10 – 1.51), 41% MFU, with
    start, saves …``.
    """
    step = time.step_seconds
    correction = (
        f"; corrected by {trainings} measured on {training.setting.gpu}" if trainings else ""
    )
    return (
        f"{training.steps:,} steps of {step.p50:.3g} s ({step.p10:.3g} – {step.p90:.3g}), "
        f"{time.mfu:.0%} MFU, with start, saves and what interruptions undo{correction}"
    )


def _too_slow(job: Job, seconds: Spread) -> Iterator[str]:
    """Yield a warning if the training's time limit may stop it."""
    limit = job.number("StoppingCondition.MaxRuntimeInSeconds")
    if limit is None or seconds.p90 <= limit:
        return
    sure = "will be" if seconds.p10 > limit else "may be"
    minutes = -(-seconds.p90 // 60)
    longer = f"set train.max_runtime_minutes to {minutes:.0f} at least, or "
    yield (
        f"{sure} stopped by its time limit of {duration(limit)} before its last step: "
        f"{longer if minutes <= LONGEST else ''}take fewer steps or more machines"
    )


def _fits(training: LoopTraining, memory_need: Memory) -> Iterator[str]:
    if memory_need.fits == "yes":
        yield f"fits: {describe_memory_need(training, memory_need)}"


def _too_large(training: LoopTraining, memory_need: Memory) -> Iterator[str]:
    if memory_need.fits != "yes":
        prospect = "will run" if memory_need.fits == "no" else "may run"
        yield (
            f"{prospect} out of memory: {describe_memory_need(training, memory_need)}; "
            f"{remedy(training)}"
        )
