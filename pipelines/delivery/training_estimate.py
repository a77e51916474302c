"""Estimate the training steps that run our loop, for plan and budget."""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from pipelines.advice.training_setting import (
    FIT,
    LoopTraining,
    derive_request_training,
    describe_memory_need,
)
from trainyard.common.errors import ForesightError
from trainyard.foresight import measured_corrections, memory, model_shapes
from trainyard.foresight.cloud_machines import make_machines
from trainyard.foresight.interrupted_run import Run
from trainyard.foresight.interrupted_run import predict_interrupted_run as foresee_run
from trainyard.foresight.interval import Spread
from trainyard.foresight.measured_corrections import Calibration
from trainyard.foresight.step_time import Time
from trainyard.plan.run_cost import Foreseen, Foresight, NotForeseen
from trainyard.runs.run_display import format_duration
from trainyard.validate.rules.job_view import Job, select_training_jobs
from trainyard.validate.top_level_structure import read_definition

LONGEST = 28 * 24 * 60
"""Maximum runtime of a training job in minutes (service quotas: "longest run time for a
training job").
"""

GIVEN_UP = 50
"""A training run that never ends is assumed to be stopped after this multiple of its duration
without interruptions.
"""


def predict_trainings(document: Mapping[str, Any], region: str) -> Foresight:
    """Return the forecast of each training step by name, with parameters at their defaults.

    Raises:
        ForesightError: the calibration cannot be read.
    """
    calibration = measured_corrections.read_measured_runs()
    readable, _ = read_definition(json.dumps(document))
    jobs = () if readable is None else select_training_jobs(readable)
    trainings = (job for job in jobs if job.step.type == "Training")
    return {job.step.name: _predict_training(job, calibration, region) for job in trainings}


def _predict_training(job: Job, calibration: Calibration, region: str) -> Foreseen | NotForeseen:
    """Return the forecast of one training job, or why there is none."""
    try:
        training = derive_request_training(job)
    except ForesightError as error:
        return NotForeseen(str(error))
    time = calibration.predict_time(training.setting, training.shapes)
    memory_need = memory.predict_memory(training.setting, training.shapes)
    mode = "spot" if job.spot else "on demand"
    # Includes start, steps, saves and interruptions. The machines have no price here, because a
    # plan has prices of its own.
    run = foresee_run(
        make_machines(str(job.instance_type), job.nodes, mode, region=region),
        (training.shapes or model_shapes.derive_shapes(training.setting)).parameters,
        time.step_seconds,
        training.steps,
        interval_seconds=training.loop.checkpoint_interval * time.step_seconds.p50,
    )
    # A run that never ends is charged until it is given up.
    hours = run.charged_hours
    ends = [value * 3600 for value in (hours.p10, hours.p50, hours.p90)]
    longest = max([*filter(math.isfinite, ends), GIVEN_UP * training.steps * time.step_seconds.p90])
    seconds = Spread(*(value if math.isfinite(value) else longest for value in ends))
    need = describe_memory_need(training, memory_need)
    warnings = [*_find_duration_warnings(job, run, seconds)]
    if memory_need.fits != "yes":
        prospect = "will run" if memory_need.fits == "no" else "may run"
        warnings.append(f"{prospect} out of memory: {need}; {FIT}")
    return Foreseen(
        seconds=seconds,
        grounds=_describe_grounds(training, time, calibration.count_runs(training.setting.gpu)),
        parts=time.parts,
        remarks=(
            _describe_end(job, run),
            *([f"fits: {need}"] if memory_need.fits == "yes" else []),
            *(f"assumes {assumption}" for assumption in training.assumptions),
        ),
        warnings=tuple(warnings),
    )


def _find_duration_warnings(job: Job, run: Run, seconds: Spread) -> Iterator[str]:
    """Yield a warning if the job may never end, or may be stopped by its time limit."""
    if math.isinf(run.hours.p90):
        yield (
            "may never end: each interruption loses more steps than are saved before the next one; "
            "lower train.loop.checkpoint_interval, or use on-demand instances"
        )
    limit = job.read_number("StoppingCondition.MaxRuntimeInSeconds")
    if limit is not None and seconds.p90 > limit:
        sure = "will be" if seconds.p10 > limit else "may be"
        minutes = -(-seconds.p90 // 60)
        longer = f"set train.max_runtime_minutes to at least {minutes:.0f}, or "
        yield (
            f"{sure} stopped by its time limit of {format_duration(limit)} before its last step: "
            f"{longer if minutes <= LONGEST else ''}use fewer steps or more machines"
        )


def _describe_end(job: Job, run: Run) -> str:
    """Return a sentence on the training's duration, including waits for machines, and the expected
    interruptions.
    """
    mode, lost = "on spot" if job.spot else "on demand", run.interruptions
    p10, p50, p90 = (
        format_duration(hours * 3600) if math.isfinite(hours) else "never"
        for hours in (run.hours.p10, run.hours.p50, run.hours.p90)
    )
    return (
        f"{mode} completes after {p50} ({p10} – {p90}), including waits for machines; "
        f"{lost.p50:,.1f} interruptions expected ({lost.p10:,.1f} – {lost.p90:,.1f})"
    )


def _describe_grounds(training: LoopTraining, time: Time, run_count: int) -> str:
    """Return the basis of a forecast, such as ``20,000 steps of 1.29 s (1.10 – 1.51), 41% MFU, with
    start, saves …``.
    """
    step = time.step_seconds
    correction = (
        f"; corrected by {run_count} runs measured on {training.setting.gpu}" if run_count else ""
    )
    return (
        f"{training.steps:,} steps of {step.p50:.3g} s ({step.p10:.3g} – {step.p90:.3g}), "
        f"{time.mfu:.0%} MFU, with start, saves and steps repeated after interruptions{correction}"
    )
