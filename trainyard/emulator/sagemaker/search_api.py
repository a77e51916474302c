"""Search: find resources of a kind by filters, with nested filters, sorting and pages.

It calls the List and Describe operations of each kind, so it finds what they show. It refuses kinds
that this emulator does not store or cannot describe.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from trainyard.emulator.request_scope import ApiError, make_page
from trainyard.emulator.request_shapes import load_service_model
from trainyard.language.definition_document import JOB_ENDED

Ask = Callable[[str, dict], dict]
"""Function that performs a SageMaker operation. Raises ApiError."""
Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SearchableKind:
    """How to list and describe all resources of a kind.

    The operation ``listing`` returns summaries in the member ``field``. The value of a summary's
    ``key`` is the ``parameter`` of the operation ``describe``. ``arn`` is the member with the ARN.
    """

    listing: str
    field: str
    key: str
    describe: str
    parameter: str
    arn: str


KINDS = {
    "TrainingJob": SearchableKind(
        *("ListTrainingJobs", "TrainingJobSummaries", "TrainingJobName"),
        *("DescribeTrainingJob", "TrainingJobName", "TrainingJobArn"),
    ),
    "HyperParameterTuningJob": SearchableKind(
        *("ListHyperParameterTuningJobs", "HyperParameterTuningJobSummaries"),
        *("HyperParameterTuningJobName", "DescribeHyperParameterTuningJob"),
        *("HyperParameterTuningJobName", "HyperParameterTuningJobArn"),
    ),
    "Pipeline": SearchableKind(
        *("ListPipelines", "PipelineSummaries", "PipelineName"),
        *("DescribePipeline", "PipelineName", "PipelineArn"),
    ),
    "ModelPackage": SearchableKind(
        *("ListModelPackages", "ModelPackageSummaryList", "ModelPackageArn"),
        *("DescribeModelPackage", "ModelPackageName", "ModelPackageArn"),
    ),
    "ModelPackageGroup": SearchableKind(
        *("ListModelPackageGroups", "ModelPackageGroupSummaryList", "ModelPackageGroupName"),
        *("DescribeModelPackageGroup", "ModelPackageGroupName", "ModelPackageGroupArn"),
    ),
    "Endpoint": SearchableKind(
        *("ListEndpoints", "Endpoints", "EndpointName"),
        *("DescribeEndpoint", "EndpointName", "EndpointArn"),
    ),
}
EXECUTION = "PipelineExecution"
PARAMETERS, TAGS = "PipelineParameters", "Tags"
"""Members that are only looked up if a filter, the order or the response needs them."""
_LISTING_FILTERS = {"ListModelPackages": {"ModelPackageType": "Both"}}


class Executions(Protocol):
    """The executions of pipelines, of which there may be tens of thousands."""

    def list_descriptions(self) -> Iterable[Record]:
        """Return the description of each execution whose pipeline exists."""
        ...

    def list_parameters(self, arn: str) -> list[dict[str, str]]:
        """Return all parameters of the execution with that ARN."""
        ...


def search_resources(ask: Ask, executions: Executions, request: dict) -> dict:
    """Return the response of Search. ``ask`` performs List, Describe and ListTags operations."""
    kind = request["Resource"]
    if kind not in (*KINDS, EXECUTION):
        raise _make_validation_error(
            f"Resource {kind} is not searched by this emulator; it searches {', '.join(KINDS)} "
            f"and {EXECUTION}"
        )
    for name in ("CrossAccountFilterOption", "VisibilityConditions"):
        if request.get(name) not in (None, "SameAccount"):
            raise _make_validation_error(
                f"{name} is not supported here: only the request's own account is searched"
            )
    shape: Any = load_service_model().shape_for("SearchRecord")
    form = shape.members[kind]

    def add_parameters_or_tags(record: Record) -> Record:
        """Return the record with its pipeline parameters, or with its tags."""
        if kind == EXECUTION:
            return record | {PARAMETERS: executions.list_parameters(record["PipelineExecutionArn"])}
        if TAGS not in form.members:
            return record
        tags = ask("ListTags", {"ResourceArn": record[KINDS[kind].arn]})
        return record | {TAGS: tags.get("Tags", [])}

    records = (
        executions.list_descriptions()
        if kind == EXECUTION
        else _iter_descriptions(ask, KINDS[kind])
    )
    if expression := request.get("SearchExpression"):
        records = [
            record
            for record in records
            if _matches_expression(expression, add_parameters_or_tags(record))
        ]
    if request.get("SortBy", "").partition(".")[0] in (PARAMETERS, TAGS):
        records = map(add_parameters_or_tags, records)
    records = _sort_records(list(records), request)
    answer = make_page(
        "Results",
        records,
        request,
        10,
        lambda record: {
            kind: {k: v for k, v in add_parameters_or_tags(record).items() if k in form.members}
        },
    )
    return answer | {"TotalHits": {"Value": len(records), "Relation": "EqualTo"}}


def _iter_descriptions(ask: Ask, kind: SearchableKind) -> Iterator[Record]:
    """Iterate over the descriptions of all resources of a kind."""
    for summary in _iter_records(
        ask, kind.listing, kind.field, _LISTING_FILTERS.get(kind.listing, {})
    ):
        try:
            record = ask(kind.describe, {kind.parameter: summary[kind.key]})
        except ApiError as error:  # it was deleted after it was listed
            if error.status >= 500:
                raise
            continue
        yield {kind.key: summary[kind.key], **record}


def _iter_records(ask: Ask, operation: str, field: str, request: dict) -> Iterator[Record]:
    """Iterate over the items of a List operation, on all pages."""
    more: dict[str, Any] = {}
    while True:
        answer = ask(operation, {**request, "MaxResults": 100, **more})
        yield from answer[field]
        if "NextToken" not in answer:
            return
        more = {"NextToken": answer["NextToken"]}


# filters


def _matches_expression(expression: dict, record: Record) -> bool:
    """Return whether the record matches all filters, nested filters and sub-expressions; with the
    operator Or, whether it matches any of them.
    """
    parts = [
        _satisfies_filter(condition, _find_values(record, condition["Name"]))
        for condition in expression.get("Filters", [])
    ]
    parts += [
        _has_nested_match(condition, record) for condition in expression.get("NestedFilters", [])
    ]
    parts += [
        _matches_expression(subexpression, record)
        for subexpression in expression.get("SubExpressions", [])
    ]
    if not parts:
        return True
    return any(parts) if expression.get("Operator") == "Or" else all(parts)


def _has_nested_match(nested_filter: dict, record: Record) -> bool:
    """Return whether one element of the nested list passes all filters."""
    name = nested_filter["NestedPropertyName"]
    for element in _find_elements(record, name):
        names = (
            condition["Name"].removeprefix(f"{name}.") for condition in nested_filter["Filters"]
        )
        pairs = zip(nested_filter["Filters"], names, strict=True)
        if all(
            _satisfies_filter(condition, _find_values(element, inner)) for condition, inner in pairs
        ):
            return True
    return False


def _find_elements(record: Any, name: str) -> list[Any]:
    """Return the values at a dotted name. Lists on the way and at the end are replaced by their
    elements.
    """
    values = [record]
    for part in name.split("."):
        inner = [value.get(part) for value in values if isinstance(value, dict)]
        values = [e for value in inner for e in (value if isinstance(value, list) else [value])]
        values = [value for value in values if value is not None]
    return values


def _find_values(record: Record, name: str) -> list[Any]:
    """Return the values of ``name``: ``Tags.key`` is the value of a tag, ``Metrics.name`` that of a
    metric, and ``HyperParameters.a.b`` that of a hyperparameter whose name has dots. Any other name
    is a dotted path.
    """
    head, _, rest = name.partition(".")
    if not rest and not isinstance(value := record.get(head), list):  # the most frequent case
        return [] if value is None else [value]
    if head == "Tags" and rest:
        return [tag["Value"] for tag in record.get("Tags", []) if tag["Key"] == rest]
    if head == "Metrics" and rest:
        metrics = record.get("FinalMetricDataList", [])
        return [metric["Value"] for metric in metrics if metric["MetricName"] == rest]
    if isinstance(record.get(head), dict) and rest in record[head]:
        return [record[head][rest]]
    return _find_elements(record, name)


def _satisfies_filter(condition: dict, values: list[Any]) -> bool:
    """Return whether a value satisfies a filter; for NotEquals, whether no value is equal."""
    operator, operand = condition.get("Operator", "Equals"), condition.get("Value")
    if operator in ("Exists", "NotExists"):
        return bool(values) == (operator == "Exists")
    if operand is None:
        raise _make_validation_error(f"Filter {condition['Name']}: {operator} needs a Value")
    if operator == "NotEquals":
        return not any(_compare_values(value, operand) == 0 for value in values)
    return any(_satisfies_operator(operator, value, operand) for value in values)


def _satisfies_operator(operator: str, value: Any, operand: str) -> bool:
    if operator == "Contains":
        return operand.lower() in _format_text(value).lower()
    if operator == "In":
        return any(_compare_values(value, part.strip()) == 0 for part in operand.split(","))
    order = _compare_values(value, operand)
    return {
        "Equals": order == 0,
        "GreaterThan": order > 0,
        "GreaterThanOrEqualTo": order >= 0,
        "LessThan": order < 0,
        "LessThanOrEqualTo": order <= 0,
    }[operator]


def _compare_values(value: Any, operand: Any) -> int:
    """Compare two values and return -1, 0 or 1. They are compared as numbers or times if both are,
    and otherwise as text.
    """
    number, other = _parse_number(value), _parse_number(operand)
    if number is not None and other is not None:
        return (number > other) - (number < other)
    left_text, right = _format_text(value), _format_text(operand)
    return (left_text > right) - (left_text < right)


def _parse_number(value: Any) -> float | None:
    """Return a number, or a time in ISO 8601 as seconds since the epoch. Return None for any other
    value.
    """
    # float() would convert True to 1.
    if isinstance(value, bool):
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        pass
    try:
        parsed_time = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    return parsed_time.timestamp()


def _format_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _sort_records(records: list[Record], request: dict) -> list[Record]:
    """Return the records sorted by SortBy (default LastModifiedTime, the newest first). Records
    without a value come last.
    """
    name = request.get("SortBy", "LastModifiedTime")
    newest = request.get("SortOrder", "Descending") == "Descending"
    having, lacking = [], []
    for record in records:
        if values := _find_values(record, name):
            having.append((values[0], record))
        else:
            lacking.append(record)
    numbers = [_parse_number(value) for value, _ in having]
    # Sort as numbers only if all values are numbers; a mixture is sorted as text.
    keys: list[Any] = (
        numbers if None not in numbers else [_format_text(value) for value, _ in having]
    )
    order = sorted(range(len(having)), key=keys.__getitem__, reverse=newest)
    return [having[index][1] for index in order] + lacking


def _make_validation_error(message: str) -> ApiError:
    return ApiError("ValidationException", message)


# Experiments and trials that a pipeline's configuration names, and a trial component for each of
# its jobs.

log = logging.getLogger(__name__)


class Experiments:
    """Create the experiments, trials and trial components of a region's jobs and executions.

    ``forward`` performs the operations on experiments. Its third argument has members that only
    SageMaker itself sets.
    """

    def __init__(self, forward: Callable[..., dict]) -> None:
        self._forward = forward

    def ensure_trial(self, config: Mapping[str, str]) -> None:
        """Create the experiment and the trial if they do not exist."""
        experiment = {"ExperimentName": config["ExperimentName"]}
        trial = {"TrialName": config["TrialName"]}
        self._ensure_resource("Experiment", experiment, {})
        self._ensure_resource("Trial", trial, experiment)

    def add_trial(self, kind: str, request: dict[str, Any]) -> dict[str, Any]:
        """Return a job's Create request with the trial of its trial component. Create that trial if
        the request names only an experiment.

        Raises:
            ApiError: the experiment or the trial does not exist, or RunName is set.
        """
        if not (config := dict(request.get("ExperimentConfig", {}))):
            return request
        if "RunName" in config:
            message = "ExperimentConfig.RunName is not implemented here: name a TrialName"
            raise ApiError("ValidationException", message)
        for name in config.keys() & {"ExperimentName", "TrialName"}:
            self._forward(f"Describe{name.removesuffix('Name')}", {name: config[name]})
        if "ExperimentName" in config:  # if no trial is named, create one
            self.ensure_trial({"TrialName": request[f"{kind}JobName"]} | config)
            config.setdefault("TrialName", request[f"{kind}JobName"])
        return request | {"ExperimentConfig": config}

    def record_job(self, kind: str, record: dict[str, Any]) -> None:
        """Create the trial component of a job that has ended and has an ExperimentConfig."""
        config = record.get("ExperimentConfig")
        if not config or record[f"{kind}JobStatus"] not in JOB_ENDED:
            return
        arn = record[f"{kind}JobArn"]
        component = {"TrialComponentName": f"{arn.rpartition('/')[2]}-aws-{kind.lower()}-job"}
        request: dict[str, Any] = dict(component)
        request["DisplayName"] = config.get("TrialComponentDisplayName", *component.values())
        status = record[f"{kind}JobStatus"]
        request["Status"] = {"PrimaryStatus": status}
        if reason := record.get("FailureReason"):
            request["Status"]["Message"] = reason[:1024]
        times = {"StartTime": f"{kind}StartTime", "EndTime": f"{kind}EndTime"}
        request |= {name: record[key] for name, key in times.items() if key in record}
        source = {"SourceArn": arn, "SourceType": f"SageMaker{kind}Job"}
        try:
            self._forward("CreateTrialComponent", request, {"Source": source})
            if trial := config.get("TrialName"):
                self._forward("AssociateTrialComponent", component | {"TrialName": trial})
        except ApiError as failure:  # the end was reported twice, or the trial was deleted
            log.warning(
                "%s: its trial component was not created or not associated: %s", arn, failure
            )

    def _ensure_resource(self, kind: str, names: dict[str, str], more: dict[str, str]) -> None:
        """Create the resource with the name member ``names`` and the other members ``more``, if it
        does not exist.
        """
        try:
            self._forward(f"Describe{kind}", names)
        except ApiError as failure:
            if failure.code != "ResourceNotFound":
                raise
            self._forward(f"Create{kind}", names | more)
