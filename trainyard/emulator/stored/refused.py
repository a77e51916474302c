"""How an operation of SageMaker is refused that nobody here does.

moto would answer many of them: it says ``Completed`` of a transform job that nobody ran.
"""

from trainyard.emulator.api import ApiError

_NEEDS = (
    (("AutoML",), "AutoML's own algorithms; a Tuning or Training step names its own"),
    (("CompilationJob", "Edge", "Device"), "SageMaker Neo's compilers and its devices"),
    (("MonitoringSchedule", "MonitoringAlert", "MonitoringExecution"), "Model Monitor's schedules"),
    (("LabelingJob", "Workteam", "Workforce", "FlowDefinition", "HumanTask"), "people who label"),
    (("NotebookInstance",), "a notebook server on an instance of its own"),
    (("Feature",), "a feature store, online and offline"),
    (("Cluster", "ComputeQuota", "TrainingPlan", "ReservedCapacity"), "HyperPod's instances"),
    (("Domain", "UserProfile", "Space", "App", "Studio"), "SageMaker Studio"),
    (("InferenceRecommendations",), "load tests on instances of every type"),
    (("InferenceComponent", "InferenceExperiment"), "endpoints with shadow or shared models"),
    (("OptimizationJob", "AIBenchmark", "AIRecommendation", "AIWorkload"), "model compilers"),
    (("Mlflow",), "a tracking server of its own"),
    (("Hub",), "SageMaker's JumpStart models"),
    (("Image",), "a registry of images"),
    (("Project", "Servicecatalog"), "AWS Service Catalog"),
    (("Algorithm",), "algorithms of the AWS Marketplace"),
    (("CodeRepositor",), "a notebook server"),
    (("Action", "Artifact", "Context", "Association", "Lineage"), "lineage, which is not kept"),
)


def refusal(operation: str, request: dict) -> ApiError:
    """The error that names the operation and what it would need, or the resource that is not."""
    if operation in ("AddTags", "ListTags", "DeleteTags"):
        message = f"ResourceArn {request.get('ResourceArn')!r}: there is no such resource here."
        return ApiError("ValidationException", message)
    message = f"The emulator does not implement {operation}: it would need {needed(operation)}."
    return ApiError("UnknownOperationException", message)


def needed(operation: str) -> str:
    """What is missing for the operation, as the end of a sentence."""
    found = (what for parts, what in _NEEDS if any(part in operation for part in parts))
    return next(found, "a part of SageMaker that is not embedded")
