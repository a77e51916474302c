"""Resolve expressions to the values of an execution, and read an evaluation's numbers.

The values are those that the service reports after steps have run.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from botocore import xform_name
from botocore.exceptions import ClientError, ParamValidationError

from trainyard.aws_clients import service_errors
from trainyard.common.errors import ServiceError
from trainyard.language import definition_document as language
from trainyard.language.evaluation import (
    Unknown,
    UnstartedScope,
    extract_json_value,
    parse_arn_variables,
)
from trainyard.language.expressions import ExpressionError, look_up_path
from trainyard.language.step_types import STEP_TYPES
from trainyard.runs.execution import Step


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource that a step created, or a job that it started."""

    kind: str
    """Key in the step's Metadata, such as ``TrainingJob``, ``Model`` or ``RegisterModel``."""

    name: str
    arn: str
    operation: str
    """Operation that describes it, such as ``DescribeTrainingJob``."""


def find_step_resource(step: Step) -> Resource | None:
    """Return the resource that a step created or started; None if no operation can describe it.

    The resource of a check step is its processing job.
    """
    if step.job:
        kind, name = step.job
        bodies = (body for body in step.metadata.values() if isinstance(body, dict))
        arns = (arn for body in bodies if (arn := body.get("Arn") or body.get("CheckJobArn")))
        return Resource(kind, name, next(arns, ""), f"Describe{kind}")
    for step_type in STEP_TYPES.values():
        # SageMaker has operations that describe its own resources only.
        if step_type.service != "sagemaker" or step_type.describe is None:
            continue
        key = step_type.metadata_key
        operation = step_type.describe.removesuffix("Response").removesuffix("Output")
        if arn := (step.metadata.get(key) or {}).get("Arn"):
            return Resource(key, arn.rpartition("/")[2], arn, operation)
    return None


def describe_resource(sagemaker: Any, resource: Resource) -> dict[str, Any]:
    """Return the Describe operation's response, without ResponseMetadata.

    It is empty if the operation needs more than a name.

    Raises:
        ServiceError: the resource no longer exists, or AWS refused.
    """
    model = sagemaker.meta.service_model.operation_model(resource.operation)
    required_names = model.input_shape.required_members
    if len(required_names) != 1:
        return {}
    # A model package is described by its ARN, because a version in a group has no name.
    name = resource.arn if required_names[0] == "ModelPackageName" else resource.name
    with service_errors(f"describing {resource.kind} {resource.name}"):
        answer = getattr(sagemaker, xform_name(resource.operation))(**{required_names[0]: name})
    return {key: value for key, value in answer.items() if key != "ResponseMetadata"}


