"""Data classes that describe a step type: its Arguments, properties, job and options."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from trainyard.language.retries import CAUSES, LIMITS

# Shapes in botocore's form, for structures that are not in botocore's service models.

Body = Mapping[str, Any]

STRING: Body = {"type": "string"}
BOOLEAN: Body = {"type": "boolean"}
INTEGER: Body = {"type": "integer"}
ANYTHING: Body = {"type": "any"}
NULLABLE_STRING: Body = {"type": "string", "nullable": True}
NULLABLE_BOOLEAN: Body = {"type": "boolean", "nullable": True}


def make_structure(*required_names: str, **members: Any) -> dict[str, Any]:
    """Return the shape of a structure; ``members`` are the shapes of its members."""
    return {"type": "structure", "members": members, "required": list(required_names)}


def make_list(member: Body, **limits: int) -> dict[str, Any]:
    """Return the shape of a list; ``limits`` are ``min`` and ``max``."""
    return {"type": "list", "member": member, **limits}


def make_map(value: Body) -> dict[str, Any]:
    """Return the shape of a map with strings as keys."""
    return {"type": "map", "key": STRING, "value": value}


def make_enum(*values: str) -> dict[str, Any]:
    """Return the shape of a string that must be one of the values."""
    return {"type": "string", "enum": list(values)}


def make_number(kind: str, minimum: float, maximum: float | None = None) -> dict[str, Any]:
    """Return the shape of a number of type ``kind``, ``integer`` or ``float``, within bounds."""
    return {"type": kind, "min": minimum, **({} if maximum is None else {"max": maximum})}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A kind of SageMaker job."""

    api: str
    """Name in the operations Create…, Describe… and Stop…, such as ``TrainingJob``."""

    resource: str
    """Resource type in its ARN, such as ``training-job``."""

    log_group: str
    """Log group, which is also the namespace of its metrics (developer guide, "CloudWatch Logs
    for Amazon SageMaker AI" and "Metrics for monitoring")."""

    machines: Literal["training", "processing", "transform"]
    """Kind of instances, which decides on prices and quotas."""

    instances: str
    """Path in its request of the structure with InstanceType and InstanceCount."""

    image: str = ""
    """Path in its request of the container image; empty if it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Members of Arguments of which one must be given. botocore's model does not have this rule."""

    keys: tuple[str | int, ...] = ()
    """Path of the structure that has the members; 0 means every item of a list."""

    members: tuple[str, ...]
    source: str
    several: bool = False
    """True if more than one may be given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedMember:
    """A member of a step type's ``request`` that CreatePipeline refuses in a step."""

    member: str
    keys: tuple[str | int, ...] = ()
    """Path of the structure that has the member, as in :class:`Choice`."""

    instead: str = ""
    """Replacement with the same effect; empty if there is none."""

    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepType:
    """A type of step. Facts that only one tool needs are in that tool, by ``name``."""

    name: str
    """Value of ``Type`` in a definition."""

    request: str | None = None
    """Request in botocore's model whose members are the step's Arguments; None if there is none."""

    arguments: Body = field(default_factory=make_structure)
    """Shape of its Arguments if ``request`` is None."""

    describe: str | None = None
    """Shape in botocore's model that its properties have, as the SDK names it.

    If this is None and ``properties`` is empty, other steps cannot refer to the step's
    properties."""

    listing: str | None = None
    """Shape in botocore's model of a listing of its jobs, whose members are also properties."""

    variants: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Mapping of a member of Arguments to the (request, describe) of steps that have it."""

    service: str = "sagemaker"
    """Name of the service in botocore that has these shapes."""

    properties: Body = field(default_factory=dict)
    """Properties that the SDK's step class declares, instead of or in addition to ``describe``."""

    open_members: tuple[str, ...] = ()
    """Properties that are JSON in a string; references may refer to members inside."""

    made_up: str = ""
    """Required member of ``request`` that the service sets itself; the SDK removes it."""

    refused_members: tuple[RefusedMember, ...] = ()

    choices: tuple[Choice, ...] = ()
    fields: Body = field(default_factory=dict)
    """Fields of the step, in addition to Arguments and those that every step has."""

    required_members: tuple[str, ...] = ()
    """Names of the required ``fields``."""

    nests: tuple[str, ...] = ()
    """Arguments that contain further steps."""

    is_cached: bool = False
    """True if it may have a CacheConfig."""

    cache_key: tuple[str, ...] = ()
    """Arguments that form its cache key; ``A.B`` is a member of one. Empty for a type whose key is
    not computed here."""

    is_retried: bool = False
    """True if it may have RetryPolicies."""

    metadata: str = ""
    """Member in the Metadata of an execution's step; empty if it is ``name``."""

    role: str = ""
    """Member of Arguments with the role that its job assumes; empty if that is the pipeline's."""

    job: Job | None = None
    """Kind of job that it starts; None if it starts none, or several."""

    is_charged: bool = True
    """True if it may cost something."""

    @property
    def metadata_key(self) -> str:
        """Member in the Metadata of an execution's step that names what the step created."""
        return self.metadata or self.name

    @property
    def sole_job(self) -> Job | None:
        """Its job if the step only runs it; None for a check step, which also compares results."""
        return self.job if self.job and self.job.api == self.metadata_key else None

    @property
    def declares_outputs(self) -> bool:
        """True if each step of the type declares its own outputs (``OutputParameters['x']``)."""
        return "OutputParameters" in self.fields

    def find_shape_names(self, arguments: Mapping[str, Any]) -> tuple[str | None, str | None]:
        """Return the names of the request and describe shapes of a step with these Arguments."""
        matches = (names for member, names in self.variants.items() if member in arguments)
        return next(matches, (self.request, self.describe))

    def build_shape(self) -> dict[str, Any]:
        """Return the shape of a step of this type with all its fields, in botocore's form."""
        members = {
            **COMMON,
            **({"CacheConfig": CACHE} if self.is_cached else {}),
            **({"RetryPolicies": make_list(RETRY)} if self.is_retried else {}),
            **self.fields,
        }
        return make_structure("Arguments", *self.required_members, **members)


COMMON = {
    "Name": STRING,
    "Type": STRING,
    "Arguments": ANYTHING,
    "DependsOn": make_list(ANYTHING),
    "DisplayName": {"type": "string", "max": 256},
    "Description": {"type": "string", "max": 3072},
}
"""Fields of every step. The lengths are those of botocore's StepDisplayName and StepDescription."""

CACHE = make_structure("Enabled", Enabled=BOOLEAN, ExpireAfter={"type": "string", "min": 1})
RETRY = make_structure(
    "ExceptionType",
    ExceptionType=make_list(make_enum(*CAUSES), min=1),
    BackoffRate=make_number("float", 0),
    **{member: make_number("integer", *bounds) for member, bounds in LIMITS.items()},
)
