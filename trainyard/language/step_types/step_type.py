"""A type of step: every fact of the language about it, read by all tools."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from trainyard.language.retries import CAUSES, LIMITS

# Shapes in botocore's form, for structures that no service model describes.

Body = Mapping[str, Any]

STRING: Body = {"type": "string"}
BOOLEAN: Body = {"type": "boolean"}
INTEGER: Body = {"type": "integer"}
ANYTHING: Body = {"type": "any"}
NULLABLE_STRING: Body = {"type": "string", "nullable": True}
NULLABLE_BOOLEAN: Body = {"type": "boolean", "nullable": True}


def structure(*required_names: str, **members: Any) -> dict[str, Any]:
    """Return a structure; ``required`` are names of members."""
    return {"type": "structure", "members": members, "required": list(required_names)}


def list_of(member: Body, **limits: int) -> dict[str, Any]:
    """Return a list; ``limits`` are min and max."""
    return {"type": "list", "member": member, **limits}


def map_of(value: Body) -> dict[str, Any]:
    """Return a map with string keys."""
    return {"type": "map", "key": STRING, "value": value}


def one_of(*values: str) -> dict[str, Any]:
    """Return a string with an enum."""
    return {"type": "string", "enum": list(values)}


def number(kind: str, least: float, most: float | None = None) -> dict[str, Any]:
    """Return an ``integer`` or a ``float`` within bounds."""
    return {"type": kind, "min": least, **({} if most is None else {"max": most})}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A kind of SageMaker job."""

    api: str
    """Name in Create…, Describe… and Stop… operations: ``TrainingJob``."""

    resource: str
    """Resource type in its ARN: ``training-job``."""

    log_group: str
    """Log group, which is also the namespace of its metrics (developer guide, "CloudWatch Logs
    for Amazon SageMaker AI" and "Metrics for monitoring")."""

    machines: Literal["training", "processing", "transform"]
    """Price list and quotas of its instances."""

    instances: str
    """Path of InstanceType and InstanceCount in its request."""

    image: str = ""
    """Path of the container image in its request; empty if it names none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Members of Arguments of which one must be given, a rule that botocore's model lacks."""

    keys: tuple[str | int, ...] = ()
    """Path to the structure that has them; 0 stands for every item of a list."""

    members: tuple[str, ...]
    source: str
    several: bool = False
    """True if more than one may be given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedMember:
    """A member of ``request`` that CreatePipeline does not take in a step."""

    member: str
    keys: tuple[str | int, ...] = ()
    """Path to the structure that has it, as in :class:`Choice`."""

    instead: str = ""
    """What does the same; empty if nothing does."""

    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepType:
    """A type of step. Facts for a single tool are with that tool, under ``name``."""

    name: str
    """Value of ``Type`` in a definition."""

    request: str | None = None
    """Request of botocore's model whose members its Arguments are."""

    arguments: Body = field(default_factory=structure)
    """Shape of its Arguments if they are not a request."""

    describe: str | None = None
    """Shape of botocore's model that its properties have, as the SDK names it.

    Without it, and without ``properties``, the step offers nothing to others."""

    listing: str | None = None
    """Second such shape, whose members are properties, too."""

    variants: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Member of Arguments → (request, describe) if the step has it."""

    service: str = "sagemaker"
    """Name of the service with these shapes in botocore."""

    properties: Body = field(default_factory=dict)
    """Properties that the SDK's step class declares: in place of ``describe``, or beside it."""

    open_members: tuple[str, ...] = ()
    """Properties that are JSON in a string, into which a reference may reach."""

    made_up: str = ""
    """Required member of ``request`` that the service makes up; the SDK trims it."""

    refused_members: tuple[RefusedMember, ...] = ()

    choices: tuple[Choice, ...] = ()
    fields: Body = field(default_factory=dict)
    """Fields of the step, besides Arguments and those that every step has."""

    required_members: tuple[str, ...] = ()
    """Names of required ``fields``."""

    nests: tuple[str, ...] = ()
    """Arguments that hold further steps."""

    is_cached: bool = False
    """True if it may have a CacheConfig."""

    cache_key: tuple[str, ...] = ()
    """Arguments that form its cache key, ``A.B`` for a member of one; empty for a type whose key no
    tool here computes."""

    is_retried: bool = False
    """True if it may have RetryPolicies."""

    metadata: str = ""
    """Member in the Metadata of an execution's step; empty if that is ``name``."""

    role: str = ""
    """Member of Arguments with the role that its work assumes; empty: the pipeline's role."""

    job: Job | None = None
    """Kind of job that it starts."""

    is_charged: bool = True
    """True if it may cost something."""

    @property
    def metadata_key(self) -> str:
        """Member of an execution step's Metadata that names what the step created."""
        return self.metadata or self.name

    @property
    def sole_job(self) -> Job | None:
        """Its job, if the step is nothing else; a check step also compares its job's results."""
        return self.job if self.job and self.job.api == self.metadata_key else None

    @property
    def outputs(self) -> bool:
        """True if each step declares its own outputs: ``OutputParameters['x']``."""
        return "OutputParameters" in self.fields

    def shape_names(self, arguments: Mapping[str, Any]) -> tuple[str | None, str | None]:
        """Return the request and the describe shape of a step with these Arguments."""
        matches = (names for member, names in self.variants.items() if member in arguments)
        return next(matches, (self.request, self.describe))

    def step_shape(self) -> dict[str, Any]:
        """Return all fields of such a step, as a structure in botocore's form."""
        members = {
            **COMMON,
            **({"CacheConfig": CACHE} if self.is_cached else {}),
            **({"RetryPolicies": list_of(RETRY)} if self.is_retried else {}),
            **self.fields,
        }
        return structure("Arguments", *self.required_members, **members)


COMMON = {
    "Name": STRING,
    "Type": STRING,
    "Arguments": ANYTHING,
    "DependsOn": list_of(ANYTHING),
    "DisplayName": {"type": "string", "max": 256},
    "Description": {"type": "string", "max": 3072},
}
"""Fields of every step. Lengths: botocore's StepDisplayName and StepDescription."""

CACHE = structure("Enabled", Enabled=BOOLEAN, ExpireAfter={"type": "string", "min": 1})
RETRY = structure(
    "ExceptionType",
    ExceptionType=list_of(one_of(*CAUSES), min=1),
    BackoffRate=number("float", 0),
    **{member: number("integer", *bounds) for member, bounds in LIMITS.items()},
)