class RunValues(UnstartedScope):
    """Resolves references to the values of an execution, as far as the service reports them.

    Args:
        arn: ARN of the execution.
        answer: response of DescribePipelineExecution.
        steps: steps that have started.
        document: definition of the execution.
        parameters: mapping of a parameter's name to its value, in its type.
        describe: returns a resource's description; raises ServiceError.
        read: returns the content of the object at an S3 URI; raises ServiceError.
    """

    def __init__(
        self,
        *,
        arn: str,
        answer: Mapping[str, Any],
        steps: Iterable[Step],
        document: Mapping[str, Any],
        parameters: Mapping[str, Any],
        describe: Callable[[Resource], Mapping[str, Any]],
        read: Callable[[str], bytes],
    ) -> None:
        super().__init__(parameters)
        self._arn, self._document = arn, document
        self._describe, self._read = describe, read
        self._steps = {step.name: step for step in steps}
        self._began = answer.get("CreationTime")

    def variable(self, name: str) -> Any:
        """Return the value of an execution variable, such as ``PipelineExecutionId``."""
        variables = parse_arn_variables(self._arn)
        if name == "StartDateTime" and isinstance(self._began, datetime):
            return self._began.isoformat()
        return variables[name] if name in variables else super().variable(name)

    def property(self, step: str, path: str) -> Any:
        """Return a step's property; ``Unknown`` if the step has not started or did not succeed."""
        if (run_step := self._steps.get(step)) is None:
            return Unknown(f"{step} has not started")
        try:
            return look_up_path(self._build_properties(run_step), path, f"Steps.{step}.{path}")
        except ExpressionError:
            if run_step.status in ("Succeeded", "Executing"):
                raise
            return Unknown(f"{step} {run_step.status.lower()}, and has no {path}")

    def _build_properties(self, step: Step) -> Mapping[str, Any]:
        """Return the document in which the step's properties are looked up: its Metadata, joined
        with the description of its resource.
        """
        bodies = [body for body in step.metadata.values() if isinstance(body, dict)]
        properties = {key: value for body in bodies for key, value in body.items()}
        if outputs := properties.get("OutputParameters"):
            properties["OutputParameters"] = {
                output.get("Name"): output.get("Value") for output in outputs
            }
        resource = find_step_resource(step)
        try:
            return properties | (dict(self._describe(resource)) if resource else {})
        except ServiceError as error:
            raise ExpressionError(str(error)) from None

    def find_property_file_uri(self, step: str, name: str) -> str | Unknown:
        """Return the S3 URI of a step's property file; ``Unknown`` if the step has not written it.

        Raises:
            ExpressionError: the definition has no such step.
        """
        step_definition = language.find_step(self._document.get("Steps"), step)
        if step_definition is None:
            raise ExpressionError(f"step {step!r} does not exist")
        folder, file = language.locate_property_file(step_definition.document, name)
        uri = self.property(step, folder)
        return uri if isinstance(uri, Unknown) else f"{uri.rstrip('/')}/{file}"

    def property_file(self, step: str, name: str, path: str) -> Any:
        """Return the value at ``path`` in a step's property file."""
        uri = self.find_property_file_uri(step, name)
        return uri if isinstance(uri, Unknown) else self.s3_file(uri, path)

    def s3_file(self, uri: str, path: str) -> Any:
        """Return the value at ``path`` in the JSON object at the S3 URI ``uri``."""
        try:
            return extract_json_value(self._read(uri), path, uri)
        except ServiceError as error:
            raise ExpressionError(str(error)) from None


# Read the numbers of an evaluation from property files, and from a model package's metadata and
# report.

LARGEST = 1_000_000
"""Largest number of bytes of a property file that is read."""

LATE = timedelta(seconds=5)
"""Assumed largest difference between clocks. An object that was written later than this after a
job's end, or after a package's registration, was written by another job."""

DEEPEST = 20
"""Number of levels of a property file that are searched for numbers."""

LONGEST = 1 << 20
"""Largest number of bytes of a model package's report that is read."""

LEVELS = 6
"""Number of levels of such a report that are searched for numbers."""

_NUMBER = re.compile(r"[-+]?\d{1,15}(?:\.\d{0,20})?(?:[eE][-+]?\d{1,2})?")


# Read numbers from property files.


def build_property_file_uri(job: Mapping[str, Any], file: Mapping[str, Any]) -> str | None:
    """Return the S3 URI of a property file; None before the processing job has ended.

    Args:
        job: response of DescribeProcessingJob.
        file: entry of the step's PropertyFiles.
    """
    outputs = (job.get("ProcessingOutputConfig") or {}).get("Outputs") or ()
    uris = {
        output.get("OutputName"): (output.get("S3Output") or {}).get("S3Uri") for output in outputs
    }
    uri, name = uris.get(file.get("OutputName")), file.get("FilePath")
    if not uri or job.get("ProcessingEndTime") is None or not isinstance(name, str):
        return None
    return f"{uri.rstrip('/')}/{name}"


def read_object(s3: Any, uri: str) -> tuple[datetime | None, bytes]:
    """Return the time at which an object was written, and its content.

    At most one byte more than ``LARGEST`` is returned, which shows that it is too large.

    Raises:
        ClientError: the object does not exist, or S3 refuses.
    """
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    answer = s3.get_object(Bucket=bucket, Key=key)
    with answer["Body"] as body:
        return answer.get("LastModified"), body.read(LARGEST + 1)


