"""Training jobs: channels, hyperparameters, checkpoints, metrics, ``model.tar.gz``.

The container's contract is AWS's: "How Amazon SageMaker AI Provides Training Information" and
"Amazon SageMaker AI Training Storage Folders" in the developer guide.
"""

import contextlib
import json
import math
import os
import posixpath
import shutil
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from trainyard.emulator.algorithms.xgboost import facts
from trainyard.emulator.cloudwatch.metric_store import record_training_metrics
from trainyard.emulator.containers.cluster import Outcome
from trainyard.emulator.containers.isolation import choose_isolation
from trainyard.emulator.containers.node import Mount, Node
from trainyard.emulator.request_scope import ApiError, make_validation_error
from trainyard.emulator.request_shapes import Check
from trainyard.emulator.sagemaker.jobs import builtin_algorithms, container_images
from trainyard.emulator.sagemaker.jobs.job import Job, JobServices
from trainyard.emulator.sagemaker.jobs.job_files import JobFolder
from trainyard.emulator.sagemaker.jobs.transfers import (
    ClientFault,
    ContinuousUpload,
    NoObjects,
    check_uri,
    download_objects,
    join_key,
    put_file,
    select_node_share,
    select_objects,
    split_uri,
    upload_folder,
    write_archive,
)
from trainyard.language.step_types.job_steps import DRIVERS, PROGRAM, has_driver_program
from trainyard.runs.metric_lines import Definition, compile_definition

CHECKPOINTS = "/opt/ml/checkpoints"
TENSORBOARD = "/opt/ml/output/tensorboard"
GROUP = "homogeneousCluster"  # AWS's name for the instance group of a job without InstanceGroups
_MESSAGES = {
    "Starting": "Starting the training job",
    "Downloading": "Downloading input data",
    "Training": "Training image download completed. Training in progress.",
    "Uploading": "Uploading generated training model",
    "Completed": "Training job completed",
    "Failed": "Training job failed",
    "Stopping": "Stopping the training job",
    "Stopped": "Training job stopped",
    "MaxRuntimeExceeded": "Training job ran longer than MaxRuntimeInSeconds",
}
"""StatusMessage of each SecondaryStatus."""


