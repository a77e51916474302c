"""Create, describe, list, update, tag and delete named resources that run nothing, one file each.

<root>/<kind>/<name>.json

moto has these operations, but in memory. It also loses members (an experiment's Description),
accepts a name twice and raises on resources that are missing. Here a resource is described by the
members with which it was created. Its creator is not stored.
"""

import functools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from botocore.model import OperationModel, Shape

from trainyard.emulator.json_documents import read_json, write_json
from trainyard.emulator.request_scope import (
    ApiError,
    make_arn,
    make_page,
    passes_list_filters,
    sort_items,
)
from trainyard.emulator.request_shapes import check_request_shape, load_service_model

# Kinds of resources that SageMaker only stores. Their members and errors come from botocore's model
# of the service.

_SCHEDULE = "only a monitoring schedule would read it, and CreateMonitoringSchedule is refused"
_USER_RECORD = "a record that its user fills in: no work belongs to it"


@dataclass(frozen=True)
class Kind:
    """A kind of resource: ``name`` as in its operations, ``resource`` as in its ARN.

    ``reason`` says why storing it is enough. ``page`` is the number of results of a page if a
    request does not set one.
    """

    name: str
    resource: str
    reason: str
    order: str = "Descending"
    """Default order of its List operation, if the API reference names one."""
    page: int = 10

    def find_operation(self, verb: str) -> OperationModel | None:
        """Return botocore's model of the kind's operation ``verb``, or None if there is none. List
        has the kind's plural in its name.
        """
        name = f"{verb}{self.name}{'s' if verb == 'List' else ''}"
        return (
            load_service_model().operation_model(name)
            if name in load_service_model().operation_names
            else None
        )

    @functools.cached_property
    def key(self) -> str:
        """The request member that contains its name, such as ``ModelName``."""
        return _find_shape(self.find_operation("Describe"), "input").required_members[0]

    @functools.cached_property
    def arn_key(self) -> str:
        return next(iter(_find_shape(self.find_operation("Create"), "output").members))

    @functools.cached_property
    def description_members(self) -> frozenset[str]:
        """Members of the response of its Describe operation."""
        return frozenset(_find_shape(self.find_operation("Describe"), "output").members)

    @functools.cached_property
    def listing(self) -> tuple[str, frozenset[str]]:
        """The name of the list in the response of its List operation, and the members of the list's
        items.
        """
        return find_item_members(self.find_operation("List"))

    def build_arn(self, name: str) -> str:
        """Return the ARN of the resource ``name``. The ARN has the name in lower case, and
        SageMaker finds the resource in any case.
        """
        return make_arn("sagemaker", f"{self.resource}/{name.lower()}")

    def make_missing_error(self, arn: str, verb: str = "Describe") -> ApiError:
        """Return the error that the operation ``verb`` raises for a missing resource."""
        message = f'Could not find {self._format_words()} "{arn}".'
        return ApiError(_find_error_code(self.find_operation(verb), "ResourceNotFound"), message)

    def make_existing_error(self, arn: str) -> ApiError:
        message = f'Cannot create already existing {self._format_words()} "{arn}".'
        return ApiError(
            _find_error_code(self.find_operation("Create"), "ResourceInUse", "Conflict"), message
        )

    def _format_words(self) -> str:
        """Return the kind as SageMaker's messages name it, such as ``endpoint configuration``."""
        return self.resource.replace("-", " ").replace("config", "configuration")


def find_item_members(operation: OperationModel | None) -> tuple[str, frozenset[str]]:
    """Return the name of the list in the response of a List operation, and the members of its
    items.
    """
    members = _find_shape(operation, "output").members
    name = next(name for name in members if name != "NextToken")
    return name, frozenset(members[name].member.members)


def _find_shape(operation: OperationModel | None, direction: str) -> Shape:
    assert operation is not None
    return operation.input_shape if direction == "input" else operation.output_shape


