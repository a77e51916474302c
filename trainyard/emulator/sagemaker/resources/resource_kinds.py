"""Kinds of resources that SageMaker only stores, with the facts of botocore's model."""

import functools
from dataclasses import dataclass

from botocore.model import OperationModel, Shape

from trainyard.emulator.request_scope import ApiError, make_arn
from trainyard.emulator.request_shapes import model

_SCHEDULE = "only a monitoring schedule would read it, and CreateMonitoringSchedule is refused"
_EXPERIMENT = "a record that its user fills in: no work belongs to it"


@dataclass(frozen=True)
class Kind:
    """A kind of resource: ``name`` as in its operations, ``resource`` as in its ARN.

    ``why``: the reason why storing it is enough. ``page``: results of a page, if a request names
    no number.
    """

    name: str
    resource: str
    reason: str
    order: str = "Descending"
    """List...'s default order, where the API reference names one."""
    page: int = 10

    def operation(self, verb: str) -> OperationModel | None:
        """Return the model of one of its operations, or None; List takes the plural."""
        name = f"{verb}{self.name}{'s' if verb == 'List' else ''}"
        return model().operation_model(name) if name in model().operation_names else None

    @functools.cached_property
    def key(self) -> str:
        """The member with its name, such as ``ModelName``."""
        return _shape(self.operation("Describe"), "input").required_members[0]

    @functools.cached_property
    def arn_key(self) -> str:
        return next(iter(_shape(self.operation("Create"), "output").members))

    @functools.cached_property
    def description_members(self) -> frozenset[str]:
        """Members of Describe...'s answer."""
        return frozenset(_shape(self.operation("Describe"), "output").members)

    @functools.cached_property
    def listing(self) -> tuple[str, frozenset[str]]:
        """The list in List...'s answer, and the members of its items."""
        return items_of(self.operation("List"))

    def arn(self, name: str) -> str:
        """Return the ARN: SageMaker lower-cases names in it, and finds them in any case."""
        return make_arn("sagemaker", f"{self.resource}/{name.lower()}")

    def missing(self, arn: str, verb: str = "Describe") -> ApiError:
        """Return the operation's error for a missing resource."""
        message = f'Could not find {self._words()} "{arn}".'
        return ApiError(_code(self.operation(verb), "ResourceNotFound"), message)

    def existing(self, arn: str) -> ApiError:
        message = f'Cannot create already existing {self._words()} "{arn}".'
        return ApiError(_code(self.operation("Create"), "ResourceInUse", "Conflict"), message)

    def _words(self) -> str:
        """Return the kind as in SageMaker's messages: ``endpoint configuration``."""
        return self.resource.replace("-", " ").replace("config", "configuration")


def items_of(operation: OperationModel | None) -> tuple[str, frozenset[str]]:
    """Return the list in the answer of a List... operation, and the members of its items."""
    members = _shape(operation, "output").members
    name = next(name for name in members if name != "NextToken")
    return name, frozenset(members[name].member.members)


def _shape(operation: OperationModel | None, side: str) -> Shape:
    assert operation is not None
    return operation.input_shape if side == "input" else operation.output_shape


def _code(operation: OperationModel | None, *beginnings: str) -> str:
    """Return the operation's first own error that starts so; else ``ValidationException``."""
    error_names = [shape.name for shape in operation.error_shapes] if operation else []
    return next(
        (name for name in error_names if name.startswith(beginnings)), "ValidationException"
    )


KINDS = (
    Kind("Model", "model", "what a transform job or an endpoint will start"),
    Kind("EndpointConfig", "endpoint-config", "what an endpoint will start"),
    Kind("ModelCard", "model-card", "a document and its versions", "Ascending"),
    Kind("DataQualityJobDefinition", "data-quality-job-definition", _SCHEDULE),
    Kind("ModelBiasJobDefinition", "model-bias-job-definition", _SCHEDULE),
    Kind("ModelExplainabilityJobDefinition", "model-explainability-job-definition", _SCHEDULE),
    Kind("ModelQualityJobDefinition", "model-quality-job-definition", _SCHEDULE),
    Kind(
        "NotebookInstanceLifecycleConfig",
        "notebook-instance-lifecycle-config",
        "keeps scripts for notebook instances, and CreateNotebookInstance is refused",
    ),
    Kind("Experiment", "experiment", _EXPERIMENT),
    Kind("Trial", "experiment-trial", _EXPERIMENT),
    Kind("TrialComponent", "experiment-trial-component", _EXPERIMENT),
)


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
    """Return an error naming the operation and what it would need, or the missing resource."""
    if operation in ("AddTags", "ListTags", "DeleteTags"):
        message = f"ResourceArn {request.get('ResourceArn')!r}: this resource does not exist here."
        return ApiError("ValidationException", message)
    message = (
        f"The emulator does not implement {operation}: it would need {name_requirement(operation)}."
    )
    return ApiError("UnknownOperationException", message)


def name_requirement(operation: str) -> str:
    """Return what the operation would need, as the end of a sentence."""
    purposes = (purpose for parts, purpose in _NEEDS if any(part in operation for part in parts))
    return next(purposes, "a part of SageMaker that is not embedded")