class TrainingJob(Job):
    """A training job; see :class:`Job`. Creating it raises ApiError if the request cannot be run
    here.
    """

    KIND: ClassVar[str] = "Training"
    RESOURCE: ClassVar[str] = "training-job"
    MESSAGE: ClassVar[str] = "/opt/ml/output/failure"

    def __init__(self, job_services: JobServices, request: dict) -> None:
        for check in self.iter_checks(request, job_services.python):
            check()
        for channel in request.get("InputDataConfig", []):
            _refuse_channel(channel, pipeline=False)
        if builtin_algorithms.runs_without_script(request):
            spec = request["AlgorithmSpecification"]
            metrics_member = {"MetricDefinitions": builtin_algorithms.list_metric_definitions()}
            request = request | {"AlgorithmSpecification": spec | metrics_member}
        # Used for file systems, which read S3 without the permissions of the job's role.
        self._objects = job_services.objects
        self._metrics = Metrics(request["AlgorithmSpecification"].get("MetricDefinitions", ()))
        super().__init__(job_services, request)
        name = "model/" if self._is_uncompressed() else "model.tar.gz"
        self.record["ModelArtifacts"] = {"S3ModelArtifacts": self._build_output_uri(name)}
        self.enter("Starting")

    # what differs between the kinds

    @staticmethod
    def iter_checks(request: dict, python: Path) -> Iterator[Check]:
        yield partial(_refuse_image, request)
        yield partial(_refuse_groups, request)
        yield partial(_refuse_entrypoint, request, python)
        yield partial(_refuse_output, request)
        for channel in request.get("InputDataConfig", []):
            yield partial(_refuse_pipe, request, channel)
            yield partial(_refuse_channel, channel)

    def count_instances(self) -> int:
        return self.request["ResourceConfig"].get("InstanceCount", 1)

    def stage(self, node: Node, hosts: list[str]) -> None:
        """Download the channels and checkpoints, and set the node's command and environment."""
        node.make_directories(
            "/opt/ml/input/data", "/opt/ml/model", "/opt/ml/output/data", CHECKPOINTS
        )
        for channel in self._list_channels():
            self._download(channel, node, hosts)
        if "TensorBoardOutputConfig" in self.request:
            node.make_directories(self._get_tensorboard_path())
        self._download_checkpoints(node)
        self._write_config(node, hosts)
        self._log_ignored_members(node)
        own = self.request.get("Environment", {})
        node.environment |= {"TRAINING_JOB_NAME": self.name, "TRAINING_JOB_ARN": self.arn}
        if node.image:
            spec = self.request["AlgorithmSpecification"]
            node.own_entrypoint = not spec.get("ContainerEntrypoint")
            arguments = spec.get("ContainerArguments", ["train"] if node.own_entrypoint else [])
            node.command = [*spec.get("ContainerEntrypoint", []), *arguments]
            node.environment |= own
            return
        node.command = build_command(self.request, self.job_services.python)
        node.environment |= build_toolkit_environment(self.request) | own
        node.environment |= container_images.build_package_environment(
            self.read_image_uri(), node.environment
        )

    def read_image_uri(self) -> str:
        return self.request["AlgorithmSpecification"]["TrainingImage"]

    def list_own_imports(self) -> set[str]:
        """Return the packages that AWS's XGBoost algorithm imports, if the job runs it."""
        return {"xgboost"} if builtin_algorithms.runs_without_script(self.request) else set()

    def _log_ignored_members(self, node: Node) -> None:
        """Write a notice to the log for each member of the request that is ignored."""
        if self.request["ResourceConfig"].get("TrainingPlanArn"):
            self.write_notice(
                node.name, "TrainingPlanArn is ignored here: this machine runs the job."
            )
        # Only a notice: SDK v2 sets a profiler rule in every job, so refusing rules would refuse
        # all jobs.
        for member in ("DebugRuleConfigurations", "ProfilerRuleConfigurations"):
            if self.request.get(member):
                self.write_notice(
                    node.name, f"{member}: rules are not evaluated here, so they find nothing."
                )

    def sync(self, nodes: list[Node]) -> AbstractContextManager:
        """Return a context manager that uploads checkpoints while the job runs, and TensorBoard's
        files to ``<S3OutputPath>/<job>/tensorboard-output``.
        """
        stack = contextlib.ExitStack()
        pairs = []
        if uri := self.request.get("CheckpointConfig", {}).get("S3Uri"):
            pairs.append((self._get_checkpoint_path(), uri))
        if uri := self.request.get("TensorBoardOutputConfig", {}).get("S3OutputPath"):
            pairs.append(
                (self._get_tensorboard_path(), f"{uri.rstrip('/')}/{self.name}/tensorboard-output")
            )
        for number, (folder, uri) in enumerate(pairs):
            folders = [self.open_folder(node, folder) for node in nodes]
            aside = self.directory / f"continuous-{number}"
            stack.enter_context(ContinuousUpload(self.job_services.objects, folders, uri, aside))
        return stack

    def publish(self, nodes: list[Node], outcome: Outcome) -> None:
        """Upload the model and the output data. A stopped job uploads them, too: that is what its
        grace period is for.
        """
        self._publish_model([self.open_folder(node, "/opt/ml/model") for node in nodes])
        data = [self.open_folder(node, "/opt/ml/output/data") for node in nodes]
        tar = self.directory / "output.tar.gz"
        if write_archive(data, tar):
            self._upload_file(tar, "output.tar.gz")

    def enter(self, phase: str) -> None:
        """Set SecondaryStatus for ``phase``, and the transitions and times that depend on it."""
        with self.lock:
            timed_out = self._outcome is not None and self._outcome.timed_out
            if phase == "Stopped" and timed_out:
                phase = "MaxRuntimeExceeded"
            now = time.time()
            transitions = self.record.setdefault("SecondaryStatusTransitions", [])
            if transitions:
                transitions[-1].setdefault("EndTime", now)
            transitions.append(
                {"Status": phase, "StartTime": now, "StatusMessage": _MESSAGES[phase]}
            )
            self.record["SecondaryStatus"] = phase
            if phase == "Downloading":
                self.record["TrainingStartTime"] = now
            if phase in ("Completed", "Failed", "Stopped", "MaxRuntimeExceeded"):
                transitions[-1]["EndTime"] = now
                if start_time := self.record.get("TrainingStartTime"):
                    seconds = max(1, round(now - start_time))
                    self.record |= {
                        "TrainingTimeInSeconds": seconds,
                        "BillableTimeInSeconds": seconds,
                    }
            self.save_or_retry()

    def set_status(self, status: str, failure: str | None = None) -> None:
        """Set the job's status, and its SecondaryStatus if it is being stopped."""
        if status == "Stopping":
            self.enter("Stopping")
        super().set_status(status, failure)

    def read_line(self, host: str, line: str) -> None:
        """Record the metrics in a line of the log, and report regular expressions that are too
        slow.
        """
        if (values := self._metrics.record_values(line)) and self.measures:
            record_training_metrics(self.job_services.metrics, self.name, values)
        for message in self._metrics.report_slow_patterns():
            self.write_notice(host, message)

    def describe(self) -> dict:
        return super().describe() | self._collect_metrics()

    def save(self) -> None:
        with self.lock:
            self.record |= self._collect_metrics()
            super().save()

    # inputs

    def _list_channels(self) -> list[dict]:
        return self.request.get("InputDataConfig", [])

    def _download(self, channel: dict, node: Node, hosts: list[str]) -> None:
        """Download a channel into the node's folder, or mount its file system's replacement."""
        name, target = (
            channel["ChannelName"],
            node.to_host_path(f"/opt/ml/input/data/{_get_channel_name(channel)}"),
        )
        if system := channel["DataSource"].get("FileSystemDataSource"):
            self._mount(name, system, node, target)
            return
        if self._get_input_mode(channel) == "FastFile":
            self.write_notice(
                node.name, f"Channel {name}: FastFile is emulated by downloading first."
            )
        source = channel["DataSource"]["S3DataSource"]
        role = self.request["RoleArn"]
        sources = select_objects(
            self.job_services.objects, source["S3Uri"], source["S3DataType"], role
        )
        if source.get("S3DataDistributionType") == "ShardedByS3Key":
            sources = select_node_share(sources, hosts.index(node.name), len(hosts))
        download_objects(self.job_services.objects, sources, target)

    def _mount(self, name: str, system: dict, node: Node, target: Path) -> None:
        """Mount the replacement of a channel's file system. A replacement in S3 is downloaded
        first.
        """
        stand_in = find_stand_in(system)
        folder = Path(stand_in.location)
        if stand_in.is_mirrored:
            folder = self.directory / "file-systems" / name
            # If the folder exists, another node has filled it: FSx reads the bucket once for all
            # nodes.
            if not folder.exists():
                uri = f"{stand_in.location.rstrip('/')}/"  # FSx mirrors a folder
                objects = select_objects(self._objects, uri, "S3Prefix", self.request["RoleArn"])
                download_objects(self._objects, objects, folder)
        node.mounts.append(Mount(str(folder), str(target), not stand_in.writable))
        self.write_notice(
            node.name, f"Channel {name}: {stand_in} stands in for {system['FileSystemId']}."
        )

    def _get_checkpoint_path(self) -> str:
        return self.request.get("CheckpointConfig", {}).get("LocalPath") or CHECKPOINTS

    def _get_tensorboard_path(self) -> str:
        return self.request["TensorBoardOutputConfig"].get("LocalPath") or TENSORBOARD

    def _download_checkpoints(self, node: Node) -> None:
        """Download the checkpoints of an earlier job, if the request has a CheckpointConfig."""
        uri = self.request.get("CheckpointConfig", {}).get("S3Uri")
        if not uri:
            return
        folder = self._get_checkpoint_path()
        if not folder.startswith("/opt/ml/"):
            raise ClientFault(f"CheckpointConfig.LocalPath {folder!r} must be under /opt/ml here")
        node.make_directories(folder)
        # NoObjects: there are no checkpoints yet, and the job starts from the beginning.
        with contextlib.suppress(NoObjects):
            sources = select_objects(self.job_services.objects, uri, "S3Prefix", "")
            download_objects(self.job_services.objects, sources, node.to_host_path(folder))

    # configuration

    def _write_config(self, node: Node, hosts: list[str]) -> None:
        """Write the files in /opt/ml/input/config, which tell the container its request."""
        kind = self.request["ResourceConfig"].get("InstanceType", "local")
        group = {"instance_group_name": GROUP, "instance_type": kind, "hosts": hosts}
        resources = {
            "current_host": node.name,
            "current_instance_type": kind,
            "current_group_name": GROUP,
            "hosts": hosts,
            "instance_groups": [group],
            "network_interface_name": self.interface,
        }
        config = node.to_host_path("/opt/ml/input/config")
        config.mkdir()
        documents = {
            "hyperparameters": self.request.get("HyperParameters", {}),
            "resourceconfig": resources,
            "inputdataconfig": {
                _get_channel_name(c): self._build_channel_config(c) for c in self._list_channels()
            },
        }
        if checkpoints := self.request.get("CheckpointConfig"):
            configuration = {"LocalPath": self._get_checkpoint_path()}
            documents["checkpointconfig"] = checkpoints | configuration
        for name, document in documents.items():
            (config / f"{name}.json").write_text(json.dumps(document))

    def _get_input_mode(self, channel: dict) -> str:
        default = self.request["AlgorithmSpecification"].get("TrainingInputMode", "File")
        return channel.get("InputMode") or default

    def _build_channel_config(self, channel: dict) -> dict:
        source = channel["DataSource"].get("S3DataSource", {})
        config = {
            "TrainingInputMode": self._get_input_mode(channel),
            "S3DistributionType": source.get("S3DataDistributionType", "FullyReplicated"),
            "RecordWrapperType": channel.get("RecordWrapperType", "None"),
        }
        return config | ({"ContentType": t} if (t := channel.get("ContentType")) else {})

    # results

    def _publish_model(self, folders: list[JobFolder]) -> None:
        """Upload /opt/ml/model, as files or as model.tar.gz, and note the URI in ``outputs``."""
        if self._is_uncompressed():
            # algo-1 last: its files overwrite others, as in the archive.
            for folder in reversed(folders):
                upload_folder(self.job_services.objects, folder, self._build_output_uri("model/"))
            self.outputs.append(self._build_output_uri("model/"))
            return
        tar = self.directory / "model.tar.gz"
        if write_archive(folders, tar):
            self._upload_file(tar, "model.tar.gz")
        else:
            self.write_notice("algo-1", "/opt/ml/model is empty: there is no model.tar.gz.")

    def _is_uncompressed(self) -> bool:
        return self.request["OutputDataConfig"].get("CompressionType") == "NONE"

    def _build_output_uri(self, name: str) -> str:
        bucket, prefix = split_uri(self.request["OutputDataConfig"]["S3OutputPath"])
        return f"s3://{bucket}/{join_key(prefix, f'{self.name}/output/{name}')}"

    def _upload_file(self, path: Path, name: str) -> None:
        """Upload the file as ``name``, note the URI in ``outputs``, and delete the file."""
        with path.open("rb") as stream:
            put_file(self.job_services.objects, self._build_output_uri(""), name, stream)
        self.outputs.append(self._build_output_uri(name))
        path.unlink()

    def _collect_metrics(self) -> dict:
        latest = self._metrics.list_final_metrics()
        return {"FinalMetricDataList": latest} if latest else {}


