"""Which old executions may go from a state directory, with their jobs, logs and results.

Never what a registered package came from, or refers to, what a pipeline's latest definition names,
or what the step cache may still answer from.
"""

import bisect
import functools
import shutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from trainyard.common.errors import EmulatorError
from trainyard.emulator.damaged_state import refuse_pruning
from trainyard.emulator.jobs.transfers import ClientFault, split_uri
from trainyard.emulator.json_documents import read_json
from trainyard.emulator.pipelines import step_cache
from trainyard.emulator.pipelines.checked_definition import parse
from trainyard.emulator.storage.object_store import ObjectStore

# An execution and its jobs are one unit: together they are kept, together they go. A job that no
# execution started is a unit by itself.


ROOTS = ("S3OutputPath", "Values")
"""Not what is meant itself: jobs write below it, or it is one piece of a joined text."""


@dataclass(slots=True)
class Unit:
    """What is kept or goes as one; ``directories``: of executions and jobs."""

    name: str
    made: float
    """Seconds since the epoch."""
    directories: list[Path] = field(default_factory=list)
    jobs: list[str] = field(default_factory=list)
    """Those that it started."""
    uses: set[str] = field(default_factory=set)
    """Every job whose results it holds, those that the cache gave it, too."""
    registered: str = ""
    """A package that came of it and is still there."""
    cached: str = ""
    """A step that the cache may still answer from it."""


class References:
    """Everything that documents of a state directory say."""

    def __init__(self, state: Path) -> None:
        self._jobs = {p.parent.name: read_json(p) for p in state.glob("jobs/*/job.json")}
        packages = [read_json(path) for path in state.glob("registry/packages/**/*.json")]
        self._registered = {package["ModelPackageArn"] for package in packages}
        self._always = set(uris([packages, _models(state), _pipelines(state)]))
        self._tunings = {p.parent.name: read_json(p) for p in state.glob("tuning/*/tuning.json")}
        self._executions = {
            path.parent: read_json(path) for path in state.glob("executions/*/execution.json")
        }
        self.units = sorted([*self._of_executions(), *self._of_jobs(state)], key=lambda u: u.made)
        """The oldest first."""

    def written(self, unit: Unit) -> set[str]:
        """URIs that the unit's own jobs wrote to."""
        return {uri for name in unit.jobs for uri in _written(self._jobs[name])}

    def read(self, unit: Unit) -> set[str]:
        """URIs that its jobs read: what was uploaded for them, and the results of others."""
        return self._named(unit.jobs) - self.written(unit)

    def kept(self, units: Iterable[Unit]) -> set[str]:
        """URIs that these units refer to, and packages, models and the pipelines as they are."""
        return self._always | self._named({j for unit in units for j in (*unit.jobs, *unit.uses)})

    def _named(self, jobs: Iterable[str]) -> set[str]:
        known = [self._jobs[name] for name in jobs if name in self._jobs]
        return {uri for job in known for uri in (*uris(job["describe"]), *_written(job))}

    def _of_executions(self) -> Iterator[Unit]:
        for directory, record in self._executions.items():
            answer = record["answer"]
            number = answer["PipelineExecutionArn"].rpartition("/")[2]
            unit = Unit(f"execution {number}", answer["CreationTime"], [directory])
            for step in record["steps"].values():
                for kind, body in step["Metadata"].items():
                    if kind == "TuningJob":
                        unit.uses |= self._tuned(body["Arn"].rpartition("/")[2])
                    elif kind.endswith("Job"):
                        unit.uses.add(body["Arn"].rpartition("/")[2])
                    if kind == "RegisterModel" and body["Arn"] in self._registered:
                        unit.registered = body["Arn"].rpartition("model-package/")[2]
            unit.jobs = [name for name in self._jobs if _made_by(number, name)]
            tunings = [name for name in self._tunings if _made_by(number, name)]
            unit.directories += [directory.parents[1] / "jobs" / name for name in unit.jobs]
            unit.directories += [directory.parents[1] / "tuning" / name for name in tunings]
            unit.cached = _cached(directory, record)
            yield unit

    def _of_jobs(self, state: Path) -> Iterator[Unit]:
        ours = {directory.name for directory in self._executions}
        for name, document in self._jobs.items():
            if not any(_made_by(number, name) for number in ours):
                made = document["describe"]["CreationTime"]
                yield Unit(f"job {name}", made, [state / "jobs" / name], [name])

    def _tuned(self, tuning: str) -> set[str]:
        """The training jobs of a tuning job."""
        trials = self._tunings.get(tuning, {"trials": []})["trials"]
        return {trial["name"] for trial in trials}


