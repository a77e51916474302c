"""Pipelines and their versions.

<state>/pipelines/<name>/pipeline.json        DescribePipeline's response, without the definition
<state>/pipelines/<name>/definition-<n>.json  the definition of version n, byte for byte
"""

import json
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainyard.common import atomic_file
from trainyard.emulator.containers.node import OWN_PYTHON
from trainyard.emulator.json_documents import read_json, write_json
from trainyard.emulator.request_scope import (
    ApiError,
    make_arn,
    make_page,
    make_validation_error,
    sort_items,
)
from trainyard.emulator.request_shapes import load_service_model, select_members
from trainyard.emulator.s3.object_store import ObjectStore
from trainyard.emulator.sagemaker.pipelines import checked_definition, step_cache
from trainyard.emulator.sagemaker.pipelines.checked_definition import (
    Definition,
    parse_definition,
    refuse_step,
)
from trainyard.validate import reference_checks, step_dependencies, step_request_checks
from trainyard.validate.location import UNREADABLE, Finding
from trainyard.validate.top_level_structure import read_definition

_NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,255}")  # the API reference's pattern
_PIPELINE_MEMBERS = (
    "PipelineDisplayName",
    "PipelineDescription",
    "RoleArn",
    "ParallelismConfiguration",
)
_SUMMARY = (
    "PipelineArn",
    "PipelineName",
    "PipelineDisplayName",
    "PipelineDescription",
    "RoleArn",
    "CreationTime",
    "LastModifiedTime",
    "LastExecutionTime",
)


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a pipeline, with everything that an execution needs."""

    number: int
    text: str
    definition: Definition
    pipeline: dict


class Pipelines:
    """The pipelines of a state directory. Its methods are thread-safe and raise ApiError as AWS
    does.

    A pipeline may be given by its name or its ARN.
    """

    def __init__(self, root: Path, objects: ObjectStore, python: Path = OWN_PYTHON) -> None:
        """Load the pipelines. ``python`` is the interpreter that replaces the images of the steps'
        jobs.
        """
        self._root = root
        self._objects = objects
        self._python = python
        self._lock = threading.RLock()
        root.mkdir(parents=True, exist_ok=True)

    def list_operations(self) -> dict[str, Callable[[dict], dict]]:
        """Return the operations that concern only pipelines, not executions."""
        return {
            "UpdatePipeline": self.update,
            "DescribePipeline": self.describe,
            "ListPipelines": self.list_pipelines,
            "ListPipelineVersions": self.list_versions,
            "UpdatePipelineVersion": self.update_version,
        }

    def create(self, request: dict) -> dict:
        """Create a pipeline with version 1. A repeated ClientRequestToken creates nothing."""
        checked_definition.refuse_members(request)
        name = request["PipelineName"]
        if not _NAME.fullmatch(name):
            raise make_validation_error(
                f"PipelineName {name!r}: expected at most 256 letters, digits, hyphens"
            )
        with self._lock:
            if self._build_path(name).exists():
                if self._read(name).get("token") == request.get("ClientRequestToken", ""):
                    return {"PipelineArn": make_pipeline_arn(name)}  # the same call, repeated
                message = "Pipeline names must be unique within an AWS account and region."
                raise make_validation_error(
                    f"{message} Pipeline with name ({name}) already exists."
                )
            text = self._read_definition_text(request)
            now = time.time()
            record = {
                "PipelineArn": make_pipeline_arn(name),
                "PipelineName": name,
                "PipelineDisplayName": name,
                "PipelineStatus": "Active",
                "CreationTime": now,
                "CreatedBy": {},
                "LastModifiedBy": {},
                "versions": [],
                "token": request.get("ClientRequestToken"),
            }
            self._store(record, request, text)
        return {"PipelineArn": make_pipeline_arn(name)}

    def update(self, request: dict) -> dict:
        """Update a pipeline. A request with a definition creates a new version."""
        checked_definition.refuse_members(request)
        with self._lock:
            record = self._read(request["PipelineName"])
            has_definition = (
                "PipelineDefinition" in request or "PipelineDefinitionS3Location" in request
            )
            self._store(
                record, request, self._read_definition_text(request) if has_definition else None
            )
        number = record["versions"][-1]["PipelineVersionId"]
        return {"PipelineArn": record["PipelineArn"], "PipelineVersionId": number}

    def delete(self, request: dict) -> dict:
        with self._lock:
            record = self._read(request["PipelineName"])
            shutil.rmtree(self._root / record["PipelineName"])
        return {"PipelineArn": record["PipelineArn"]}

    def describe(self, request: dict) -> dict:
        """Return the response of DescribePipeline for a version, by default the latest."""
        checked_definition.refuse_members(request)
        record = self._read(request["PipelineName"])
        number = self._resolve_number(record, request.get("PipelineVersionId"))
        version = self._select_version(record, number)
        texts = ("PipelineVersionDisplayName", "PipelineVersionDescription")
        return select_members("DescribePipeline", record) | {
            "PipelineDefinition": self._read_definition(record["PipelineName"], number),
            **{key: version[key] for key in texts if key in version},
        }

    def list_pipelines(self, request: dict) -> dict:
        records = [read_json(path) for path in self._root.glob("*/pipeline.json")]
        prefix = request.get("PipelineNamePrefix", "")
        summaries = [
            record
            for record in records
            if record["PipelineName"].startswith(prefix)
            and request.get("CreatedAfter", 0) <= record["CreationTime"]
            and request.get("CreatedBefore", record["CreationTime"]) >= record["CreationTime"]
        ]
        keys = {"CreationTime": "CreationTime", "Name": "PipelineName"}
        summaries = sort_items(summaries, request, keys, "CreationTime", "Descending")
        return make_page("PipelineSummaries", summaries, request, 10, _summarize_pipeline)

    def list_versions(self, request: dict) -> dict:
        versions = self._read(request["PipelineName"])["versions"]
        by_number = {"": "PipelineVersionId"}
        records = sort_items(versions, {**request, "SortBy": ""}, by_number, "", "Descending")
        return make_page("PipelineVersionSummaries", records, request, 10)

    def update_version(self, request: dict) -> dict:
        with self._lock:
            record = self._read(request["PipelineArn"])
            number = self._resolve_number(record, request["PipelineVersionId"])
            version = self._select_version(record, number)
            for key in ("PipelineVersionDisplayName", "PipelineVersionDescription"):
                version |= {key: request[key]} if key in request else {}
            self._write(record)
        return {"PipelineArn": record["PipelineArn"], "PipelineVersionId": number}

    # for executions

    def list_arns(self) -> set[str]:
        """Return the ARNs of all pipelines."""
        return {make_pipeline_arn(path.parent.name) for path in self._root.glob("*/pipeline.json")}

    def find_version(self, name: str, number: int | None = None) -> Version:
        """Return the version ``number``, or the latest one if ``number`` is None."""
        record = self._read(name)
        number = self._resolve_number(record, number)
        text = self._read_definition(record["PipelineName"], number)
        return Version(number, text, parse_definition(text), record)

    def record_start(self, name: str, number: int, execution: str) -> None:
        """Record that an execution of that version has just been started."""
        with self._lock:
            record = self._read(name)
            record["LastRunTime"] = record["LastExecutionTime"] = time.time()
            self._select_version(record, number)["LastExecutionPipelineExecutionArn"] = execution
            self._write(record)

    # internals

    def _build_path(self, name: str) -> Path:
        return self._root / name / "pipeline.json"

    def _read(self, name_or_arn: str) -> dict:
        """Return the record of a pipeline. Raises ``ResourceNotFound`` if it does not exist."""
        name = name_or_arn.rpartition("pipeline/")[2]
        if not _NAME.fullmatch(name) or not self._build_path(name).exists():
            raise ApiError(
                "ResourceNotFound", f"Pipeline '{make_pipeline_arn(name)}' does not exist."
            )
        return read_json(self._build_path(name))

    def _write(self, record: dict) -> None:
        write_json(self._build_path(record["PipelineName"]), record)

    def _store(self, record: dict, request: dict, text: str | None) -> None:
        """Set the request's members in ``record``, and write it. If ``text`` is given, add it as a
        new version, and write it first, because the record refers to it.
        """
        now = time.time()
        record |= {key: request[key] for key in _PIPELINE_MEMBERS if key in request}
        record["LastModifiedTime"] = now
        if text is not None:
            number = len(record["versions"]) + 1
            path = self._build_path(record["PipelineName"]).with_name(f"definition-{number}.json")
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic_file.write_file(path, text)
            summary = {"PipelineArn": record["PipelineArn"], "PipelineVersionId": number}
            record["versions"].append(summary | {"CreationTime": now})
        self._write(record)

    def _read_definition_text(self, request: dict) -> str:
        """Return the request's definition as text. Raises ``ValidationException`` if it is not
        valid.
        """
        if location := request.get("PipelineDefinitionS3Location"):
            uri = f"s3://{location['Bucket']}/{location['ObjectKey']}"
            object_id = location["Bucket"], location["ObjectKey"], location.get("VersionId")
            data = self._objects.read_bytes(*object_id)
            text = decode_definition(data, uri)
        elif "PipelineDefinition" in request:
            text = request["PipelineDefinition"]
            check_definition_size(text)
        else:
            raise make_validation_error(
                "expected a PipelineDefinition or a PipelineDefinitionS3Location"
            )
        require_valid_definition(text)
        for step in parse_definition(text).steps.values():
            refuse_step(step, self._python)
            try:
                step_cache.parse_expiry(step)
            except ApiError as error:
                raise make_validation_error(f"step {step.name!r}: {error.message}") from None
        return text

    def _read_definition(self, name: str, number: int) -> str:
        return self._build_path(name).with_name(f"definition-{number}.json").read_bytes().decode()

    def _resolve_number(self, record: dict, number: int | None) -> int:
        """Return ``number``, or the latest version's if it is None. Raises ``ResourceNotFound``."""
        latest = record["versions"][-1]["PipelineVersionId"]
        if number is None:
            return latest
        if not 1 <= number <= latest:
            raise ApiError("ResourceNotFound", f"Pipeline version {number} does not exist.")
        return number

    def _select_version(self, record: dict, number: int) -> dict:
        return record["versions"][number - 1]


