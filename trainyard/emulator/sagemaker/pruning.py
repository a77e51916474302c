"""Pruning: delete old pipeline executions from a state directory, with jobs, logs and results.

Kept are the sources and references of registered packages, everything that the latest definition of
a pipeline names, and everything that the step cache may still reuse.
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
from trainyard.emulator.damaged_state import check_pruning_allowed
from trainyard.emulator.json_documents import read_json
from trainyard.emulator.regions import list_world_folders
from trainyard.emulator.s3.object_store import ObjectStore
from trainyard.emulator.sagemaker.jobs.transfers import ClientFault, split_uri
from trainyard.emulator.sagemaker.pipelines import step_cache
from trainyard.emulator.sagemaker.pipelines.checked_definition import parse_definition

# An execution and its jobs form a unit, which is kept or deleted as a whole. A job that was not
# started by an execution is a unit by itself.


ROOTS = ("S3OutputPath", "Values")
"""Keys whose S3 URI is not that of an object: jobs write to locations below it, or it is part of a
joined text.
"""


@dataclass(slots=True)
class Unit:
    """Records that are kept or deleted together. ``directories`` are those of executions and
    jobs.
    """

    name: str
    creation_time: float
    """Creation time in seconds since the epoch."""
    directories: list[Path] = field(default_factory=list)
    jobs: list[str] = field(default_factory=list)
    """Names of the jobs that the unit started."""
    uses: set[str] = field(default_factory=set)
    """Names of all jobs whose results the unit uses, including those that the cache reused."""
    package_arn: str = ""
    """ARN (after ``model-package/``) of an existing package that the unit produced. Empty if there
    is none.
    """
    cached_step: str = ""
    """Name of a step whose result the cache may still reuse. Empty if there is none."""


class References:
    """The references between the documents of a state directory."""

    def __init__(self, state: Path) -> None:
        self._jobs = {p.parent.name: read_json(p) for p in state.glob("jobs/*/job.json")}
        packages = [read_json(path) for path in state.glob("registry/ModelPackage/**/*.json")]
        self._package_arns = {package["ModelPackageArn"] for package in packages}
        self._permanent_uris = set(
            iter_uris([packages, _read_stored_resources(state), _read_latest_definitions(state)])
        )
        self._tunings = {p.parent.name: read_json(p) for p in state.glob("tuning/*/tuning.json")}
        self._executions = {
            path.parent: read_json(path) for path in state.glob("executions/*/execution.json")
        }
        self.units = sorted(
            [*self._iter_execution_units(), *self._iter_single_job_units(state)],
            key=lambda u: u.creation_time,
        )
        """The units, the oldest first."""

    def list_outputs(self, unit: Unit) -> set[str]:
        """Return the URIs to which the unit's own jobs wrote."""
        return {uri for name in unit.jobs for uri in _iter_outputs(self._jobs[name])}

    def list_inputs(self, unit: Unit) -> set[str]:
        """Return the URIs that the unit's jobs read: files uploaded for them, and results of other
        jobs.
        """
        return self._list_uris(unit.jobs) - self.list_outputs(unit)

    def list_references(self, units: Iterable[Unit]) -> set[str]:
        """Return the URIs to which these units, packages, models or current pipeline definitions
        refer.
        """
        return self._permanent_uris | self._list_uris(
            {j for unit in units for j in (*unit.jobs, *unit.uses)}
        )

    def _list_uris(self, jobs: Iterable[str]) -> set[str]:
        known_jobs = [self._jobs[name] for name in jobs if name in self._jobs]
        return {
            uri for job in known_jobs for uri in (*iter_uris(job["describe"]), *_iter_outputs(job))
        }

    def _iter_execution_units(self) -> Iterator[Unit]:
        """Iterate over one unit per execution, with its jobs, tuning jobs and package."""
        for directory, record in self._executions.items():
            answer = record["answer"]
            number = answer["PipelineExecutionArn"].rpartition("/")[2]
            unit = Unit(f"execution {number}", answer["CreationTime"], [directory])
            for step in record["steps"].values():
                for kind, body in step["Metadata"].items():
                    if kind == "TuningJob":
                        tuning = self._tunings.get(body["Arn"].rpartition("/")[2], {"trials": []})
                        unit.uses |= {trial["name"] for trial in tuning["trials"]}
                    elif kind.endswith("Job"):
                        unit.uses.add(body["Arn"].rpartition("/")[2])
                    if kind == "RegisterModel" and body["Arn"] in self._package_arns:
                        unit.package_arn = body["Arn"].rpartition("model-package/")[2]
            unit.jobs = [name for name in self._jobs if _is_made_by(number, name)]
            tunings = [name for name in self._tunings if _is_made_by(number, name)]
            unit.directories += [directory.parents[1] / "jobs" / name for name in unit.jobs]
            unit.directories += [directory.parents[1] / "tuning" / name for name in tunings]
            unit.cached_step = _find_cached_step(directory, record)
            yield unit

    def _iter_single_job_units(self, state: Path) -> Iterator[Unit]:
        """Iterate over one unit per job that no execution started."""
        executions = {directory.name for directory in self._executions}
        for name, document in self._jobs.items():
            if not any(_is_made_by(number, name) for number in executions):
                creation_time = document["describe"]["CreationTime"]
                yield Unit(f"job {name}", creation_time, [state / "jobs" / name], [name])


