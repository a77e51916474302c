"""Processing jobs: inputs, one process per instance, outputs.

The container's contract is AWS's: "How Amazon SageMaker Processing Configures Input and Output
For Your Processing Container" in the developer guide.
"""

import contextlib
import copy
import json
import posixpath
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from trainyard.emulator import algorithms
from trainyard.emulator.containers.cluster import Outcome
from trainyard.emulator.containers.node import Node, list_missing_modules
from trainyard.emulator.request_scope import make_validation_error
from trainyard.emulator.request_shapes import Check
from trainyard.emulator.sagemaker.jobs import container_images
from trainyard.emulator.sagemaker.jobs.container_images import parse_repository
from trainyard.emulator.sagemaker.jobs.job import Job, JobServices
from trainyard.emulator.sagemaker.jobs.transfers import (
    ContinuousUpload,
    check_uri,
    download_objects,
    select_node_share,
    select_objects,
    upload_folder,
)

REPOSITORY = "sagemaker-model-monitor-analyzer"
_MODULE = "trainyard.quality.job"
_SCRIPTS = ("record_preprocessor_script", "post_analytics_processor_script")


def _is_analysis(spec: Mapping) -> bool:
    """Return whether the request runs the model monitor image with the image's own entrypoint."""
    return parse_repository(spec["ImageUri"]) == REPOSITORY and not spec.get("ContainerEntrypoint")


def _explain_analysis_refusal(environment: Mapping[str, str], python: Path) -> str | None:
    """Return why the model monitor's analysis cannot run here. Return None if it can."""
    for name in _SCRIPTS:
        if environment.get(name):
            return (
                f"Environment.{name}: the emulator's analyser does not run user scripts; leave it "
                "out"
            )
    try:
        form = json.loads(environment.get("dataset_format", "{}"))
    except json.JSONDecodeError:
        form = {}  # the job itself reports it, as on AWS
    if form and not {"csv", "json"} & set(form):
        return (
            f"Environment.dataset_format {json.dumps(form)}: the emulator's analyser reads csv, "
            "json and JSON Lines, and neither Parquet nor captured requests"
        )
    if missing := list_missing_modules(python, ["numpy"]):
        return f"{python} lacks {missing[0]} for the analysis: {python} -m pip install numpy"
    return None


ROOT = "/opt/ml/processing"
_LONGEST_MESSAGE = 1024  # DescribeProcessingJob's ExitMessage
_LONGEST_RUN = 86_400  # default in seconds (API reference)
_OF_S3 = {"S3DataDistributionType": "FullyReplicated", "S3CompressionType": "None"}


def _fill_defaults(request: dict) -> dict:
    """Return the request with AWS's defaults, which the container's configuration and Describe
    show.
    """
    inputs = [
        {**entry, "S3Input": {**_OF_S3, **entry["S3Input"]}} if "S3Input" in entry else entry
        for entry in request.get("ProcessingInputs", [])
    ]
    inputs_member = {"ProcessingInputs": inputs} if inputs else {}
    return {"StoppingCondition": {"MaxRuntimeInSeconds": _LONGEST_RUN}, **request, **inputs_member}