def make_pipeline_arn(name: str) -> str:
    return make_arn("sagemaker", f"pipeline/{name}")


def _summarize_pipeline(record: dict) -> dict:
    return {key: record[key] for key in _SUMMARY if key in record}


# Checks of a definition at CreatePipeline, by the rules of ``trainyard.validate``. Only errors that
# AWS is known to report at this point, and not when a step starts, are refused. The other rules of
# ``trainyard.validate`` concern what would fail later.

ERROR_RULES = {
    "form",
    "parameter-enum",
    "parameter-default",
    "type",
    "not-json",
    "unknown-member",  # "Unknown Argument member": aws/sagemaker-python-sdk#3472, #2746
    "number-in-string",  # "Cannot assign property reference … to argument of type": #4867, #2631
    "expression-type",
    "length",  # "Model validation failed - container … length": #2554, kedro-sagemaker#14
    "not-in-a-pipeline",  # #3472
    "after-fail",  # in the API, a FailStep is a terminal step
    "depends-on",
    "name",
    "version",
    "duplicate-name",
    "parameter-type",
    "step-type",
    "unknown-step",
    "unknown-parameter",
    "property-file",
    "property-file-output",
    "expression",
    "cycle",
    "loop-item",
    "loop-body",
    "inside-a-loop",
}
DEEPEST = 100  # maximum levels of nested lists and objects; a nested step adds four


