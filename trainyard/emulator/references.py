"""What of a state directory refers to what, read from its documents while no emulator has it.

An execution and its jobs are one unit: together they are kept, together they go. A job that no
execution started is a unit by itself.
"""

import functools
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainyard.emulator.dag import cache
from trainyard.emulator.dag.definition import parse
from trainyard.emulator.documents import read_json

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
            if time.time() - step["EndTime"] <= cache.expiry(steps[body]):
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
