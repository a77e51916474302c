"""Step types that create, register and serve models."""

from trainyard.language.step_types.job_steps import (
    DOCUMENTED_SOURCE,
    REMEMBERED_SOURCE,
    REMOVAL_SOURCE,
)
from trainyard.language.step_types.step_type import Choice, RefusedMember, StepType

MODEL = StepType(
    name="Model",
    request="CreateModelInput",
    describe="DescribeModelOutput",
    made_up="ModelName",
    choices=(
        Choice(
            members=("PrimaryContainer", "Containers"),
            source=REMEMBERED_SOURCE.format("CreateModel"),
        ),
    ),
    refused_members=tuple(
        RefusedMember(member="AdditionalModelDataSources", keys=keys, source="#4994")
        for keys in (("PrimaryContainer",), ("Containers", 0))
    ),
    is_retried=True,
    role="ExecutionRoleArn",
    is_charged=False,
)

REGISTER_MODEL = StepType(
    name="RegisterModel",
    request="CreateModelPackageInput",
    describe="DescribeModelPackageOutput",
    refused_members=tuple(
        RefusedMember(member=member, source=f"#3472; {REMOVAL_SOURCE.format('RegisterModel')}")
        for member in ("ModelPackageName", "CertifyForMarketplace", "Description")
    ),
    choices=(
        Choice(
            members=("ModelPackageGroupName", "ModelPackageName"),
            source=DOCUMENTED_SOURCE.format("CreateModelPackageInput"),
        ),
    ),
    is_retried=True,
    is_charged=False,
)

ENDPOINT_CONFIG = StepType(
    name="EndpointConfig",
    request="CreateEndpointConfigInput",
    describe="DescribeEndpointConfigOutput",
    is_cached=True,
    is_retried=True,
)

ENDPOINT = StepType(
    name="Endpoint",
    request="CreateEndpointInput",
    describe="DescribeEndpointOutput",
    is_cached=True,
)
"""It can be cached and not retried, according to the SDK's EndpointStep; in AWS's JSON schema it
has no RetryPolicies."""

INFERENCE_COMPONENT = StepType(
    name="InferenceComponent",
    request="CreateInferenceComponentInput",
    describe="DescribeInferenceComponentOutput",
)