def _find_error_code(operation: OperationModel | None, *beginnings: str) -> str:
    """Return the name of the operation's first error that starts with one of ``beginnings``. Return
    ``ValidationException`` if it has none.
    """
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
    Kind("Experiment", "experiment", _USER_RECORD),
    Kind("Trial", "experiment-trial", _USER_RECORD),
    Kind("TrialComponent", "experiment-trial-component", _USER_RECORD),
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
    (("BatchDescribe",), "nothing: DescribeModelPackage describes each"),
    (("WeightsAndCapacities",), "weights that change: UpdateEndpoint shifts requests"),
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


def make_unimplemented_error(operation: str, request: dict) -> ApiError:
    """Return the error for an operation that is not implemented, with what it would need; for tag
    operations, the error that the resource does not exist.
    """
    if operation in ("AddTags", "ListTags", "DeleteTags"):
        message = f"ResourceArn {request.get('ResourceArn')!r}: this resource does not exist here."
        return ApiError("ValidationException", message)
    requirement = describe_requirement(operation)
    message = f"The emulator does not implement {operation}: it would need {requirement}."
    return ApiError("UnknownOperationException", message)


def describe_requirement(operation: str) -> str:
    """Return what the operation would need, as the end of a sentence."""
    purposes = (purpose for parts, purpose in _NEEDS if any(part in operation for part in parts))
    return next(purposes, "a part of SageMaker that is not embedded")


_TAGGING = frozenset({"AddTags", "ListTags", "DeleteTags"})
_TAGS = 50  # tags per page
Operation = Callable[[dict], dict]


