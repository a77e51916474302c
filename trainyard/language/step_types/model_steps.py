"""Steps that create, register and serve models."""

from trainyard.language.step_types.job_steps import DOCUMENTED, REMEMBERED, REMOVED
from trainyard.language.step_types.step_type import Choice, Refused, StepType

MODEL = StepType(
    name="Model",
    request="CreateModelInput",
    describe="DescribeModelOutput",
    made_up="ModelName",
    choices=(
        Choice(members=("PrimaryContainer", "Containers"), source=REMEMBERED.format("CreateModel")),
    ),
    refused=tuple(
        Refused(member="AdditionalModelDataSources", where=where, source="#4994")
        for where in (("PrimaryContainer",), ("Containers", 0))
    ),
    retried=True,
    role="ExecutionRoleArn",
    charged=False,
)

REGISTER_MODEL = StepType(
    name="RegisterModel",
    request="CreateModelPackageInput",
    describe="DescribeModelPackageOutput",
    refused=tuple(
        Refused(member=member, source=f"#3472; {REMOVED.format('RegisterModel')}")
        for member in ("ModelPackageName", "CertifyForMarketplace", "Description")
    ),
    choices=(
        Choice(
            members=("ModelPackageGroupName", "ModelPackageName"),
            source=DOCUMENTED.format("CreateModelPackageInput"),
        ),
    ),
    retried=True,
    charged=False,
)

ENDPOINT_CONFIG = StepType(
    name="EndpointConfig",
    request="CreateEndpointConfigInput",
    describe="DescribeEndpointConfigOutput",
    cached=True,
    retried=True,
)

ENDPOINT = StepType(
    name="Endpoint",
    request="CreateEndpointInput",
    describe="DescribeEndpointOutput",
    cached=True,
)
"""Cached, and not retried, according to the SDK's EndpointStep; AWS's JSON schema has no
RetryPolicies on it."""

INFERENCE_COMPONENT = StepType(
    name="InferenceComponent",
    request="CreateInferenceComponentInput",
    describe="DescribeInferenceComponentOutput",
)