def _is_made_by(execution: str, name: str) -> bool:
    """Return whether a job or tuning job of that name belongs to the execution."""
    return f"-{execution}-" in f"-{name}"


def iter_uris(document: Any) -> Iterator[str]:
    """Iterate over every S3 URI in the document, except those below the keys in ROOTS."""
    if isinstance(document, dict):
        for key, value in document.items():
            if key not in ROOTS:
                yield from iter_uris(value)
    elif isinstance(document, list):
        for value in document:
            yield from iter_uris(value)
    elif isinstance(document, str) and document.startswith("s3://"):
        yield document


def _iter_outputs(job: dict) -> Iterator[str]:
    """Iterate over the URIs to which the job wrote: outputs (also those of a failed job) and
    checkpoints.
    """
    description = job["describe"]
    yield from job["outputs"]
    for output in description.get("ProcessingOutputConfig", {}).get("Outputs", []):
        yield output["S3Output"]["S3Uri"]
    if uri := description.get("CheckpointConfig", {}).get("S3Uri"):
        yield uri
    for key in ("OutputDataConfig", "TensorBoardOutputConfig"):
        if root := description.get(key, {}).get("S3OutputPath"):
            yield f"{root.rstrip('/')}/{description['TrainingJobName']}/"


def _find_cached_step(directory: Path, record: dict) -> str:
    """Return the name of a step whose result the cache may still reuse. Return an empty string if
    there is none.
    """
    for name, step in record["steps"].items():
        if step.get("signature") and step["StepStatus"] == "Succeeded":
            steps = _parse_cached((directory / "definition.json").read_text()).steps
            body = name.rpartition("-")[0] if "IterationContext" in step else name
            if time.time() - step["EndTime"] <= step_cache.parse_expiry(steps[body]):
                return name
    return ""


_parse_cached = functools.lru_cache(maxsize=64)(
    parse_definition
)  # most executions share a few definitions


def _read_latest_definitions(state: Path) -> list[dict]:
    """Return the latest definition of each pipeline."""
    definitions = []
    for path in state.glob("pipelines/*/pipeline.json"):
        number = read_json(path)["versions"][-1]["PipelineVersionId"]
        definitions.append(read_json(path.with_name(f"definition-{number}.json")))
    return definitions


def _read_stored_resources(state: Path) -> list[dict]:
    """Return the stored resources, such as models. Endpoint configurations are left out, because
    they only name where endpoints will write.
    """
    paths = state.glob("stored/*/*.json")
    return [read_json(path) for path in paths if path.parent.name != "EndpointConfig"]


GB = 1_000_000_000
DAY = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class PruningPlan:
    """The units to delete, and the objects to delete as (bucket, key). ``size`` is the size of the
    state before, in bytes.
    """

    size: int
    units: list[Unit] = field(default_factory=list)
    objects: set[tuple[str, str]] = field(default_factory=set)
    freed_bytes: int = 0
    """Number of bytes that deleting the units and objects frees."""

    def summarize(self, verb: str) -> str:
        """Return one line with the number of units and objects, the bytes freed and the total."""
        return (
            f"{len(self.units)} executions and single jobs with {len(self.objects)} objects "
            f"{verb}: {self.freed_bytes / 1e6:,.1f} of {self.size / 1e6:,.1f} MB"
        )


def plan_pruning(
    state: Path,
    store: ObjectStore,
    seconds: float | None,
    limit: int | None,
    *,
    include_cached: bool = False,
    inputs: bool = False,
) -> PruningPlan:
    """Plan to delete the units older than ``seconds``, and then the oldest until at most ``limit``
    bytes remain.

    ``store`` has the objects of that state. ``include_cached``: also delete what the step cache may
    reuse. ``inputs``: also delete uploads for deleted jobs that nothing else reads.

    Raises:
        EmulatorError: unreadable records were set aside; they may refer to what would be deleted.
    """
    size = measure_size(state)
    if seconds is None and (limit is None or size <= limit):
        return PruningPlan(size)
    check_pruning_allowed(state)
    references = References(state)
    foreign_keys = _find_foreign_keys(state)
    deletable_units = [
        u for u in references.units if not u.package_arn and (include_cached or not u.cached_step)
    ]
    now = time.time()
    old = (
        sum(now - unit.creation_time > seconds for unit in deletable_units)
        if seconds is not None
        else 0
    )

    @functools.cache
    def plan_pruning_of_oldest(count: int) -> PruningPlan:
        """Return the plan that deletes the ``count`` oldest units that no other needs."""
        units = _exclude_referenced_units(deletable_units[:count], references)
        objects = _find_exclusive_objects(units, references, store, inputs, foreign_keys)
        records_size = sum(
            measure_size(path)
            for unit in units
            for path in [*unit.directories, *_list_log_files(unit, state)]
        )
        freed_bytes = records_size + sum(objects.values())
        return PruningPlan(size, units, set(objects), freed_bytes)

    if limit is None:
        return plan_pruning_of_oldest(old)
    # Deleting more units never frees fewer bytes, so the smallest sufficient number is found by
    # bisection.
    counts = range(old, len(deletable_units) + 1)
    index = bisect.bisect_left(
        counts, True, key=lambda n: size - plan_pruning_of_oldest(n).freed_bytes <= limit
    )
    return plan_pruning_of_oldest(counts[min(index, len(counts) - 1)])