class Store:
    """Store resources and perform the operations that it :meth:`owns`. It is thread-safe.

    Raises :class:`ApiError` as AWS does.
    """

    def __init__(self, root: Path, kinds: Sequence[Kind]) -> None:
        self._root, self._kinds = root, kinds
        self._lock = threading.RLock()
        self._items: dict[str, dict[str, dict]] = {kind.name: {} for kind in kinds}
        """Records, the oldest first: {kind: {ARN: record}}."""
        self._operations = {k: v for kind in kinds for k, v in self._build_operations(kind).items()}
        self._operations |= self._list_special_operations() | {
            "AddTags": self._add_tags,
            "ListTags": lambda request: make_page(
                "Tags", self._find_resource(request)[1]["_tags"], request, _TAGS
            ),
            "DeleteTags": self._delete_tags,
        }
        for kind in kinds:
            records = [read_json(path) for path in (root / kind.name).glob("**/*.json")]
            # Sort by version, too, because versions of a group may have been created at the same
            # time.
            for record in sorted(
                records, key=lambda r: (float(r["CreationTime"]), r.get("ModelPackageVersion", 0))
            ):
                self._items[kind.name][record[kind.arn_key]] = record

    def _list_special_operations(self) -> dict[str, Operation]:
        """Return the operations that only one kind has, or that it handles in its own way."""
        return {}

    def owns(self, operation: str, request: dict) -> bool:
        """Return whether this store performs the operation (for tags: on its resource)."""
        if operation in _TAGGING:
            return self._find_kind(str(request.get("ResourceArn", ""))) is not None
        return operation in self._operations

    def handle(self, operation: str, request: dict, own_members: dict | None = None) -> dict:
        """Perform an operation. ``own_members`` are members of the created resource that no client
        can set.
        """
        check_request_shape(operation, request)
        with self._lock:
            return self._operations[operation](request | (own_members or {}))

    # the operations that all kinds have

    def _build_operations(self, kind: Kind) -> dict[str, Operation]:
        """Return the kind's operations: {operation: function}."""
        verbs: dict[str, Callable[[Kind, dict], dict]] = {
            "Create": self._create,
            "Describe": self._describe,
            "List": self._list,
            "Update": self._update,
            "Delete": self._delete,
        }
        models = {verb: kind.find_operation(verb) for verb in verbs}
        return {
            operation.name: functools.partial(verbs[verb], kind)
            for verb, operation in models.items()
            if operation
        }

    def _create(self, kind: Kind, request: dict) -> dict:
        return self._add(kind, request[kind.key], request | {"LastModifiedTime": time.time()})

    def _add(self, kind: Kind, name: str, members: dict) -> dict:
        """Store a new resource and return its ARN as the response. Raises the kind's error if it
        exists.
        """
        if (arn := kind.build_arn(name)) in self._items[kind.name]:
            raise kind.make_existing_error(arn)
        record = {k: v for k, v in members.items() if k not in ("Tags", "ClientToken")}
        record |= {kind.arn_key: arn, "CreationTime": time.time()}
        self._save(kind, record | {"_tags": members.get("Tags", [])})
        return {kind.arn_key: arn}

    def _describe(self, kind: Kind, request: dict) -> dict:
        return describe_record(kind, self._find(kind, request))

    def _list(self, kind: Kind, request: dict) -> dict:
        name, members = kind.listing
        records = [
            r for r in self._items[kind.name].values() if self._matches_request(kind, r, request)
        ]
        keys = {"CreationTime": "CreationTime", "LastModifiedTime": "LastModifiedTime"}
        records = sort_items(
            records, request, keys | {"Name": kind.arn_key}, "CreationTime", kind.order
        )
        return make_page(
            name, [summarize_record(kind, r, members) for r in records], request, kind.page
        )

    def _update(self, kind: Kind, request: dict) -> dict:
        """Set the members of the request. Members of a trial component that are maps are merged,
        and entries that ``...ToRemove`` names are removed.
        """
        record = dict(self._find(kind, request, "Update"))
        for key, value in request.items():
            if key.endswith("ToRemove"):
                old = record.get(key.removesuffix("ToRemove"), {})
                record[key.removesuffix("ToRemove")] = {
                    k: v for k, v in old.items() if k not in value
                }
            elif key != kind.key:
                is_merge = (
                    kind.name == "TrialComponent" and isinstance(value, dict) and key != "Status"
                )
                record[key] = record.get(key, {}) | value if is_merge else value
        self._save(kind, record | {"LastModifiedTime": time.time()})
        return _make_arn_response(kind, "Update", record)

    def _delete(self, kind: Kind, request: dict) -> dict:
        """Delete the record and its file; return the response of the Delete operation."""
        record = self._find(kind, request, "Delete")
        self._build_path(kind, record).unlink(missing_ok=True)
        del self._items[kind.name][record[kind.arn_key]]
        return _make_arn_response(kind, "Delete", record)

    # tags

    def _add_tags(self, request: dict) -> dict:
        kind, record = self._find_resource(request)
        tags = {tag["Key"]: tag for tag in [*record["_tags"], *request["Tags"]]}
        self._save(kind, record | {"_tags": list(tags.values())})
        return {"Tags": list(tags.values())}

    def _delete_tags(self, request: dict) -> dict:
        kind, record = self._find_resource(request)
        tags = [tag for tag in record["_tags"] if tag["Key"] not in request["TagKeys"]]
        self._save(kind, record | {"_tags": tags})
        return {}

    def _find_resource(self, request: dict) -> tuple[Kind, dict]:
        kind = self._find_kind(request["ResourceArn"])
        assert kind is not None  # ``owns`` was checked before
        return kind, self._find(kind, {kind.key: request["ResourceArn"]})

    def _find_kind(self, arn: str) -> Kind | None:
        resource = arn.rpartition(":")[2].partition("/")[0]
        return next((kind for kind in self._kinds if kind.resource == resource), None)

    # internals

    def _find(self, kind: Kind, request: dict, verb: str = "Describe") -> dict:
        """Return the record with that name or ARN. Raises the kind's error if it is missing."""
        name = request[kind.key]
        arn = name.lower() if name.startswith("arn:") else kind.build_arn(name)
        if arn not in self._items[kind.name]:
            raise kind.make_missing_error(arn, verb)
        return self._items[kind.name][arn]

    def _build_path(self, kind: Kind, record: dict) -> Path:
        name = record[kind.arn_key].partition(f":{kind.resource}/")[2]
        return self._root / kind.name / f"{name}.json"

    def _save(self, kind: Kind, record: dict) -> None:
        """Write the record to disk, then to memory."""
        # Write to disk first: if that fails, memory must not have the record either.
        write_json(self._build_path(kind, record), record)
        self._items[kind.name][record[kind.arn_key]] = record

    def _matches_request(self, kind: Kind, record: dict, request: dict) -> bool:
        """Return whether a List request's filters select the record."""
        creation_time = record["CreationTime"]
        modification_time = record.get("LastModifiedTime", creation_time)
        name = record[kind.arn_key].partition(f":{kind.resource}/")[2]
        return (
            passes_list_filters(request, name, creation_time, modification_time)
            and request.get("CreatedAfter", creation_time) <= creation_time
            and request.get("CreatedBefore", creation_time) >= creation_time
        )