def _refuse_image(request: dict) -> None:
    spec = request.get("AlgorithmSpecification", {})  # none with a ServerlessJobConfig
    if "TrainingImage" not in spec:
        raise make_validation_error(
            "AlgorithmSpecification.AlgorithmName is not supported here: use TrainingImage"
        )
    if reason := container_images.explain_unusable_image(spec["TrainingImage"]):
        raise make_validation_error(reason)


def _refuse_groups(request: dict) -> None:
    if request.get("ResourceConfig", {}).get("InstanceGroups"):
        raise make_validation_error(
            "ResourceConfig.InstanceGroups are not supported here: use InstanceCount"
        )


def _refuse_entrypoint(request: dict, python: Path) -> None:
    if container_images.runs_in_engine(request["AlgorithmSpecification"]["TrainingImage"]):
        return
    if reason := explain_unstartable_job(request, python):
        raise make_validation_error(reason)


def _refuse_output(request: dict) -> None:
    check_uri("OutputDataConfig.S3OutputPath", request["OutputDataConfig"]["S3OutputPath"])


def _refuse_pipe(request: dict, channel: dict) -> None:
    default = request["AlgorithmSpecification"].get("TrainingInputMode", "File")
    if (channel.get("InputMode") or default) == "Pipe":
        raise make_validation_error(
            f"{_label_channel(channel)}: InputMode Pipe is not supported here: use File or FastFile"
        )