def require_valid_definition(text: str) -> None:
    """Raise ``ValidationException`` with the first error in a definition that AWS refuses."""
    if wrong := next(
        (f for f in _iter_findings(text) if f.severity == "error" and f.rule in ERROR_RULES), None
    ):
        step = f" Step {wrong.step!r}:" if wrong.step else ""
        location = f"{step} {wrong.path}: {wrong.problem}; {wrong.fix}"
        raise ApiError("ValidationException", f"{wrong.answer or UNREADABLE}{location}")


def check_definition_size(text: str) -> None:
    """Raise ``ValidationException`` if the text is longer than a request may contain."""
    request = load_service_model().operation_model("CreatePipeline").input_shape
    limit = request.members["PipelineDefinition"].metadata["max"]
    if len(text) > limit:
        message = f"PipelineDefinition has {len(text)} characters, and at most {limit} are allowed"
        raise ApiError("ValidationException", f"{message}; use PipelineDefinitionS3Location")


def decode_definition(data: bytes, location: str) -> str:
    """Decode a definition stored in S3. Raises ``ValidationException`` if it is not UTF-8 text."""
    try:
        return data.decode()
    except UnicodeDecodeError as wrong:
        raise _make_unreadable_error(f" {location} is not UTF-8: {wrong}") from None


def _iter_findings(text: str) -> Iterator[Finding]:
    """Iterate over the findings of the rules of ``trainyard.validate`` in a definition's text."""
    _check_depth(text)
    document, findings = read_definition(text)
    yield from findings
    if document and not any(f.rule in ("not-json", "form") for f in findings):
        steps = {step.name: step for step in document.steps}
        yield from step_request_checks.check_step_requests(document, steps)
        yield from reference_checks.check_references(document, steps)
        yield from step_dependencies.check_dependencies(document, steps)


def _check_depth(text: str) -> None:
    """Raise ``ValidationException`` if the text is nested deeper than DEEPEST levels."""
    try:
        level: list[Any] = [json.loads(text)]
    # json.loads is recursive, so it may reach the interpreter's limit before DEEPEST is checked.
    except RecursionError:
        raise _make_unreadable_error(f" It is nested deeper than {DEEPEST} levels") from None
    except ValueError:
        return  # read_definition() reports the error
    for _ in range(DEEPEST):
        level = [inner for value in level for inner in _iter_children(value)]
    if level:
        raise _make_unreadable_error(f" It is nested deeper than {DEEPEST} levels")


def _iter_children(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _make_unreadable_error(detail: str) -> ApiError:
    return ApiError("ValidationException", f"{UNREADABLE}{detail}")
