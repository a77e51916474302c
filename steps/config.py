"""Settings that several steps share."""

from typing import Annotated

from pydantic import Field

from steps.job_arguments import Settings

Section = Settings
"""Section of a recipe."""
S3Uri = Annotated[
    str,
    Field(
        pattern=r"^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/\S*)?$",
        examples=["s3://my-bucket/folder"],
    ),
]
"""A location in S3. Error messages about any pattern show its examples, not the pattern."""
InstanceType = Annotated[
    str, Field(pattern=r"^ml\.[a-z0-9-]+\.[a-z0-9]+$", examples=["ml.m5.large"])
]


class ProcessingCompute(Section):
    """The machines on which a processing step runs."""

    instance_type: InstanceType = "ml.m5.large"
    """SageMaker instance type of every instance."""

    instance_count: int = Field(default=1, ge=1, le=100)
    """Number of instances."""

    volume_gb: int = Field(default=30, ge=1, le=16384)
    """Size of each instance's storage volume, in GB; contains the step's input and output."""

    max_runtime_minutes: int = Field(default=60, ge=1, le=7200)
    """Minutes after which the step is stopped."""