def execute_pruning_plan(plan: PruningPlan, state: Path, store: ObjectStore) -> None:
    """Delete what the plan contains. If this is interrupted, the next pruning completes it."""
    # Objects are deleted first. If this is interrupted, the records that lead to the objects still
    # exist, and the cache does not reuse a step whose results are missing, because it checks them.
    for bucket, key in sorted(plan.objects):
        store.delete(bucket, key)
    for unit in plan.units:
        for stream in _list_log_files(unit, state):
            stream.unlink()
        # The execution last, because it names its jobs.
        for directory in reversed(unit.directories):
            shutil.rmtree(directory)


def prune_to_size(state: Path, store: ObjectStore, keep_gb: float) -> list[str]:
    """Delete the oldest units until the state has at most ``keep_gb`` GB, except what may still be
    needed. Return messages for the user.
    """
    try:
        plan = plan_pruning(state, store, None, int(keep_gb * GB))
    except EmulatorError as set_aside:
        return [str(set_aside)]
    execute_pruning_plan(plan, state, store)
    lines = [plan.summarize("removed, which nothing needs")] if plan.units else []
    if (state_size := plan.size - plan.freed_bytes) > keep_gb * GB:
        lines.append(
            f"{state} has {state_size / GB:.1f} GB, more than --keep-gb {keep_gb:g}, and all of it "
            "may be needed; python -m trainyard prune --cached --dry-run shows what only the cache "
            "needs"
        )
    return lines


def _exclude_referenced_units(candidates: list[Unit], references: References) -> list[Unit]:
    """Return the candidates whose results no unit that is kept uses."""
    # A unit that is kept for this reason may use results of another candidate, so repeat until
    # nothing changes.
    while True:
        candidate_names = {unit.name for unit in candidates}
        used = {
            j for unit in references.units if unit.name not in candidate_names for j in unit.uses
        }
        unneeded = [unit for unit in candidates if used.isdisjoint(unit.jobs)]
        if len(unneeded) == len(candidates):
            return candidates
        candidates = unneeded


def _find_exclusive_objects(
    candidates: list[Unit],
    references: References,
    store: ObjectStore,
    inputs: bool,
    foreign_keys: set[tuple[str, str]],
) -> dict[tuple[str, str], int]:
    """Return the objects that only these units wrote or read: a mapping of (bucket, key) to the
    size in bytes.

    ``foreign_keys`` are objects to which other regions and accounts refer.
    """
    candidate_names = {unit.name for unit in candidates}
    kept_keys = _parse_keys(
        references.list_references(u for u in references.units if u.name not in candidate_names)
    )
    kept_keys |= foreign_keys
    uris_to_prune = set()
    for unit in candidates:
        uris_to_prune |= references.list_outputs(unit) | (
            references.list_inputs(unit) if inputs else set()
        )
    sizes = {}
    for bucket, prefix in _parse_keys(uris_to_prune):
        if prefix and store.has_bucket(bucket):
            for info in store.list(bucket, prefix):
                # An object is kept if a reference names it or any prefix of its key.
                beginnings = (info.key[:length] for length in range(len(info.key) + 1))
                if not any((bucket, beginning) in kept_keys for beginning in beginnings):
                    sizes[bucket, info.key] = info.size
    return sizes


def _find_foreign_keys(state: Path) -> set[tuple[str, str]]:
    """Return the objects to which other regions and accounts refer. They are not pruned here, and
    all share the same S3.
    """
    others = [References(path) for path in list_world_folders(state)[1:]]
    return {key for other in others for key in _parse_keys(other.list_references(other.units))}


def _parse_keys(uris: Iterable[str]) -> set[tuple[str, str]]:
    """Return the (bucket, key) of each valid S3 URI."""
    keys = set()
    for uri in uris:
        try:
            keys.add(split_uri(uri))
        except ClientFault:
            continue  # a text that only starts like an S3 URI
    return keys


def _list_log_files(unit: Unit, state: Path) -> list[Path]:
    """Return the files of the log streams of the unit's jobs."""
    starts = [quote(f"{job}/", safe="") for job in unit.jobs]
    return [path for start in starts for path in state.glob(f"logs/*/{start}*")]


def measure_size(path: Path) -> int:
    """Return the size in bytes of a file, or of all files below a folder."""
    if not path.is_dir():
        return path.stat().st_size
    return sum(file.lstat().st_size for file in path.rglob("*") if file.is_file())
