"""What a step of each type is made of: the shape of its Arguments, and its own fields.

Arguments that SageMaker passes on are checked against the matching Create… request of botocore's
model. The rest are written here in botocore's form, from what the SDK's step classes emit.
"""

from collections.abc import Mapping
from typing import Any

from trainyard.language.document import Step
from trainyard.validate.shapes import Shape, service_shapes

REQUESTS = {
    "Training": "CreateTrainingJobRequest",
    "Processing": "CreateProcessingJobRequest",
    "QualityCheck": "CreateProcessingJobRequest",
    "ClarifyCheck": "CreateProcessingJobRequest",
    "Transform": "CreateTransformJobRequest",
    "Tuning": "CreateHyperParameterTuningJobRequest",
    "Model": "CreateModelInput",
    "RegisterModel": "CreateModelPackageInput",
    "AutoML": "CreateAutoMLJobRequest",
    "EndpointConfig": "CreateEndpointConfigInput",
    "Endpoint": "CreateEndpointInput",
    "InferenceComponent": "CreateInferenceComponentInput",
    "Job": "CreateJobRequest",
}
"""Step type → the request whose members its Arguments are."""
GENERATED = {
    "TrainingJobName",
    "ProcessingJobName",
    "TransformJobName",
    "HyperParameterTuningJobName",
    "AutoMLJobName",
    "ModelName",
    "JobName",
}
"""Required members that the service makes up: the SDK trims them (``trim_request_dict``)."""
REFUSED = {
    "RegisterModel": {"CertifyForMarketplace": "nothing", "Description": "nothing"},
    "AutoML": {
        "ModelDeployConfig": "a Model step and an endpoint",
        "GenerateCandidateDefinitionsOnly": "nothing",
    },
}
"""Members of a request that a pipeline's step may not have → what to use instead (SDK 3.27)."""


def structure(*required: str, **members: Any) -> dict[str, Any]:
    """A structure in botocore's form; ``required`` are names of members."""
    return {"type": "structure", "members": members, "required": list(required)}


def list_of(member: Mapping[str, Any], **limits: int) -> dict[str, Any]:
    """A list in botocore's form; ``limits`` are min and max."""
    return {"type": "list", "member": member, **limits}


def map_of(value: Mapping[str, Any]) -> dict[str, Any]:
    """A map from text in botocore's form."""
    return {"type": "map", "key": STRING, "value": value}


def one_of(*values: str) -> dict[str, Any]:
    """A string with an enum in botocore's form."""
    return {"type": "string", "enum": list(values)}