def _refuse_channel(channel: dict, pipeline: bool = True) -> None:
    """Raise ``ValidationException`` if the channel cannot be used here.

    ``pipeline``: apply CreatePipeline's rules, which allow a local path instead of an S3 URI (AWS's
    own tests rely on that).
    """
    if channel.get("CompressionType", "None") != "None":
        problem = "CompressionType Gzip is not supported here: store it uncompressed"
        raise make_validation_error(f"{_label_channel(channel)}: {problem}")
    try:
        if "FileSystemDataSource" in channel["DataSource"]:
            find_stand_in(channel["DataSource"]["FileSystemDataSource"])
        elif "S3DataSource" in channel["DataSource"]:
            if "://" in (uri := channel["DataSource"]["S3DataSource"]["S3Uri"]) or not pipeline:
                split_uri(uri)
        else:
            raise ClientFault("expected an S3DataSource or a FileSystemDataSource")
    except ClientFault as fault:
        raise make_validation_error(f"{_label_channel(channel)}: {fault}") from None


def _label_channel(channel: dict) -> str:
    return f"channel {channel['ChannelName']!r}"


def _get_channel_name(channel: dict) -> str:
    return channel["ChannelName"]


# What stands in for the file systems (FSx for Lustre, EFS) that a training job mounts.
#
# The variable ``TRAINYARD_EMULATOR_FILE_SYSTEMS`` lists them, separated by commas:
#
# fs-0123abcd=/a/folder                 shows that folder of this machine
# fs-0123abcd/mount/data=s3://bucket/prefix        its folder /mount/data is associated with S3
#
# An id without a path stands for the whole file system: DirectoryPath is looked up in its
# replacement, on FSx for Lustre without the mount name with which it begins.