def _made_by(execution: str, name: str) -> bool:
    """Whether a job or a tuning job with that name is the execution's."""
    return f"-{execution}-" in f"-{name}"


def uris(document: Any) -> Iterator[str]:
    """Every S3 URI that the document names as such."""
    if isinstance(document, dict):
        for key, value in document.items():
            if key not in ROOTS:
                yield from uris(value)
    elif isinstance(document, list):
        for value in document:
            yield from uris(value)
    elif isinstance(document, str) and document.startswith("s3://"):
        yield document


def _written(job: dict) -> Iterator[str]:
    """Where it wrote: its outputs, a failed one's, too, and its checkpoints."""
    described = job["describe"]
    yield from job["outputs"]
    for output in described.get("ProcessingOutputConfig", {}).get("Outputs", []):
        yield output["S3Output"]["S3Uri"]
    if uri := described.get("CheckpointConfig", {}).get("S3Uri"):
        yield uri
    for key in ("OutputDataConfig", "TensorBoardOutputConfig"):
        if root := described.get(key, {}).get("S3OutputPath"):
            yield f"{root.rstrip('/')}/{described['TrainingJobName']}/"


def _cached(directory: Path, record: dict) -> str:
    """A step whose result the cache may still give; empty when there is none."""
    for name, step in record["steps"].items():
        if step.get("signature") and step["StepStatus"] == "Succeeded":
            steps = _parsed((directory / "definition.json").read_text()).steps
            body = name.rpartition("-")[0] if "IterationContext" in step else name
            if time.time() - step["EndTime"] <= step_cache.expiry(steps[body]):
                return name
    return ""


_parsed = functools.lru_cache(maxsize=64)(parse)  # most executions have one of few definitions


def _pipelines(state: Path) -> list[dict]:
    """The latest definition of each."""
    found = []
    for path in state.glob("pipelines/*/pipeline.json"):
        number = read_json(path)["versions"][-1]["PipelineVersionId"]
        found.append(read_json(path.with_name(f"definition-{number}.json")))
    return found


def _models(state: Path) -> list[dict]:
    """Models, which name their artifacts, and what else SageMaker only keeps."""
    kept = [*state.glob("models/*.json"), *state.glob("stored/*/*.json")]
    return list(map(read_json, kept))


GB = 1_000_000_000
DAY = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Pruned:
    """What goes: units, and objects as (bucket, key). ``size``: bytes of the state before."""

    size: int
    units: list[Unit] = field(default_factory=list)
    objects: set[tuple[str, str]] = field(default_factory=set)
    freed: int = 0
    """Bytes."""

    def told(self, verb: str) -> str:
        """One line: what and how much, of how much."""
        return (
            f"{len(self.units)} executions and single jobs with {len(self.objects)} objects "
            f"{verb}: {self.freed / 1e6:,.1f} of {self.size / 1e6:,.1f} MB"
        )


def choose(
    state: Path,
    store: ObjectStore,
    seconds: float | None,
    limit: int | None,
    *,
    cached: bool = False,
    inputs: bool = False,
) -> Pruned:
    """What is older than ``seconds``, and the oldest until at most ``limit`` bytes are left.

    ``store``: of that state. ``cached``: also what the step cache may answer from. ``inputs``: also
    what was uploaded for jobs that go, and that nothing else reads.

    Raises:
        EmulatorError: records that could not be read are set aside: they may name what would go.
    """
    size = size_of(state)
    if seconds is None and (limit is None or size <= limit):
        return Pruned(size)
    refuse_pruning(state)
    references = References(state)
    elsewhere = _elsewhere(state)
    free = [u for u in references.units if not u.registered and (cached or not u.cached)]
    now = time.time()
    old = sum(now - unit.made > seconds for unit in free) if seconds is not None else 0

    @functools.cache
    def of_oldest(count: int) -> Pruned:
        units = _unused(free[:count], references)
        objects = _objects(units, references, store, inputs, elsewhere)
        freed = sum(_size_of(unit, state) for unit in units) + sum(objects.values())
        return Pruned(size, units, set(objects), freed)

    if limit is None:
        return of_oldest(old)
    counts = range(old, len(free) + 1)
    least = bisect.bisect_left(counts, True, key=lambda n: size - of_oldest(n).freed <= limit)
    return of_oldest(counts[min(least, len(counts) - 1)])


