"""Step types that compare data or a model with a baseline in a processing job."""

from trainyard.language.step_types.job_steps import PROCESSING_JOB
from trainyard.language.step_types.step_type import (
    NULLABLE_BOOLEAN,
    NULLABLE_STRING,
    STRING,
    StepType,
    make_enum,
)

_CHECK = {
    "ModelPackageGroupName": NULLABLE_STRING,
    "SkipCheck": NULLABLE_BOOLEAN,
    "FailOnViolation": NULLABLE_BOOLEAN,
    "RegisterNewBaseline": NULLABLE_BOOLEAN,
    "SuppliedBaselineStatistics": NULLABLE_STRING,
    "SuppliedBaselineConstraints": NULLABLE_STRING,
}
_CONSTRAINTS = ("CalculatedBaselineConstraints", "BaselineUsedForDriftCheckConstraints")
_STATISTICS = ("CalculatedBaselineStatistics", "BaselineUsedForDriftCheckStatistics")

# Both types can be retried: AWS's JSON schema of definitions has RetryPolicies for them, although
# the SDK's classes set none.
QUALITY_CHECK = StepType(
    name="QualityCheck",
    request="CreateProcessingJobRequest",
    properties=dict.fromkeys((*_CONSTRAINTS, *_STATISTICS), STRING),
    made_up="ProcessingJobName",
    fields={**_CHECK, "CheckType": make_enum("DATA_QUALITY", "MODEL_QUALITY")},
    required_members=("CheckType",),
    is_cached=True,
    is_retried=True,
    role="RoleArn",
    job=PROCESSING_JOB,
)

CLARIFY_CHECK = StepType(
    name="ClarifyCheck",
    request="CreateProcessingJobRequest",
    properties=dict.fromkeys(_CONSTRAINTS, STRING),
    made_up="ProcessingJobName",
    fields={
        **_CHECK,
        "CheckType": make_enum("DATA_BIAS", "MODEL_BIAS", "MODEL_EXPLAINABILITY"),
        "ModelName": STRING,
    },
    required_members=("CheckType",),
    is_cached=True,
    is_retried=True,
    role="RoleArn",
    job=PROCESSING_JOB,
)