VARIABLE = "TRAINYARD_EMULATOR_FILE_SYSTEMS"
FORM = f"{VARIABLE}=%s=/a/local/folder (or =s3://bucket/prefix, which FSx for Lustre mirrors)"


@dataclass(frozen=True, slots=True)
class StandIn:
    """The local folder or S3 prefix that replaces a channel's file system."""

    location: str
    """Absolute path, or ``s3://bucket/prefix``."""

    writable: bool

    def __str__(self) -> str:
        suffix = "" if self.writable or choose_isolation().notice else ", read-only"
        return f"{self.location}{suffix},"

    @property
    def is_mirrored(self) -> bool:
        return self.location.startswith("s3://")


def find_stand_in(source: Mapping[str, Any]) -> StandIn:
    """Return the local folder or S3 prefix that replaces a channel's FileSystemDataSource.

    Raises:
        ClientFault: no replacement is configured for the file system, or the folder is missing.
    """
    system, kind = source["FileSystemId"], source["FileSystemType"]
    stand_ins = {key: value for key, value in _iter_stand_ins() if key.partition("/")[0] == system}
    if not stand_ins:
        raise ClientFault(
            f"{kind} file system {system} does not exist on this machine: set {FORM % system}"
        )
    # normpath keeps two slashes at the start, as POSIX allows.
    path = posixpath.normpath(f"/{source['DirectoryPath']}").replace("//", "/")
    above = [key for key in stand_ins if f"{system}{path}/".startswith(f"{key}/")]
    if not above:
        raise ClientFault(
            f"{kind} file system {system}: {path} does not exist on this machine, where {VARIABLE} "
            f"has {', '.join(sorted(stand_ins))}"
        )
    # If several configured folders contain the path, the deepest one applies.
    key = max(above, key=len)
    rest = f"{system}{path}".removeprefix(key).strip("/")
    if key == system and kind == "FSxLustre":
        rest = rest.partition("/")[2]
    return _make_stand_in(stand_ins[key], rest, source)


