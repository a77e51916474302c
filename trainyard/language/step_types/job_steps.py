"""Step types that start a SageMaker job."""

from collections.abc import Mapping
from typing import Any

from trainyard.language.step_types.step_type import (
    Choice,
    Job,
    RefusedMember,
    StepType,
    make_list,
    make_structure,
)

REMOVAL_SOURCE = "SDK 3.27: the {} step removes it"
DOCUMENTED_SOURCE, REMEMBERED_SOURCE = (
    "botocore: {} (documentation)",
    "API reference: {}, from memory",
)

TRAINING_JOB = Job(
    api="TrainingJob",
    resource="training-job",
    log_group="/aws/sagemaker/TrainingJobs",
    machines="training",
    instances="ResourceConfig",
    image="AlgorithmSpecification.TrainingImage",
)
PROCESSING_JOB = Job(
    api="ProcessingJob",
    resource="processing-job",
    log_group="/aws/sagemaker/ProcessingJobs",
    machines="processing",
    instances="ProcessingResources.ClusterConfig",
    image="AppSpecification.ImageUri",
)
TRANSFORM_JOB = Job(
    api="TransformJob",
    resource="transform-job",
    log_group="/aws/sagemaker/TransformJobs",
    machines="transform",
    instances="TransformResources",
)

DRIVERS = "/opt/ml/input/data/sm_drivers"
"""Folder with SDK v3's drivers in a training container: the channel that the SDK adds to the job.
The drivers are the scripts that start the user's script."""
PROGRAM, FOLDER = "sagemaker_program", "sagemaker_submit_directory"
"""Hyperparameters that tell the sagemaker-training toolkit which file to run, and its folder."""


def has_driver_program(request: Mapping[str, Any]) -> bool:
    """Return whether a training job starts SDK v3's drivers: its hyperparameters make the toolkit
    run a program in the drivers' folder.

    ``request`` is that of CreateTrainingJob, or a TrainingJobDefinition of a tuning job.
    """
    hyperparameters = request.get("HyperParameters") or request.get("StaticHyperParameters") or {}
    return hyperparameters.get(FOLDER) == DRIVERS and isinstance(hyperparameters.get(PROGRAM), str)


TRAINING = StepType(
    name="Training",
    request="CreateTrainingJobRequest",
    describe="DescribeTrainingJobResponse",
    made_up="TrainingJobName",
    # The first three are optional in botocore's model, because serverless jobs do not have them.
    choices=(
        *(
            Choice(
                members=(member, "ServerlessJobConfig"),
                source=REMEMBERED_SOURCE.format("CreateTrainingJob"),
                several=True,
            )
            for member in ("AlgorithmSpecification", "ResourceConfig", "StoppingCondition")
        ),
        Choice(
            keys=("ResourceConfig",),
            members=("InstanceType", "InstanceGroups", "InstancePreferences"),
            source=REMEMBERED_SOURCE.format("ResourceConfig"),
            several=True,
        ),
        Choice(
            keys=("AlgorithmSpecification",),
            members=("TrainingImage", "AlgorithmName"),
            source=DOCUMENTED_SOURCE.format("AlgorithmSpecification"),
        ),
        Choice(
            keys=("InputDataConfig", 0, "DataSource"),
            members=("S3DataSource", "FileSystemDataSource", "DatasetSource"),
            source=REMEMBERED_SOURCE.format("DataSource"),
        ),
    ),
    is_cached=True,
    cache_key=(
        "AlgorithmSpecification",
        "CheckpointConfig",
        "DebugHookConfig",
        "DebugRuleConfigurations",
        "Environment",
        "HyperParameters",
        "InputDataConfig",
    ),
    is_retried=True,
    metadata="TrainingJob",
    role="RoleArn",
    job=TRAINING_JOB,
)
"""The steps of the SDK's ``@step`` and of notebook jobs are also of this type."""

