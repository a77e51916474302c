"""What a type of step is: every fact of the language about it, which all tools read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from trainyard.language.retries import CAUSES, LIMITS
from trainyard.language.step_types.shape_form import (
    ANYTHING,
    BOOLEAN,
    STRING,
    Body,
    list_of,
    number,
    one_of,
    structure,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A kind of SageMaker job."""

    api: str
    """What stands behind Create, Describe and Stop: ``TrainingJob``."""

    resource: str
    """The resource type in its ARN: ``training-job``."""

    log_group: str
    """Its log group, which is also the namespace of its metrics (developer guide, "CloudWatch Logs
    for Amazon SageMaker AI" and "Metrics for monitoring")."""

    machines: Literal["training", "processing", "transform"]
    """The price list and the quotas that its instances are under."""

    instances: str
    """Where InstanceType and InstanceCount stand in its request."""

    image: str = ""
    """Where the container image stands in its request; empty where it names none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Members of Arguments of which one is wanted, which botocore's model does not say."""

    where: tuple[str | int, ...] = ()
    """The way to the structure that has them; 0 stands for every item of a list."""

    members: tuple[str, ...]
    source: str
    several: bool = False
    """Whether more than one may be there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepType:
    """One type of step. What a tool does with it stands with that tool, under ``name``."""

    name: str
    """``Type`` in a definition."""

    request: str | None = None
    """The request of botocore's model whose members its Arguments are."""

    arguments: Body = field(default_factory=lambda: structure())
    """The shape of its Arguments where they are no request."""

    describe: str | None = None
    """The shape of botocore's model that its properties have, as the SDK names it.

    Without it, and without ``properties``, the step offers nothing to others."""

    listing: str | None = None
    """A second such shape, whose members are properties too."""

    variants: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Member of Arguments → (request, describe) where the step has it."""

    service: str = "sagemaker"
    """botocore's name of the service with these shapes."""

    properties: Body = field(default_factory=dict)
    """Properties that the SDK's step class declares: in place of ``describe``, or beside it."""

    opened: tuple[str, ...] = ()
    """Properties that are JSON in a string, into which a reference may reach."""

    made_up: str = ""
    """The required member of ``request`` that the service makes up; the SDK trims it."""

    refused: Mapping[str, str] = field(default_factory=dict)
    """Members of ``request`` that a step may not have → what to use instead, or ``nothing``."""

    choices: tuple[Choice, ...] = ()
    fields: Body = field(default_factory=dict)
    """Its fields beside Arguments and those that every step has."""

    required: tuple[str, ...] = ()
    """Which of ``fields`` it needs."""

    nests: tuple[str, ...] = ()
    """The Arguments that hold further steps."""

    cached: bool = False
    """Whether it may have a CacheConfig."""

    cache_key: tuple[str, ...] = ()
    """The Arguments that make its key, ``A.B`` for a member of one; empty for a type whose key no
    tool here computes."""

    retried: bool = False
    """Whether it may have RetryPolicies."""

    metadata: str = ""
    """Its member in the Metadata of an execution's step; empty where that is ``name``."""

    role: str = ""
    """The member of Arguments with the role that its work assumes; empty: the pipeline's does."""

    job: Job | None = None
    """The kind of job that it starts."""

    charged: bool = True
    """Whether it may cost something."""

    @property
    def metadata_key(self) -> str:
        """The member of an execution step's Metadata that says what this one made."""
        return self.metadata or self.name

    @property
    def sole_job(self) -> Job | None:
        """Its job, where the step is that and nothing else; a check compares its job's results."""
        return self.job if self.job and self.job.api == self.metadata_key else None

    @property
    def outputs(self) -> bool:
        """Whether each step declares its own outputs: ``OutputParameters['x']``."""
        return "OutputParameters" in self.fields

    def shape_names(self, arguments: Mapping[str, Any]) -> tuple[str | None, str | None]:
        """The request and the describe shape of a step with these Arguments."""
        found = (names for member, names in self.variants.items() if member in arguments)
        return next(found, (self.request, self.describe))

    def step_shape(self) -> dict[str, Any]:
        """All fields of such a step, as a structure in botocore's form."""
        own = {
            **COMMON,
            **({"CacheConfig": CACHE} if self.cached else {}),
            **({"RetryPolicies": list_of(RETRY)} if self.retried else {}),
            **self.fields,
        }
        return structure("Arguments", *self.required, **own)


COMMON = {
    "Name": STRING,
    "Type": STRING,
    "Arguments": ANYTHING,
    "DependsOn": list_of(ANYTHING),
    "DisplayName": {"type": "string", "max": 256},
    "Description": {"type": "string", "max": 3072},
}
"""Lengths: botocore's StepDisplayName and StepDescription."""

CACHE = structure("Enabled", Enabled=BOOLEAN, ExpireAfter={"type": "string", "min": 1})
RETRY = structure(
    "ExceptionType",
    ExceptionType=list_of(one_of(*CAUSES), min=1),
    BackoffRate=number("float", 0),
    **{member: number("integer", *bounds) for member, bounds in LIMITS.items()},
)