def _iter_stand_ins() -> Iterator[tuple[str, str]]:
    """Iterate over pairs of a file system id, possibly followed by a path, and its replacement."""
    for pair in filter(None, map(str.strip, os.environ.get(VARIABLE, "").split(","))):
        key, equals, value = pair.partition("=")
        if not equals or not value.startswith(("/", "s3://")):
            raise ClientFault(f"{VARIABLE}: {pair!r}: expected {FORM % 'fs-0123abcd'}")
        yield key.rstrip("/"), value


def _make_stand_in(location: str, rest: str, source: Mapping[str, Any]) -> StandIn:
    """Return the replacement for the path ``rest`` below ``location``. Raises ClientFault if it
    cannot be used.
    """
    stand_in = StandIn(location, source.get("FileSystemAccessMode") == "rw")
    if stand_in.writable and stand_in.is_mirrored:
        raise ClientFault(
            "FileSystemAccessMode rw is supported here only with a local folder: use ro"
        )
    if stand_in.is_mirrored:
        bucket, key = split_uri(location)
        return StandIn(f"s3://{bucket}/{join_key(key, rest)}", stand_in.writable)
    folder = Path(location, rest)
    if not folder.is_dir():
        raise ClientFault(
            f"{source['FileSystemType']} file system {source['FileSystemId']}: "
            f"{source['DirectoryPath']} does not exist: {folder} is not a folder of this machine"
        )
    return StandIn(str(folder.resolve()), stand_in.writable)


# The command of a training job: the request's entrypoint, or the image's own, which is AWS's
# sagemaker-training toolkit. A tuning job's API has no entrypoint, so AWS's drivers can be started
# in it as a program of the toolkit, named by hyperparameters. If the toolkit is missing, that
# program is started directly.


def build_command(request: dict[str, Any], python: Path) -> list[str]:
    """Return the command that a node of the training job runs."""
    if builtin_algorithms.runs_without_script(request):
        return builtin_algorithms.build_training_command(request, python)
    spec = request["AlgorithmSpecification"]
    command_line = find_toolkit(python)
    if not spec.get("ContainerEntrypoint") and command_line is None:
        return [str(python), f"{DRIVERS}/{request['HyperParameters'][PROGRAM]}"]
    return [
        *(spec.get("ContainerEntrypoint") or [str(command_line)]),
        *spec.get("ContainerArguments", []),
    ]


