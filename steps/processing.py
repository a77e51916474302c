"""Declare a processing step with our code as an input, our entry point, and stable names.

``Processor`` is used, not ``ScriptProcessor`` or ``FrameworkProcessor``, because these upload code
while the definition is being built, and put a job name with a timestamp into its key (#2736 #3384).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sagemaker.core.helper.pipeline_variable import PipelineVariable
from sagemaker.core.network import NetworkConfig
from sagemaker.core.processing import Processor
from sagemaker.core.shapes import (
    ProcessingInput,
    ProcessingOutput,
    ProcessingS3Input,
    ProcessingS3Output,
)
from sagemaker.core.workflow.execution_variables import ExecutionVariables
from sagemaker.core.workflow.functions import Join
from sagemaker.core.workflow.parameters import Parameter
from sagemaker.core.workflow.pipeline_context import PipelineSession
from sagemaker.core.workflow.properties import PropertyFile
from sagemaker.mlops.workflow.retry import RetryPolicy
from sagemaker.mlops.workflow.steps import CacheConfig, ProcessingStep, Step

from steps.config import ProcessingCompute


@dataclass(frozen=True, slots=True, kw_only=True)
class StepContext:
    """Values that every ``steps/<name>/step.py`` needs; plain ones, no types of the recipe."""

    session: PipelineSession
    """Session that compiles requests, and uploads nothing."""

    parameters: dict[str, Parameter | str | int | float]
    """Values of the pipeline's parameters by name; plain values for those that the recipe makes
    constant.
    """

    role: str
    """ARN of the role that jobs assume."""

    root_uri: str
    """``s3://bucket/prefix`` of everything of this pipeline, without a slash at the end."""

    kms_key: str | None
    """KMS key (id, ARN or alias) for outputs; None for the account's default."""

    volume_key: Callable[[str], str | None]
    """Function that returns the KMS key of an instance type's volume; None if the hardware encrypts
    its disks, for which the service refuses a key.
    """

    subnets: tuple[str, ...]
    """VPC subnets of every job; empty if there is no VPC."""

    security_groups: tuple[str, ...]
    """VPC security groups of every job; empty if there is no VPC."""

    network_isolation: bool
    """Whether containers are cut off from the network."""

    encrypt_traffic: bool
    """Whether traffic between a job's instances is encrypted."""

    tags: dict[str, str]
    """Tags of every job and of the model package group."""

    code: Callable[[str], str]
    """Function that returns the S3 URI of a step's code, by the step's name; the URI contains a
    hash of the code.
    """

    wheels: Callable[[str], str | None]
    """Function that returns the S3 URI of the wheels that a step's job installs, by the step's
    name; None if the job uses a package index.
    """

    pip: Callable[[str], Mapping[str, str]]
    """Function that returns pip's settings as environment variables, given the wheels' folder in
    the job.
    """

    cache: CacheConfig | None
    """The step cache's settings; None if the cache is off."""

    retries: tuple[RetryPolicy, ...]
    """Retry policies of the job steps."""

    def get_parameter_string(self, name: str) -> PipelineVariable | str:
        """Return the value of a parameter as a string, for places that accept nothing else."""
        value = self.parameters[name]
        return value.to_string() if isinstance(value, PipelineVariable) else str(value)

    def build_run_uri(self, *parts: str) -> PipelineVariable:
        """Return ``<root_uri>/runs/<execution id>/<parts>``, known only at run time."""
        values = [f"{self.root_uri}/runs", ExecutionVariables.PIPELINE_EXECUTION_ID, *parts]
        return Join(on="/", values=values)

    def build_aws_tags(self) -> list[dict[str, str]]:
        """Return the tags as AWS's APIs take them, [{"Key": …, "Value": …}], sorted by key."""
        return [{"Key": key, "Value": value} for key, value in sorted(self.tags.items())]


Splits = Mapping[str, str | PipelineVariable]
"""S3 URIs of the dataset's folders: ``train``, ``validation`` and ``test``, and ``summary`` if the
shard step wrote one of the train split; empty if there is no dataset.
"""

CODE = "/opt/ml/processing/input/code"
WHEELS = "/opt/ml/processing/input/wheels"


