"""A uniform view of the jobs in a definition, for rules: training, processing and transform jobs.

The training definitions of a tuning step are also training jobs; QualityCheck and ClarifyCheck
steps start processing jobs.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from trainyard.emulator.algorithms.xgboost import facts
from trainyard.instance_types import MACHINES, Machine
from trainyard.language.definition_document import Document, Step
from trainyard.language.step_types import get_step_type
from trainyard.language.step_types.job_steps import PROCESSING_JOB, TRAINING_JOB, TRANSFORM_JOB
from trainyard.validate.rules.rule import Violation

Kind = Literal["training", "processing", "transform"]
KINDS = {job.machines: job for job in (TRAINING_JOB, PROCESSING_JOB, TRANSFORM_JOB)}
PROCESSES = "PET_NPROC_PER_NODE"
"""Environment variable with torchrun's number of processes per node; one per GPU if it is unset."""
_PLAIN = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job in a definition: the arguments of a step that become a Create…Job request."""

    document: Document
    step: Step
    kind: Kind
    arguments: Any
    """Request with expressions unresolved."""

    path: str
    """JSON path of ``arguments``."""

    def get(self, field: str) -> Any:
        """Return the value at a path such as ``ResourceConfig.InstanceType``, expressions resolved.

        Return None if it is missing, and ``Unknown`` if it is known only when the pipeline runs.
        """
        return self.document.resolve_value(self.read_raw(field))

    def read_raw(self, field: str) -> Any:
        """Return the value at a path with expressions unresolved; None if it is missing."""
        value = self.arguments
        for key in field.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        return value

    def read_number(self, field: str) -> float | None:
        """Return the number at a path; None if there is none, or it is not known before the run."""
        value = self.get(field)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return value if is_number else None

    def read_text(self, field: str) -> str | None:
        """Return the string at a path; None if there is none, or it is not known before the run."""
        return to_known_text(self.get(field))

    def iter_items(self, field: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Iterate over (index, object) of the list at a path, with expressions in them unresolved.

        Items that are not objects are skipped.
        """
        for index, item in enumerate(as_list(self.read_raw(field))):
            if isinstance(item, Mapping):
                yield index, item

    def read_mapping(self, field: str) -> dict[str, Any]:
        """Return the object at a path with expressions resolved; empty if there is none."""
        value = self.get(field)
        return value if isinstance(value, dict) else {}

    def make_violation(self, field: str, problem: str, fix: str | None = None) -> Violation:
        """Return a violation at ``field``, a path in the job's arguments."""
        return Violation(step=self.step, path=f"{self.path}.{field}", problem=problem, fix=fix)

    def build_resource_path(self, name: str) -> str:
        """Return the path of a field such as ``InstanceType`` in this kind of job's request."""
        return f"{KINDS[self.kind].instances}.{name}"

    @property
    def instance_type(self) -> str | None:
        return self.read_text(self.build_resource_path("InstanceType"))

    @property
    def machine(self) -> Machine | None:
        """Properties of the instance type; None if it is not in ``MACHINES``, or not known."""
        return MACHINES.get(self.instance_type or "")

    @property
    def instances(self) -> int | None:
        """Number of instances; None if it is not known before the run."""
        count = self.read_number(self.build_resource_path("InstanceCount"))
        return None if count is None else int(count)

    @property
    def nodes(self) -> int:
        """Number of instances; 0 if it is not known."""
        return self.instances or 0

    @property
    def image_path(self) -> str:
        """Path of the container image."""
        return KINDS[self.kind].image

    @property
    def image(self) -> str | None:
        return self.read_text(self.image_path)

    @property
    def environment(self) -> dict[str, Any]:
        return self.read_mapping("Environment")

    @property
    def hyperparameters(self) -> dict[str, Any]:
        return self.read_mapping(self.hyperparameters_path)

    @property
    def hyperparameters_path(self) -> str:
        """Path of the hyperparameters; in a tuning step, of the static ones."""
        return "StaticHyperParameters" if self.step.type == "Tuning" else "HyperParameters"

    @property
    def network_prefix(self) -> str:
        """Prefix of EnableNetworkIsolation and VpcConfig."""
        return "NetworkConfig." if self.kind == "processing" else ""

    @property
    def subnets(self) -> list[Any]:
        return as_list(self.get(f"{self.network_prefix}VpcConfig.Subnets"))

    @property
    def spot(self) -> bool:
        return self.get("EnableManagedSpotTraining") is True

    @property
    def ranks_per_node(self) -> int | None:
        """Number of processes per node that the environment sets; None if it sets none."""
        text = to_known_text(self.environment.get(PROCESSES)) or ""
        return int(text) if text.isdecimal() else None

    @property
    def has_drivers(self) -> bool:
        """True if the SDK's ``sm_train.sh`` starts the job."""
        return any(
            c.get("ChannelName") == "sm_drivers" for _, c in self.iter_items("InputDataConfig")
        )

    @property
    def runs_algorithm(self) -> bool:
        """True if the job runs one of AWS's built-in algorithms, and not a script in its image."""
        script = facts.SCRIPT in self.hyperparameters
        entry_point = script or self.read_raw("AlgorithmSpecification.ContainerEntrypoint")
        image = self.image or ""
        return not entry_point and (
            facts.is_xgboost_image(image) or facts.is_other_algorithm_image(image)
        )


def iter_jobs(document: Document) -> Iterator[Job]:
    """Iterate over every job in the definition; a tuning step has one per training definition."""
    for step in document.steps:
        arguments = f"{step.path}.Arguments"
        make = partial(Job, document=document, step=step)
        if job := get_step_type(step.type).job:
            yield make(kind=job.machines, arguments=step.arguments, path=arguments)
        elif step.type == "Tuning":
            for path, definition in _iter_training_definitions(step):
                yield make(kind="training", arguments=definition, path=path)


def _iter_training_definitions(step: Step) -> Iterator[tuple[str, Any]]:
    """Iterate over (path, definition) of a tuning step's training definitions."""
    base = f"{step.path}.Arguments"
    if "TrainingJobDefinition" in step.arguments:
        yield f"{base}.TrainingJobDefinition", step.arguments["TrainingJobDefinition"]
    for index, definition in enumerate(as_list(step.arguments.get("TrainingJobDefinitions"))):
        yield f"{base}.TrainingJobDefinitions[{index}]", definition


def select_training_jobs(document: Document) -> Iterator[Job]:
    """Return the training jobs, including those of tuning steps, for a rule's ``select``."""
    return (job for job in iter_jobs(document) if job.kind == "training")


def select_processing_jobs(document: Document) -> Iterator[Job]:
    """Return the processing jobs, for a rule's ``select``."""
    return (job for job in iter_jobs(document) if job.kind == "processing")


def select_container_jobs(document: Document) -> Iterator[Job]:
    """Return the jobs that have a container image (all but transform), for a rule's ``select``."""
    return (job for job in iter_jobs(document) if job.kind != "transform")


def as_list(value: Any) -> list[Any]:
    """Return ``value`` if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def to_known_text(value: Any) -> str | None:
    """Return ``value`` if it is a string, else None."""
    return value if isinstance(value, str) else None


def join_member(path: str, key: str) -> str:
    """Return the JSON path of a member: ``a.b``, or ``a['b.c']`` if the name needs it."""
    return f"{path}.{key}" if _PLAIN.fullmatch(key) else f"{path}['{key}']"


def iter_strings(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Iterate over every string in ``value`` with its path under ``path``."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from iter_strings(item, join_member(path, str(key)) if path else str(key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from iter_strings(item, f"{path}[{index}]")