def build_toolkit_environment(request: dict[str, Any]) -> dict[str, str]:
    """Return AWS's variables for the images' own entrypoint, the sagemaker-training toolkit; empty
    if the request has an entrypoint.
    """
    if request["AlgorithmSpecification"].get("ContainerEntrypoint"):
        return {}
    if builtin_algorithms.runs_without_script(request):
        return {"SAGEMAKER_BASE_DIR": "/opt/ml"}
    image = request["AlgorithmSpecification"]["TrainingImage"]
    plain = (
        facts.parse_repository(image) == "sagemaker-scikit-learn"
    )  # its toolkit only runs the script
    package = f"sagemaker_{'xgboost' if facts.is_xgboost_image(image) else 'pytorch'}_container"
    module = {"SAGEMAKER_TRAINING_MODULE": f"{package}.training:main"}
    return {
        "SAGEMAKER_BASE_DIR": "/opt/ml",
        **({} if plain else module),
        "SM_STUDIO_LOCAL_MODE": "true",  # otherwise it waits a minute for its peers' DNS names
    }


def explain_unstartable_job(request: dict[str, Any], python: Path) -> str | None:
    """Return why the interpreter cannot start the job. Return None if it can."""
    spec = request["AlgorithmSpecification"]
    if builtin_algorithms.runs_without_script(request):
        return builtin_algorithms.explain_algorithm_refusal(request, python)
    if spec.get("ContainerEntrypoint") or find_toolkit(python) or has_driver_program(request):
        return None
    return (
        "AlgorithmSpecification has no ContainerEntrypoint, so the image's own would run: the "
        f"sagemaker-training toolkit, which {python} lacks. SDK v3's ModelTrainer sets an "
        "entrypoint; for SDK v2 jobs install sagemaker-pytorch-training there, or "
        "sagemaker-training, which is enough for XGBoost and scikit-learn"
    )


def find_toolkit(python: Path) -> Path | None:
    """Return the path of the sagemaker-training toolkit's command. Return None if the interpreter
    lacks it.
    """
    program = shutil.which("train", path=str(python.parent))
    return Path(program) if program else None


# Metrics of a training job, read from its log lines as they are written.


class Metrics:
    """The latest value of each metric. Its methods are thread-safe."""

    def __init__(self, definitions: Iterable[Mapping[str, Any]]) -> None:
        self._metrics = [compile_metric_definition(entry) for entry in definitions]
        self._latest: dict[str, dict] = {}
        self._reported_definitions: set[str] = set()
        self._lock = threading.Lock()

    def record_values(self, line: str) -> list[tuple[str, float]]:
        """Store the metrics in a log line as the latest values. Return (name, value) of each. NaN
        and infinity are skipped, because JSON cannot contain them.
        """
        values = []
        for metric in self._metrics:
            value = metric.extract_value(line)
            if value is not None and math.isfinite(value):
                entry = {"MetricName": metric.name, "Value": value, "Timestamp": time.time()}
                with self._lock:
                    self._latest[metric.name] = entry
                values.append((metric.name, value))
        return values

    def report_slow_patterns(self) -> list[str]:
        """Return a message for each regular expression that has proved too slow since the last
        call.
        """
        slow = {
            pattern.name: pattern.pattern
            for pattern in self._metrics
            if pattern.pattern.is_abandoned
        }
        with self._lock:
            new = slow.keys() - self._reported_definitions
            self._reported_definitions |= new
        return [slow[name].explain_timeout(name) for name in sorted(new)]

    def list_final_metrics(self) -> list[dict]:
        """Return ``FinalMetricDataList``: MetricName, Value, Timestamp (seconds)."""
        with self._lock:
            return list(self._latest.values())


def compile_metric_definition(entry: Mapping[str, Any]) -> Definition:
    """Return the compiled metric definition. Raises ``ValidationException`` if it is not valid."""
    try:
        return compile_definition(entry)
    except ValueError as error:
        raise ApiError("ValidationException", str(error)) from None