class ProcessingJob(Job):
    """A processing job; see :class:`Job`. Creating it raises ApiError if the request cannot be run
    here.
    """

    KIND: ClassVar[str] = "Processing"
    RESOURCE: ClassVar[str] = "processing-job"
    MESSAGE: ClassVar[str] = "/opt/ml/output/message"
    MESSAGE_IS_FAILURE: ClassVar[bool] = False

    def __init__(self, job_services: JobServices, request: dict) -> None:
        for check in self.iter_checks(request, job_services.python):
            check()
        super().__init__(job_services, _fill_defaults(request))

    @staticmethod
    def iter_checks(request: dict, python: Path) -> Iterator[Check]:
        yield partial(_refuse_image, request)
        yield partial(_refuse_entrypoint, request, python)
        for entry in request.get("ProcessingInputs", []):
            yield partial(_refuse_input, entry)
        yield partial(_refuse_shared_folder, request.get("ProcessingInputs", []))
        for entry in request.get("ProcessingOutputConfig", {}).get("Outputs", []):
            yield partial(_refuse_output, entry)

    def count_instances(self) -> int:
        return self.request["ProcessingResources"]["ClusterConfig"]["InstanceCount"]

    def enter(self, phase: str) -> None:
        """Set ProcessingStartTime when the phase Downloading starts."""
        if phase == "Downloading":
            with self.lock:
                self.record["ProcessingStartTime"] = time.time()

    def stage(self, node: Node, hosts: list[str]) -> None:
        """Download the inputs, and set the node's command and environment."""
        node.make_directories("/opt/ml/output", "/opt/ml/config", ROOT)
        for entry in _list_managed(self.request.get("ProcessingInputs", [])):
            source = entry["S3Input"]
            sources = select_objects(
                self.job_services.objects,
                source["S3Uri"],
                source["S3DataType"],
                self.request["RoleArn"],
            )
            if source.get("S3DataDistributionType") == "ShardedByS3Key":
                sources = select_node_share(sources, hosts.index(node.name), len(hosts))
            download_objects(
                self.job_services.objects, sources, node.to_host_path(source["LocalPath"])
            )
        for output in self._list_outputs():
            node.make_directories(output["LocalPath"])
        self._write_config(node, hosts)
        spec = self.request["AppSpecification"]
        if _is_analysis(spec) and not node.image:
            node.command = algorithms.build_module_command(self.job_services.python, _MODULE)
            node.environment["SAGEMAKER_BASE_DIR"] = "/opt/ml"
        else:
            entrypoint = spec.get("ContainerEntrypoint", [])
            node.own_entrypoint = not entrypoint
            node.command = [*entrypoint, *spec.get("ContainerArguments", [])]
        node.environment |= {
            "PROCESSING_JOB_NAME": self.name,
            "PROCESSING_JOB_ARN": self.arn,
            **self.request.get("Environment", {}),
        }
        if not node.image:
            node.environment |= container_images.build_package_environment(
                self.read_image_uri(), node.environment
            )

    def read_image_uri(self) -> str:
        return self.request["AppSpecification"]["ImageUri"]

    def sync(self, nodes: list[Node]) -> AbstractContextManager:
        """Return a context manager that uploads the Continuous outputs while the nodes run."""
        stack = contextlib.ExitStack()
        for number, output in enumerate(self._list_outputs("Continuous")):
            folders = [self.open_folder(node, output["LocalPath"]) for node in nodes]
            aside = self.directory / f"continuous-{number}"
            stack.enter_context(
                ContinuousUpload(self.job_services.objects, folders, output["S3Uri"], aside)
            )
        return stack

    def publish(self, nodes: list[Node], outcome: Outcome) -> None:
        """Upload the EndOfJob outputs. A stopped job uploads nothing."""
        # An EndOfJob output of a stopped job is incomplete but would look complete.
        if outcome.is_stopped or outcome.timed_out:
            return
        for output in self._list_outputs("EndOfJob"):
            for node in nodes:
                folder = self.open_folder(node, output["LocalPath"])
                upload_folder(self.job_services.objects, folder, output["S3Uri"])
        self.outputs = [output["S3Uri"] for output in self._list_outputs()]
        self.record |= self.build_exit_members(self._read_message(nodes[0]))

    def build_exit_members(self, message: str) -> dict:
        return {"ExitMessage": message[:_LONGEST_MESSAGE]} if message else {}

    def _list_outputs(self, mode: str = "") -> list[dict]:
        """Return the S3Output of each output, or only of those whose S3UploadMode is ``mode``."""
        entries = self.request.get("ProcessingOutputConfig", {}).get("Outputs", [])
        outputs = [entry["S3Output"] for entry in _list_managed(entries)]
        return [o for o in outputs if not mode or o.get("S3UploadMode", "EndOfJob") == mode]

    def _write_config(self, node: Node, hosts: list[str]) -> None:
        """Write the files in /opt/ml/config, which tell the container its request and hosts."""
        config = node.to_host_path("/opt/ml/config")
        job: dict[str, Any] = {"ProcessingJobArn": self.arn, **copy.deepcopy(self.request)}
        for source in (entry.get("S3Input", {}) for entry in job.get("ProcessingInputs", [])):
            # Only the container's file has this member; Describe's response does not.
            source |= {"S3DownloadMode": "StartOfJob"}
        (config / "processingjobconfig.json").write_text(json.dumps(job))
        resources = {"current_host": node.name, "hosts": hosts}
        (config / "resourceconfig.json").write_text(json.dumps(resources))