def make_input(
    name: str, uri: str | PipelineVariable, folder: str | None = None, *, is_sharded: bool = False
) -> ProcessingInput:
    """Return an input that copies an S3 prefix to ``/opt/ml/processing/input/<folder>``.

    ``folder`` is ``name`` by default. ``is_sharded``: whether each instance gets only a part of the
    objects. The mode is always File, because the service refuses FastFile for processing jobs
    (#4711).
    """
    return ProcessingInput(
        input_name=name,
        s3_input=ProcessingS3Input(
            s3_uri=uri,
            s3_data_type="S3Prefix",
            local_path=f"/opt/ml/processing/input/{folder or name}",
            s3_input_mode="File",
            s3_data_distribution_type="ShardedByS3Key" if is_sharded else "FullyReplicated",
        ),
    )


def make_output(name: str, uri: str | PipelineVariable) -> ProcessingOutput:
    """Return an output that uploads ``/opt/ml/processing/output/<name>`` when the job succeeds."""
    return ProcessingOutput(
        output_name=name,
        s3_output=ProcessingS3Output(
            s3_uri=uri, local_path=f"/opt/ml/processing/output/{name}", s3_upload_mode="EndOfJob"
        ),
    )


def make_processing_step(
    context: StepContext,
    name: str,
    *,
    image: str,
    compute: ProcessingCompute,
    arguments: Sequence[str | PipelineVariable],
    inputs: Sequence[ProcessingInput],
    outputs: Sequence[str],
    environment: Mapping[str, str] | None = None,
    instance_count: int | Parameter | None = None,
    property_files: Sequence[PropertyFile] = (),
    depends_on: Sequence[Step] = (),
    display_name: str,
    description: str,
) -> ProcessingStep:
    """Declare the step ``name``, which runs ``steps/<name>/job.py`` with ``arguments``.

    Args:
        outputs: names; each is uploaded to ``<root>/runs/<execution id>/<step>/<output>``.
        environment: further variables of the container.
        instance_count: overrides that of ``compute``, for a pipeline parameter.
        depends_on: steps that must have ended, in addition to those whose outputs are inputs.
    """
    step = name.lower()
    wheels_uri = context.wheels(step)
    wheels = [make_input("wheels", wheels_uri)] if wheels_uri else []
    processor = Processor(
        role=context.role,
        image_uri=image,
        instance_type=compute.instance_type,
        instance_count=instance_count or compute.instance_count,
        entrypoint=["/bin/bash", f"{CODE}/steps/container.sh", step],
        volume_size_in_gb=compute.volume_gb,
        volume_kms_key=context.volume_key(compute.instance_type),
        output_kms_key=context.kms_key,
        max_runtime_in_seconds=compute.max_runtime_minutes * 60,
        base_job_name=step,
        env={"PYTHONPATH": CODE, **context.pip(WHEELS), **(environment or {})},
        tags=context.build_aws_tags(),
        network_config=NetworkConfig(
            enable_network_isolation=context.network_isolation,
            encrypt_inter_container_traffic=context.encrypt_traffic,
            subnets=list(context.subnets) or None,
            security_group_ids=list(context.security_groups) or None,
        ),
        sagemaker_session=context.session,
    )
    step_args = processor.run(
        inputs=[*inputs, make_input("code", context.code(step)), *wheels],
        outputs=[make_output(output, context.build_run_uri(step, output)) for output in outputs],
        arguments=list(arguments),
    )
    return ProcessingStep(
        name=name,
        display_name=display_name,
        description=description,
        step_args=step_args,
        property_files=list(property_files),
        depends_on=list(depends_on) or None,
        cache_config=context.cache,
        retry_policies=list(context.retries),
    )


def split_argument(text: str, longest: int = 256) -> list[str]:
    """Split ``text`` into arguments of at most ``longest`` characters (botocore:
    ContainerArgument).

    No argument except the first starts with "-", which would make it an option.
    """
    parts = []
    while text:
        ends = (end for end in range(longest, 0, -1) if text[end : end + 1] != "-")
        end = next(ends, longest)
        parts.append(text[:end])
        text = text[end:]
    return parts


def build_output_uri(step: ProcessingStep, output: str) -> PipelineVariable:
    """Return the S3 URI of the step's output, even if the step's result is cached."""
    return step.properties.ProcessingOutputConfig.Outputs[output].S3Output.S3Uri
