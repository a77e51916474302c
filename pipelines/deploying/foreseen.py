"""What is foreseen of the training steps that run our loop, for plan and budget."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pipelines.fitting import needed, remedy
from pipelines.foreseeing import Ours, of_request
from trainyard.common.errors import ForesightError
from trainyard.foresight import calibration, memory
from trainyard.foresight.calibration import Calibration
from trainyard.foresight.memory import Memory
from trainyard.foresight.spread import Spread
from trainyard.foresight.time import Time
from trainyard.plan.foreseen import Foreseen, Foresight, NotForeseen
from trainyard.runs.table import duration
from trainyard.validate.form import read
from trainyard.validate.rules.jobs import Job, training

LONGEST = 28 * 24 * 60
"""Minutes that a training job may run (service quotas: "longest run time for a training job")."""


def foresee(document: Mapping[str, Any]) -> Foresight:
    """Training step → what is foreseen of it, with parameters at their defaults.

    Raises:
        ForesightError: the calibration cannot be read.
    """
    learned = calibration.read()
    readable, _ = read(json.dumps(document))
    jobs = () if readable is None else training(readable)
    return {job.step.name: _foresee(job, learned) for job in jobs if job.step.type == "Training"}


def _foresee(job: Job, learned: Calibration) -> Foreseen | NotForeseen:
    try:
        ours = of_request(job)
    except ForesightError as error:
        return NotForeseen(str(error))
    time, found = learned.time(ours.setting), memory.foresee(ours.setting)
    seconds = time.step_seconds.times(ours.steps)
    return Foreseen(
        seconds=seconds,
        grounds=_grounds(ours, time, learned.count(ours.setting.gpu)),
        parts=time.parts,
        remarks=(*_fits(ours, found), *(f"assumes {each}" for each in ours.assumed)),
        warnings=(*_too_slow(job, seconds), *_too_large(ours, found)),
    )


def _grounds(ours: Ours, time: Time, trainings: int) -> str:
    """``20,000 steps of 1.29 s (1.10 – 1.51), 41 % MFU; start, validation and saves not in it``."""
    step = time.step_seconds
    learned = f"; corrected by {trainings} measured on {ours.setting.gpu}" if trainings else ""
    return (
        f"{ours.steps:,} steps of {step.p50:.3g} s ({step.p10:.3g} – {step.p90:.3g}), "
        f"{time.mfu:.0%} MFU; start, validation and saves are not in it{learned}"
    )


def _too_slow(job: Job, seconds: Spread) -> Iterator[str]:
    """What its time limit will do to it."""
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


def _fits(ours: Ours, found: Memory) -> Iterator[str]:
    if found.fits == "yes":
        yield f"fits: {needed(ours, found)}"


def _too_large(ours: Ours, found: Memory) -> Iterator[str]:
    if found.fits != "yes":
        how = "will run" if found.fits == "no" else "may run"
        yield f"{how} out of memory: {needed(ours, found)}; {remedy(ours)}"