PROCESSING = StepType(
    name="Processing",
    request="CreateProcessingJobRequest",
    describe="DescribeProcessingJobResponse",
    made_up="ProcessingJobName",
    choices=(
        Choice(
            keys=("ProcessingInputs", 0),
            members=("S3Input", "DatasetDefinition"),
            source=REMEMBERED_SOURCE.format("ProcessingInput"),
        ),
        Choice(
            keys=("ProcessingOutputConfig", "Outputs", 0),
            members=("S3Output", "FeatureStoreOutput"),
            source=REMEMBERED_SOURCE.format("ProcessingOutput"),
        ),
        Choice(
            keys=("ProcessingResources", "ClusterConfig"),
            members=("InstanceType", "InstancePreferences"),
            source=REMEMBERED_SOURCE.format("ProcessingClusterConfig"),
            several=True,
        ),
    ),
    fields={
        "PropertyFiles": make_list(
            make_structure(
                "PropertyFileName",
                "OutputName",
                "FilePath",
                PropertyFileName={"type": "string", "min": 1},
                OutputName={"type": "string", "min": 1},
                FilePath={"type": "string", "min": 1},
            )
        )
    },
    is_cached=True,
    cache_key=("AppSpecification", "Environment", "ProcessingInputs"),
    is_retried=True,
    metadata="ProcessingJob",
    role="RoleArn",
    job=PROCESSING_JOB,
)

TRANSFORM = StepType(
    name="Transform",
    request="CreateTransformJobRequest",
    describe="DescribeTransformJobResponse",
    made_up="TransformJobName",
    is_cached=True,
    cache_key=("DataProcessing", "Environment", "ModelName", "TransformInput"),
    is_retried=True,
    metadata="TransformJob",
    job=TRANSFORM_JOB,
)
"""It has no role: the job assumes the role of the model in ModelName."""

TUNING = StepType(
    name="Tuning",
    request="CreateHyperParameterTuningJobRequest",
    describe="DescribeHyperParameterTuningJobResponse",
    listing="ListTrainingJobsForHyperParameterTuningJobResponse",
    made_up="HyperParameterTuningJobName",
    choices=(
        Choice(
            members=("TrainingJobDefinition", "TrainingJobDefinitions"),
            source=REMEMBERED_SOURCE.format("CreateHyperParameterTuningJob"),
        ),
    ),
    is_cached=True,
    cache_key=(
        "HyperParameterTuningJobConfig",
        "TrainingJobDefinition.AlgorithmSpecification",
        "TrainingJobDefinition.HyperParameterRanges",
        "TrainingJobDefinition.InputDataConfig",
        "TrainingJobDefinition.StaticHyperParameters",
        "TrainingJobDefinition.TuningObjective",
        "TrainingJobDefinitions",
    ),
    is_retried=True,
    metadata="TuningJob",
)
"""It has no role or job of its own: those of its training jobs are in the training definitions."""

AUTOML = StepType(
    name="AutoML",
    request="CreateAutoMLJobRequest",
    describe="DescribeAutoMLJobResponse",
    variants={
        "AutoMLProblemTypeConfig": ("CreateAutoMLJobV2Request", "DescribeAutoMLJobV2Response")
    },
    properties={
        "BestCandidateProperties": make_structure(
            ModelInsightsJsonReportPath={"type": "string"},
            ExplainabilityJsonReportPath={"type": "string"},
        )
    },
    made_up="AutoMLJobName",
    refused_members=(
        RefusedMember(
            member="ModelDeployConfig",
            instead="a Model step and an endpoint",
            source=REMOVAL_SOURCE.format("AutoML"),
        ),
        RefusedMember(
            member="GenerateCandidateDefinitionsOnly", source=REMOVAL_SOURCE.format("AutoML")
        ),
    ),
    is_cached=True,
    is_retried=True,
    metadata="AutoMLJob",
    role="RoleArn",
)

JOB = StepType(
    name="Job",
    request="CreateJobRequest",
    describe="DescribeJobResponse",
    open_members=("JobConfigDocument",),
    made_up="JobName",
    is_cached=True,
    is_retried=True,
    role="RoleArn",
)
"""AWS's pages do not mention this type. That it can be cached and retried follows from the SDK's
JobStep, which has cache_config and retry_policies."""