def _refuse_image(request: dict) -> None:
    if reason := container_images.explain_unusable_image(request["AppSpecification"]["ImageUri"]):
        raise make_validation_error(reason)


def _refuse_entrypoint(request: dict, python: Path) -> None:
    """Raise ``ValidationException`` if the job needs a program that only the image has."""
    spec = request["AppSpecification"]
    if container_images.runs_in_engine(spec["ImageUri"]):
        return
    if _is_analysis(spec):
        if reason := _explain_analysis_refusal(request.get("Environment", {}), python):
            raise make_validation_error(reason)
    elif not spec.get("ContainerEntrypoint"):
        raise make_validation_error(
            "AppSpecification has no ContainerEntrypoint, so the image's own would run, which this "
            "machine does not have: name the command, e.g. ['python3', '/opt/ml/processing/...']"
        )


def _refuse_input(entry: dict) -> None:
    location = f"input {entry['InputName']!r}"
    if entry.get("DatasetDefinition"):
        raise make_validation_error(
            f"{location}: DatasetDefinition is not supported here: there is no Athena and no "
            "Redshift. Put the query's files into S3 and name them in S3Input"
        )
    _check_s3_settings(location, entry.get("S3Input"), entry.get("AppManaged", False))


def _refuse_shared_folder(entries: list[dict]) -> None:
    """Raise ``ValidationException`` if two inputs have the same folder. AWS refuses them, too, but
    without a message (sagemaker-python-sdk #4939).
    """
    owners: dict[str, str] = {}
    for entry in _list_managed(entries):
        folder = posixpath.normpath(entry["S3Input"]["LocalPath"])
        other = owners.setdefault(folder, entry["InputName"])
        if other != entry["InputName"]:
            raise make_validation_error(
                f"input {entry['InputName']!r}: LocalPath {folder!r} is already that of {other!r}"
            )


def _refuse_output(entry: dict) -> None:
    location = f"output {entry['OutputName']!r}"
    if "FeatureStoreOutput" in entry:
        raise make_validation_error(
            f"{location}: FeatureStoreOutput is not supported: the emulator has no feature store"
        )
    _check_s3_settings(location, entry.get("S3Output"), entry.get("AppManaged", False))


def _list_managed(entries: list[dict]) -> list[dict]:
    """Return the entries whose data SageMaker transfers: those without AppManaged."""
    return [entry for entry in entries if not entry.get("AppManaged")]


def _check_s3_settings(location: str, s3_settings: dict | None, app_managed: bool) -> None:
    """Raise ``ValidationException`` if an S3Input or S3Output cannot be used here."""
    if s3_settings is None:
        raise make_validation_error(f"{location} has neither S3Input nor S3Output")
    local = s3_settings.get("LocalPath", "")
    if app_managed and not local:  # the application chooses the path
        local = ROOT
    if not f"{local}/".startswith(f"{ROOT}/") or ".." in local.split("/"):
        raise make_validation_error(f"{location}: LocalPath {local!r} must be under {ROOT}/")
    if app_managed:
        return
    if s3_settings.get("S3InputMode", "File") != "File":
        raise make_validation_error(
            f"{location}: S3InputMode {s3_settings['S3InputMode']} is not supported here: use File"
        )
    if s3_settings.get("S3CompressionType", "None") != "None":
        raise make_validation_error(
            f"{location}: S3CompressionType Gzip is not supported here: store it uncompressed"
        )
    check_uri(location, s3_settings["S3Uri"])
