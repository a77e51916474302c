"""Context that every step is built with: the session, the account's settings, where code and runs
live.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sagemaker.core.helper.pipeline_variable import PipelineVariable
from sagemaker.core.workflow.execution_variables import ExecutionVariables
from sagemaker.core.workflow.functions import Join
from sagemaker.core.workflow.parameters import Parameter
from sagemaker.core.workflow.pipeline_context import PipelineSession
from sagemaker.mlops.workflow.retry import RetryPolicy
from sagemaker.mlops.workflow.steps import CacheConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class StepContext:
    """Argument of every ``steps/<name>/step.py``; plain values, none of the recipe's own types."""

    session: PipelineSession
    """Session that compiles requests, and uploads nothing."""

    parameters: dict[str, Parameter | str | int | float]
    """Values of the pipeline's parameters by name; plain values where the recipe makes them
    constant."""

    role: str
    """ARN of the role that jobs assume."""

    root_uri: str
    """``s3://bucket/prefix`` under which everything of this pipeline lives, no slash at the end."""

    kms_key: str | None
    """KMS key (id, ARN or alias) for outputs; None for the account's default."""

    volume_key: Callable[[str], str | None]
    """Instance type → KMS key of its volume; None where the hardware encrypts its disks, for which
    the service refuses a key."""

    subnets: tuple[str, ...]
    """VPC subnets of every job; empty for none."""

    security_groups: tuple[str, ...]
    """VPC security groups of every job; empty for none."""

    network_isolation: bool
    """True if containers are cut off from the network."""

    encrypt_traffic: bool
    """True if traffic between a job's instances is encrypted."""

    tags: dict[str, str]
    """Tags of every job and of the model package group."""

    code: Callable[[str], str]
    """Step name → the S3 URI of that step's code, named by its content."""

    wheels: Callable[[str], str | None]
    """Step name → the S3 URI of the wheels that the step's job installs; None where it asks an
    index."""

    pip: Callable[[str], Mapping[str, str]]
    """Folder of the wheels in a job → pip's settings there, as environment variables."""

    cache: CacheConfig | None
    """The step cache's settings; None when the cache is off."""

    retries: tuple[RetryPolicy, ...]
    """Retry policies of the job steps."""

    def text(self, name: str) -> PipelineVariable | str:
        """Return the value of a parameter where only a string is accepted."""
        value = self.parameters[name]
        return value.to_string() if isinstance(value, PipelineVariable) else str(value)

    def run_uri(self, *parts: str) -> PipelineVariable:
        """Return ``<root_uri>/runs/<execution id>/<parts>``, known when the pipeline runs."""
        values = [f"{self.root_uri}/runs", ExecutionVariables.PIPELINE_EXECUTION_ID, *parts]
        return Join(on="/", values=values)

    def aws_tags(self) -> list[dict[str, str]]:
        """Return the tags in the form of the AWS APIs, in a fixed order."""
        return [{"Key": key, "Value": value} for key, value in sorted(self.tags.items())]
