"""Settings that several steps share."""

from pydantic import Field

from steps.job_arguments import Settings

Section = Settings
"""Section of a recipe."""
S3_URI = r"^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/\S*)?$"
"""Pattern of a place in S3."""


class ProcessingCompute(Section):
    """The machines that a processing step runs on."""

    instance_type: str = Field(default="ml.m5.large", pattern=r"^ml\.[a-z0-9-]+\.[a-z0-9]+$")
    """SageMaker instance type of every instance."""

    instance_count: int = Field(default=1, ge=1, le=100)
    """Number of instances."""

    volume_gb: int = Field(default=30, ge=1, le=16384)
    """Size of each instance's storage volume, in GB; holds the step's input and output."""

    max_runtime_minutes: int = Field(default=60, ge=1, le=7200)
    """Minutes after which the step is stopped."""