def remove(found: Pruned, state: Path, store: ObjectStore) -> None:
    """Objects first: a step whose results are gone is no hit. What is cut short, the next ends."""
    for bucket, key in sorted(found.objects):
        store.delete(bucket, key)
    for unit in found.units:
        for stream in _streams(unit, state):
            stream.unlink()
        for directory in reversed(unit.directories):  # the execution last: it names its jobs
            shutil.rmtree(directory)


def bound(state: Path, store: ObjectStore, keep_gb: float) -> list[str]:
    """Keep the state within ``keep_gb`` as far as nothing that may be needed goes; what to say."""
    try:
        found = choose(state, store, None, int(keep_gb * GB))
    except EmulatorError as set_aside:
        return [str(set_aside)]
    remove(found, state, store)
    said = [found.told("that nothing needs removed")] if found.units else []
    if (left := found.size - found.freed) > keep_gb * GB:
        said.append(
            f"{state} has {left / GB:.1f} GB, more than --keep-gb {keep_gb:g}, and all of it may "
            "be needed; python -m trainyard prune --cached --dry-run says what the cache alone "
            "needs"
        )
    return said


def _unused(going: list[Unit], references: References) -> list[Unit]:
    """Without those whose jobs a unit that stays has its results from."""
    while True:
        leaving = {unit.name for unit in going}
        used = {j for unit in references.units if unit.name not in leaving for j in unit.uses}
        rest = [unit for unit in going if used.isdisjoint(unit.jobs)]
        if len(rest) == len(going):
            return going
        going = rest


def _objects(
    going: list[Unit],
    references: References,
    store: ObjectStore,
    inputs: bool,
    elsewhere: set[tuple[str, str]],
) -> dict[tuple[str, str], int]:
    """(bucket, key) → bytes of what they alone wrote, or read.

    ``elsewhere``: what other regions refer to.
    """
    leaving = {unit.name for unit in going}
    kept = _keys(references.kept(u for u in references.units if u.name not in leaving))
    kept |= elsewhere
    wanted = set()
    for unit in going:
        wanted |= references.written(unit) | (references.read(unit) if inputs else set())
    found = {}
    for bucket, prefix in _keys(wanted):
        if prefix and store.has_bucket(bucket):
            for info in store.list(bucket, prefix):
                beginnings = (info.key[:length] for length in range(len(info.key) + 1))
                if not any((bucket, beginning) in kept for beginning in beginnings):
                    found[bucket, info.key] = info.size
    return found


def _elsewhere(state: Path) -> set[tuple[str, str]]:
    """What the other regions' worlds refer to: nothing of theirs is pruned, S3 is everybody's."""
    others = [References(path) for path in state.glob("regions/*/")]
    return {key for other in others for key in _keys(other.kept(other.units))}


def _keys(uris: Iterable[str]) -> set[tuple[str, str]]:
    """(bucket, key) of each that is one."""
    found = set()
    for uri in uris:
        try:
            found.add(split_uri(uri))
        except ClientFault:
            continue  # a text that only begins like a URI
    return found


def _streams(unit: Unit, state: Path) -> list[Path]:
    starts = [quote(f"{job}/", safe="") for job in unit.jobs]
    return [path for start in starts for path in state.glob(f"logs/*/{start}*")]


def _size_of(unit: Unit, state: Path) -> int:
    return sum(size_of(path) for path in [*unit.directories, *_streams(unit, state)])


def size_of(path: Path) -> int:
    """Bytes of all files below, or of the file."""
    if not path.is_dir():
        return path.stat().st_size
    return sum(found.lstat().st_size for found in path.rglob("*") if found.is_file())
