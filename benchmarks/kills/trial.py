"""One run: disturb the job, let it finish, compare what it wrote."""

import random
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.kills.dataset import Contents
from benchmarks.kills.disturbances import Moment, disturbances, pages_of, tear
from benchmarks.kills.job import Job
from steps.shard.shard_plan import SPLITS
from trainyard.common.errors import DataError

MOST = 3  # disturbances before the job may finish


@dataclass(frozen=True)
class Reference:
    """An undisturbed run."""

    contents: Contents
    seconds: float
    files: int
    pages: int
    """Of a tmpfs, that the whole output takes."""

    @classmethod
    def measure(cls, raw: Path, folder: Path) -> "Reference":
        job = Job(raw, folder, processes=2)
        status, seconds = job.run()
        if status:
            raise DataError(f"the undisturbed job ended with {status}: {job.log()}")
        pages = pages_of(job.output)
        return cls(Contents.of(job.output), seconds, len(job.files()), pages)


@dataclass
class Trial:
    """What was done to a run, and what came of it."""

    number: int
    disturbed: list[str] = field(default_factory=list)
    states: list[str] = field(default_factory=list)
    """What was on the disk after each disturbance."""
    torn: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """What the job did wrong besides its samples."""
    differences: dict[str, int] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        return bool(self.faults or any(self.differences.values()))


def run(
    number: int, seed: int, raw: Path, folder: Path, reference: Reference, most: int = MOST
) -> Trial:
    """Disturb the job one to ``most`` times, then let it finish; the seed decides what is done."""
    source = random.Random(f"{seed} {number}")
    job = Job(raw, folder, processes=source.choice((1, 2, 2, 2, 3)))
    trial = Trial(number)
    for _ in range(source.randint(1, most)):
        _disturb(trial, job, source, reference)
    status, _ = job.run()
    if status:
        trial.faults.append(f"the run after all ended with {status}: {job.log()[-2000:]}")
        return trial
    try:
        trial.differences = reference.contents.differences(Contents.of(job.output))
    except DataError as error:
        trial.faults.append(f"the dataset cannot be read: {error}")
    trial.faults += [f"left {path.name}" for path in job.output.rglob(".*.tmp")]
    return trial


def _disturb(trial: Trial, job: Job, source: random.Random, reference: Reference) -> None:
    name, act = source.choice(sorted(disturbances().items()))
    moment = Moment(source, reference.seconds, reference.files, reference.pages)
    trial.disturbed.append(name)
    if fault := act(job, moment):
        trial.faults.append(f"{name}: {fault}")
    trial.states.append(_state(job))
    if source.random() < 0.5 and (torn := tear(job, source)):
        trial.torn.append(torn)


def _state(job: Job) -> str:
    """How far the job came, from what is on the disk."""
    files = {path.relative_to(job.output).as_posix() for path in job.files()}
    manifests = sum(f"{split}/manifest-algo-1.json" in files for split in SPLITS)
    records = sum(name.startswith("progress/") for name in files)
    if manifests:
        return "complete" if manifests == len(SPLITS) else "some manifests"
    if "progress/algo-1/survey.json" in files:
        return "all objects read, no manifest"
    if records:
        return "some objects"
    return "some shards" if files else "nothing"