def is_overwritten(job: Mapping[str, Any], write_time: datetime | None) -> bool:
    """Return whether a property file was written after its job ended, and so by another job."""
    end_time = job.get("ProcessingEndTime")
    return end_time is not None and write_time is not None and write_time > end_time + LATE


def iter_json_numbers(content: bytes) -> Iterator[tuple[str, float]]:
    """Iterate over (path, number) of the numbers in a JSON text; nothing if it is not JSON."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return
    yield from _iter_numbers("", document, DEEPEST)


def _iter_numbers(path: str, value: Any, deeper: int) -> Iterator[tuple[str, float]]:
    """Iterate over (path, number) in a JSON value, at most ``deeper`` levels down."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        # float raises OverflowError for a larger integer.
        if isinstance(value, float) or abs(value) < 1e300:
            yield path, float(value)
    elif isinstance(value, dict | list) and deeper:
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for name, inner in pairs:
            yield from _iter_numbers(f"{path}.{name}" if path else str(name), inner, deeper - 1)


# Read numbers of model packages.


def read_package_numbers(
    package: Mapping[str, Any], report: Callable[[str], Mapping[str, float]]
) -> dict[str, float]:
    """Return the numbers of a model package: a mapping of a name to a number.

    They are those of its customer metadata, and those of its ModelQuality report in S3, which are
    named by their path in the report. If a name is in both, the metadata's number is returned.

    Args:
        package: response of DescribeModelPackage.
        report: returns the numbers of the report at a URI.
    """
    numbers: dict[str, float] = {}
    for name, text in (package.get("CustomerMetadataProperties") or {}).items():
        # The pattern excludes hashes such as 12e45678, which float would read as infinity.
        if isinstance(text, str) and _NUMBER.fullmatch(text):
            numbers[name] = float(text)
    quality = (package.get("ModelMetrics") or {}).get("ModelQuality") or {}
    if uri := (quality.get("Statistics") or {}).get("S3Uri"):
        for name, number in report(uri).items():
            numbers.setdefault(name, number)
    return numbers


def read_report_numbers(
    s3: Any, uri: str, registration_time: datetime | None = None
) -> dict[str, float]:
    """Return the numbers of the report at ``uri``: a mapping of a path to a number.

    It is empty if the report does not exist or cannot be read, is too long or not JSON, or was
    written after ``registration_time``, the time of the package's registration, because then it is
    the report of another version.
    """
    url = urlsplit(uri)
    try:
        answer = s3.get_object(Bucket=url.netloc, Key=url.path.lstrip("/"))
        write_time = answer.get("LastModified")
        is_later = (
            write_time is not None
            and registration_time is not None
            and write_time > registration_time + LATE
        )
        if answer.get("ContentLength", 0) > LONGEST or is_later:
            return {}
        return dict(_name_numbers(json.loads(answer["Body"].read(LONGEST))))
    # The bucket is another account's, the report is missing or not JSON, or it has an integer too
    # large for a float.
    except (ClientError, ParamValidationError, ValueError, RecursionError, OverflowError):
        return {}


def _name_numbers(report: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, float]]:
    """Iterate over (path, number) of the numbers in a report.

    The paths do not have the parts that are common to all in SageMaker's schema: the first one,
    such as ``regression_metrics``, and ``value``.
    """
    if isinstance(report, Mapping) and len(path) < LEVELS:
        for name, inner in report.items():
            if name == "value" and path:
                yield from _name_numbers(inner, path)
            elif not path and str(name).endswith("_metrics") and isinstance(inner, Mapping):
                yield from _name_numbers(inner)
            else:
                yield from _name_numbers(inner, (*path, str(name)))
    elif isinstance(report, int | float) and not isinstance(report, bool):
        yield ".".join(path), float(report)
