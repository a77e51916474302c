"""Disturb the sharding job, let it finish, and compare what it wrote."""

import functools
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmarks.kills.job import TIMEOUT, Contents, Job, workers
from steps.shard.shard_plan import SPLITS
from trainyard.common.errors import DataError

PAGE = 4096  # bytes that a tmpfs gives out at a time
MOUNT = """
mount -t tmpfs -o size="$1"k tmpfs "$2" && cp -a "$3/." "$2" || exit 99
output=$2 saved=$3
shift 3
"$@"
status=$?
rm -rf "$saved" && cp -a "$output" "$saved" || exit 99
exit $status
"""  # size in KiB, output, where it is kept outside, then the job
LIMIT = 'ulimit -f "$1"; shift; exec "$@"'


def kill_all(job: Job, moment: "Moment") -> str:
    """SIGKILL of the job and its workers at once, as when a container is stopped."""
    process = job.start()
    moment.wait(job, process)
    with suppress(ProcessLookupError):  # it had ended before the moment came
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(TIMEOUT)
    return ""


def kill_job(job: Job, moment: "Moment") -> str:
    """SIGKILL of the job alone; its workers must die by themselves."""
    process = job.start()
    moment.wait(job, process)
    orphans = workers(process)
    process.kill()
    process.wait(TIMEOUT)
    if moment.source.random() < 0.5:
        return ""  # the next run begins while they die
    # One that is just starting reads its modules before it looks whether the job is still there.
    _, alive = psutil.wait_procs(orphans, timeout=10)
    return f"{len(alive)} workers outlived the job" if alive else ""


def kill_worker(job: Job, moment: "Moment") -> str:
    """SIGKILL of one worker, as when memory is short; the job must end and say what it lost."""
    process = job.start()
    moment.wait(job, process)
    found = workers(process)
    if not found:  # before the first, or after the last of them
        return kill_running(process)
    victim = moment.source.choice(found)
    with suppress(psutil.NoSuchProcess):
        victim.kill()
    status = process.wait(TIMEOUT)
    said = "a worker process died" in job.log()
    # A worker that had nothing left to do may die unnoticed.
    return "" if status == 0 or (status == 1 and said) else f"ended with {status}, said nothing"


def kill_running(process: subprocess.Popen) -> str:
    process.kill()
    process.wait(TIMEOUT)
    return ""


def fill_disk(job: Job, moment: "Moment") -> str:
    """The output is on a tmpfs, in a mount namespace, that is too small for it."""
    used = pages_of(job.output)
    size = used + moment.source.randint(0, max(1, moment.pages - used))
    saved = job.folder / "saved"
    job.output.mkdir(parents=True, exist_ok=True)
    job.output.rename(saved)
    job.output.mkdir()
    script = ["sh", "-c", MOUNT, "sh", str(size * PAGE // 1024), str(job.output), str(saved)]
    status = job.start([*NAMESPACE, *script]).wait(TIMEOUT)
    job.output.rmdir()
    saved.rename(job.output)
    said = "No space left on device; raise shard.volume_gb" in job.log()
    return "" if status == 0 or (status == 1 and said) else f"ended with {status}, said nothing"


def limit_files(job: Job, moment: "Moment") -> str:
    """No file may grow beyond a limit (RLIMIT_FSIZE): for machines without namespaces."""
    blocks = moment.source.randint(16, 63)  # of 512 bytes; a full shard has 59
    status = job.start(["sh", "-c", LIMIT, "sh", str(blocks)]).wait(TIMEOUT)
    said = "File too large; raise shard.volume_gb" in job.log()
    return "" if status == 0 or (status == 1 and said) else f"ended with {status}, said nothing"


NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount"]


@functools.cache
def namespaces() -> bool:
    """Whether a tmpfs can be mounted in a namespace here."""
    if not shutil.which("unshare"):
        return False
    probe = [*NAMESPACE, "mount", "-t", "tmpfs", "tmpfs", "/tmp"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


def disturbances() -> dict[str, Callable[[Job, "Moment"], str]]:
    """Name → what does it; its result is what the job did wrong, or nothing."""
    return {
        "kill job and workers": kill_all,
        "kill the job": kill_job,
        "kill a worker": kill_worker,
        "full disk": fill_disk if namespaces() else limit_files,
    }


class Moment:
    """A random moment: some seconds after the start, or when so many files are there.

    The first kind spreads over the time, start and end included; the second over the writes, and a
    quarter of those over the last ten, where progress records and manifests stand.
    """

    def __init__(self, source: random.Random, seconds: float, files: int, pages: int) -> None:
        self.source, self.pages = source, pages
        self._seconds, self._files = seconds, files

    def wait(self, job: Job, process: subprocess.Popen) -> None:
        """Until the moment has come, or the job has ended before it."""
        if self.source.random() < 0.4:
            with suppress(subprocess.TimeoutExpired):
                process.wait(self.source.uniform(0, self._seconds))
            return
        there = len(job.files())
        first = max(there, self._files - 10) if self.source.random() < 0.25 else there
        count = self.source.randint(first, max(first, self._files)) + 1
        while process.poll() is None and len(job.files()) < count:
            time.sleep(0.002)


def tear(job: Job, source: random.Random) -> str | None:
    """Cut off or garble one file that no manifest names; its name.

    A power cut does so to what was never synced. A file that a manifest names is finished.
    """
    manifests = [path for path in job.files() if path.name.startswith("manifest-")]
    named = "".join(path.read_text() for path in manifests)
    files = sorted(path for path in job.files() if path not in manifests
                   and f'"{path.name}"' not in named and path.stat().st_size)  # fmt: skip
    if not files:
        return None
    path = source.choice(files)
    content = bytearray(path.read_bytes())
    place = source.randrange(len(content))
    if source.random() < 0.5:
        del content[place:]
    else:
        for offset in range(place, min(place + source.randint(1, 64), len(content))):
            content[offset] ^= source.randint(1, 255)
    path.write_bytes(content)
    return str(path.relative_to(job.output))


def pages_of(output: Path) -> int:
    """Pages that everything in the output takes in a tmpfs."""
    files = (path for path in output.rglob("*") if path.is_file())
    return sum(-(-path.stat().st_size // PAGE) for path in files)


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