def describe_record(kind: Kind, record: dict) -> dict:
    """Return the members of the Describe response that have a value. Creators are empty unless the
    record has them.
    """
    nobody: dict = {
        key: {} for key in ("CreatedBy", "LastModifiedBy") if key in kind.description_members
    }
    display_name = (
        {"DisplayName": record.get(kind.key)} if "DisplayName" in kind.description_members else {}
    )
    return (
        nobody
        | display_name
        | {key: record[key] for key in record if key in kind.description_members}
    )


def summarize_record(kind: Kind, record: dict, members: frozenset[str]) -> dict:
    """Return a record as an item of a List response, whose members are ``members``. Some of them
    have another name in the record, such as MonitoringJobDefinitionName.
    """
    aliases = {
        "MonitoringJobDefinitionName": record.get(kind.key),
        "MonitoringJobDefinitionArn": record[kind.arn_key],
        "EndpointName": find_endpoint_name(record),
        "TrialComponentSource": record.get("Source"),
        "DisplayName": record.get(kind.key),  # the API reference's default
    }
    all_members = aliases | record
    return {
        key: all_members[key]
        for key in all_members
        if key in members and all_members[key] is not None
    }


def find_endpoint_name(record: dict) -> str | None:
    """Return the name of the endpoint that a job definition examines, or None."""
    inputs = [v for k, v in record.items() if k.endswith("JobInput")]
    return next((i.get("EndpointInput", {}).get("EndpointName") for i in inputs), None)


def _make_arn_response(kind: Kind, verb: str, record: dict) -> dict:
    """Return the ARN as the response, if the operation's response contains it; otherwise {}."""
    operation = kind.find_operation(verb)
    answer_shape = operation.output_shape if operation else None
    return {kind.arn_key: record[kind.arn_key]} if answer_shape and answer_shape.members else {}


# Resources that SageMaker only stores: models, configurations, cards, job definitions,
# experiments.

_KINDS_BY_NAME = {kind.name: kind for kind in KINDS}
_TRIAL, _COMPONENT = _KINDS_BY_NAME["Trial"], _KINDS_BY_NAME["TrialComponent"]
_CARD, _EXPERIMENT = _KINDS_BY_NAME["ModelCard"], _KINDS_BY_NAME["Experiment"]