STRING, BOOLEAN, ANYTHING = {"type": "string"}, {"type": "boolean"}, {"type": "any"}
INTEGER, FLOAT = {"type": "integer"}, {"type": "float"}
NULLABLE_STRING = {"type": "string", "nullable": True}
CACHE = structure("Enabled", Enabled=BOOLEAN, ExpireAfter={"type": "string", "min": 1})
RETRY = structure(
    "ExceptionType",
    ExceptionType=list_of(
        one_of(
            "Step.SERVICE_FAULT",
            "Step.THROTTLING",
            "SageMaker.JOB_INTERNAL_ERROR",
            "SageMaker.CAPACITY_ERROR",
            "SageMaker.RESOURCE_LIMIT",
        ),
        min=1,
    ),
    IntervalSeconds={"type": "integer", "min": 1},
    BackoffRate={"type": "float", "min": 0},
    MaxAttempts={"type": "integer", "min": 1, "max": 20},
    ExpireAfterMin={"type": "integer", "min": 1, "max": 14400},
)
"""AWS: "Retry Policy for Pipeline Steps"; the limits are those of the SDK's RetryPolicy."""
OUTPUTS = list_of(
    structure(
        "OutputName",
        "OutputType",
        OutputName=STRING,
        OutputType=one_of("String", "Integer", "Boolean", "Float"),
    )
)
PROPERTY_FILES = list_of(
    structure(
        "PropertyFileName",
        "OutputName",
        "FilePath",
        PropertyFileName={"type": "string", "min": 1},
        OutputName={"type": "string", "min": 1},
        FilePath={"type": "string", "min": 1},
    )
)
CHECK = {
    "ModelPackageGroupName": NULLABLE_STRING,
    "SkipCheck": BOOLEAN,
    "FailOnViolation": BOOLEAN,
    "RegisterNewBaseline": BOOLEAN,
    "SuppliedBaselineStatistics": NULLABLE_STRING,
    "SuppliedBaselineConstraints": NULLABLE_STRING,
}
COMMON = {
    "Name": STRING,
    "Type": STRING,
    "Arguments": ANYTHING,
    "DependsOn": list_of(ANYTHING),
    "DisplayName": {"type": "string", "max": 256},
    "Description": {"type": "string", "max": 3072},
}
"""Lengths: botocore's StepDisplayName and StepDescription."""
RETRIED = {"RetryPolicies": list_of(RETRY)}
CACHED = {"CacheConfig": CACHE}
FIELDS: dict[str, dict[str, Any]] = {
    "Training": {**CACHED, **RETRIED},
    "Processing": {**CACHED, **RETRIED, "PropertyFiles": PROPERTY_FILES},
    "Transform": {**CACHED, **RETRIED},
    "Tuning": {**CACHED, **RETRIED},
    "AutoML": {**CACHED, **RETRIED},
    "Model": RETRIED,
    "RegisterModel": RETRIED,
    "EndpointConfig": {**CACHED, **RETRIED},
    "Endpoint": {**CACHED, **RETRIED},
    "InferenceComponent": {},
    "Job": {**CACHED, **RETRIED},
    "Condition": {},
    "Fail": {},
    "Lambda": {
        **CACHED,
        "FunctionArn": {"shape": "LambdaFunctionArn"},
        "OutputParameters": OUTPUTS,
    },
    "Callback": {**CACHED, "SqsQueueUrl": STRING, "OutputParameters": OUTPUTS},
    "EMR": CACHED,
    "EMRServerless": {**CACHED, **RETRIED},
    "QualityCheck": {
        **CACHED,
        **CHECK,
        "CheckType": one_of("DATA_QUALITY", "MODEL_QUALITY"),
    },
    "ClarifyCheck": {
        **CACHED,
        **CHECK,
        "CheckType": one_of("DATA_BIAS", "MODEL_BIAS", "MODEL_EXPLAINABILITY"),
        "ModelName": STRING,
    },
    "Lineage": {},
    "Cleanup": {},
    "ForEach": {},
}
"""Step type → its fields beside the common ones, as SDK 3.27's ``to_request`` writes them."""
NEEDED = {
    "Lambda": ("FunctionArn",),
    "Callback": ("SqsQueueUrl",),
    "QualityCheck": ("CheckType",),
    "ClarifyCheck": ("CheckType",),
}
_ENTITY = structure(Arn=STRING, Name=STRING, Type=one_of("Action", "Artifact", "Context"))
OWN_ARGUMENTS: dict[str, dict[str, Any]] = {
    "Condition": structure(
        "Conditions",
        Conditions=ANYTHING,
        IfSteps=list_of(ANYTHING),
        ElseSteps=list_of(ANYTHING),
    ),
    "Fail": structure(ErrorMessage={"type": "string", "max": 3072}),
    "Lambda": map_of(ANYTHING),
    "Callback": map_of(ANYTHING),
    "EMR": structure(
        "StepConfig",
        StepConfig={
            **structure(
                "HadoopJarStep", Name=STRING, HadoopJarStep={"shape": "HadoopJarStepConfig"}
            )
        },
        ClusterId=STRING,
        ExecutionRoleArn=STRING,
        ClusterConfig={
            "shape": "RunJobFlowInput",
            "without": ("Name", "Steps", "AutoTerminationPolicy"),
        },
    ),
    "EMRServerless": structure(
        "ExecutionRoleArn",
        "JobConfig",
        ExecutionRoleArn=STRING,
        ApplicationId=STRING,
        ApplicationConfig=ANYTHING,
        JobConfig=structure(
            "executionRoleArn",
            "jobDriver",
            applicationId=STRING,
            executionRoleArn=STRING,
            jobDriver={"shape": "JobDriver"},
            configurationOverrides={"shape": "ConfigurationOverrides"},
            executionTimeoutMinutes=INTEGER,
            name=STRING,
            tags=map_of(STRING),
        ),
    ),
    "Lineage": structure(
        Actions=list_of({"shape": "CreateActionRequest"}),
        Artifacts=list_of({"shape": "CreateArtifactRequest"}),
        Contexts=list_of({"shape": "CreateContextRequest"}),
        Associations=list_of(
            structure(
                "Source",
                "Destination",
                Source=_ENTITY,
                Destination=_ENTITY,
                AssociationType={"shape": "AssociationEdgeType"},
            )
        ),
    ),
    "Cleanup": structure(
        "Resources",
        Resources=structure(
            "S3",
            S3=list_of(
                structure("StepName", StepName=STRING, S3Uris=list_of(STRING, min=1)), min=1
            ),
        ),
    ),
    "ForEach": structure(
        "IterableItems",
        "MaxConcurrency",
        "ForEachBody",
        IterableItems=ANYTHING,
        MaxConcurrency={"type": "integer", "min": 1, "max": 50},
        Selector=structure("Pick", "Field", Pick=one_of("MaxBy", "MinBy"), Field=ANYTHING),
        ForEachBody=list_of(ANYTHING, min=1),
    ),
}
"""Step type → its Arguments where they are no request of SageMaker's, from SDK 3.27's classes."""
SERVICES = {"EMR": "emr", "EMRServerless": "emr-serverless"}


def arguments_shape(step: Step) -> Shape | None:
    """What the step's Arguments must be; None for a type that is not known."""
    if step.type in OWN_ARGUMENTS:
        service = SERVICES.get(step.type, "sagemaker")
        body = OWN_ARGUMENTS[step.type]
        return Shape("SDK 3.27", f"{step.type}Step.Arguments", body, service)
    if step.type not in REQUESTS:
        return None
    request = REQUESTS[step.type]
    if step.type == "AutoML" and "AutoMLProblemTypeConfig" in step.arguments:
        request = "CreateAutoMLJobV2Request"
    body = service_shapes("sagemaker")[request]
    required = [name for name in body.get("required", ()) if not _made_up(step, name)]
    return Shape("botocore", request, {**body, "required": required})


def _made_up(step: Step, member: str) -> bool:
    """A Transform step's ModelName is the model to use; a Model step's is made up."""
    return member in GENERATED and not (member == "ModelName" and step.type == "Transform")


PIPELINE = structure(
    PipelineExperimentConfig={
        **structure(
            "ExperimentName",
            "TrialName",
            ExperimentName={"shape": "ExperimentEntityName"},
            TrialName={"shape": "ExperimentEntityName"},
        ),
        "nullable": True,
    },
    MlflowConfig={"type": "any"},
)
"""The pipeline's own configuration, beside its steps."""


def step_shape(type_: str) -> Shape:
    """The fields of a step of this type, known or not, as a structure."""
    fields = {**COMMON, **FIELDS[type_]}
    required = ["Arguments", *NEEDED.get(type_, ())]
    body = {"type": "structure", "members": fields, "required": required}
    return Shape("SDK 3.27", f"{type_}Step", body)
