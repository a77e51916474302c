"""Step types whose work another service does, or a program or person that reads a queue."""

from trainyard.language.step_types.step_type import (
    ANYTHING,
    INTEGER,
    STRING,
    Choice,
    StepType,
    make_enum,
    make_list,
    make_map,
    make_structure,
)

_OUTPUTS = make_list(
    make_structure(
        "OutputName",
        "OutputType",
        OutputName=STRING,
        OutputType=make_enum("String", "Integer", "Boolean", "Float"),
    )
)
STEP_CLASS = "SDK 3.27: {}"

LAMBDA = StepType(
    name="Lambda",
    arguments=make_map(ANYTHING),
    fields={"FunctionArn": {"shape": "LambdaFunctionArn"}, "OutputParameters": _OUTPUTS},
    required_members=("FunctionArn",),
    is_cached=True,
)

CALLBACK = StepType(
    name="Callback",
    arguments=make_map(ANYTHING),
    fields={"SqsQueueUrl": STRING, "OutputParameters": _OUTPUTS},
    required_members=("SqsQueueUrl",),
    is_cached=True,
)

EMR = StepType(
    name="EMR",
    arguments=make_structure(
        "StepConfig",
        StepConfig=make_structure(
            "HadoopJarStep", Name=STRING, HadoopJarStep={"shape": "HadoopJarStepConfig"}
        ),
        ClusterId=STRING,
        ExecutionRoleArn=STRING,
        ClusterConfig={
            "shape": "RunJobFlowInput",
            "without": ("Name", "Steps", "AutoTerminationPolicy"),
        },
    ),
    describe="Step",
    service="emr",
    properties={"ClusterId": STRING},
    choices=(Choice(members=("ClusterId", "ClusterConfig"), source=STEP_CLASS.format("EMRStep")),),
    is_cached=True,
    role="ExecutionRoleArn",
)

EMR_SERVERLESS = StepType(
    name="EMRServerless",
    arguments=make_structure(
        "ExecutionRoleArn",
        "JobConfig",
        ExecutionRoleArn=STRING,
        ApplicationId=STRING,
        ApplicationConfig=ANYTHING,
        JobConfig=make_structure(
            "executionRoleArn",
            "jobDriver",
            applicationId=STRING,
            executionRoleArn=STRING,
            jobDriver={"shape": "JobDriver"},
            configurationOverrides={"shape": "ConfigurationOverrides"},
            executionTimeoutMinutes=INTEGER,
            name=STRING,
            tags=make_map(STRING),
        ),
    ),
    describe="GetJobRunResponse",
    service="emr-serverless",
    choices=(
        Choice(
            members=("ApplicationId", "ApplicationConfig"),
            source=STEP_CLASS.format("EMRServerlessStep"),
        ),
    ),
    is_cached=True,
    is_retried=True,
    role="ExecutionRoleArn",
)