class ResourceStore(Store):
    """All resources in a state directory that are only stored, with the additional operations of
    experiments and model cards.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(root, KINDS)

    def list_records(self, kind: str) -> list[dict]:
        """Return the description of each resource of a kind, the oldest first. Search uses it."""
        with self._lock:
            return [
                describe_record(_KINDS_BY_NAME[kind], record)
                for record in self._items[kind].values()
            ]

    def _list_special_operations(self) -> dict[str, Operation]:
        return {
            "CreateTrial": self._create_trial,
            "AssociateTrialComponent": self._associate_component,
            "DisassociateTrialComponent": self._disassociate_component,
            "DescribeModelCard": self._describe_card,
            "UpdateModelCard": self._update_card,
            "ListModelCardVersions": self._list_card_versions,
        }

    def _create_trial(self, request: dict) -> dict:
        self._find(_EXPERIMENT, request)
        return self._create(_TRIAL, request)

    def _associate_component(self, request: dict) -> dict:
        trial, component = self._find(_TRIAL, request), self._find(_COMPONENT, request)
        trials = dict.fromkeys([*component.get("_trials", []), trial["TrialName"]])
        self._save(_COMPONENT, component | {"_trials": list(trials)})
        return {k: r[k] for k, r in (("TrialComponentArn", component), ("TrialArn", trial))}

    def _disassociate_component(self, request: dict) -> dict:
        trial, component = self._find(_TRIAL, request), self._find(_COMPONENT, request)
        trials = [name for name in component.get("_trials", []) if name != trial["TrialName"]]
        self._save(_COMPONENT, component | {"_trials": trials})
        return {k: r[k] for k, r in (("TrialComponentArn", component), ("TrialArn", trial))}

    def _describe_card(self, request: dict) -> dict:
        """Return a version of a model card, by default the latest."""
        versions = self._list_versions(request)
        number = request.get("ModelCardVersion", len(versions))
        if not 1 <= number <= len(versions):
            name = request["ModelCardName"]
            message = f"Modelcard with name {name} and version: {number} does not exist"
            raise ApiError("ResourceNotFound", message)
        return describe_record(_CARD, versions[number - 1])

    def _update_card(self, request: dict) -> dict:
        """Create a new version of the card."""
        record = self._find(_CARD, request, "Update")
        earlier = [*record.get("_versions", []), {k: v for k, v in record.items() if k[0] != "_"}]
        self._save(_CARD, record | {"_versions": earlier})
        return self._update(_CARD, request)

    def _list_card_versions(self, request: dict) -> dict:
        name, members = find_item_members(
            load_service_model().operation_model("ListModelCardVersions")
        )
        versions = [
            v for v in self._list_versions(request) if self._matches_request(_CARD, v, request)
        ]
        by = {"Version": "ModelCardVersion"}
        versions = sort_items(versions, request, by, "Version", "Ascending")
        return make_page(
            name, [summarize_record(_CARD, v, members) for v in versions], request, _CARD.page
        )

    def _list_versions(self, request: dict) -> list[dict]:
        record = self._find(_CARD, request)
        versions = [*record.get("_versions", []), record]
        return [v | {"ModelCardVersion": n} for n, v in enumerate(versions, start=1)]

    def _matches_request(self, kind: Kind, record: dict, request: dict) -> bool:
        return (
            super()._matches_request(kind, record, request)
            and request.get("ModelCardStatus") in (None, record.get("ModelCardStatus"))
            and request.get("EndpointName") in (None, find_endpoint_name(record))
            and self._is_related(kind, record, request)
        )

    def _is_related(self, kind: Kind, record: dict, request: dict) -> bool:
        """Return whether a trial or component belongs to the experiment, trial or component in the
        request.
        """
        experiment, trial = request.get("ExperimentName"), request.get("TrialName")
        trials = record.get("_trials", []) if kind is _COMPONENT else [record.get("TrialName")]
        experiments = [
            t["ExperimentName"] for t in self._items["Trial"].values() if t["TrialName"] in trials
        ]
        component = self._items["TrialComponent"].get(
            _COMPONENT.build_arn(request.get("TrialComponentName", "")), {}
        )
        return (
            (experiment is None or experiment in experiments)
            and (trial is None or trial in trials)
            and ("TrialComponentName" not in request or trials[0] in component.get("_trials", []))
            and request.get("SourceArn") in (None, record.get("Source", {}).get("SourceArn"))
        )
