"""Training jobs: channels, hyperparameters, checkpoints, metrics, ``model.tar.gz``.

The container's contract is AWS's: "How Amazon SageMaker AI Provides Training Information" and
"Amazon SageMaker AI Training Storage Folders" in the developer guide.
"""

import contextlib
import json
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import ClassVar

from trainyard.emulator.api import ApiError
from trainyard.emulator.jobs import builtin_algorithms, container_images, image_entrypoint
from trainyard.emulator.jobs.continuous_upload import ContinuousUpload
from trainyard.emulator.jobs.file_systems import stand_in
from trainyard.emulator.jobs.job import Job, Place
from trainyard.emulator.jobs.job_files import JobFolder
from trainyard.emulator.jobs.metric_definitions import Metrics
from trainyard.emulator.jobs.request_checks import Check
from trainyard.emulator.jobs.transfers import (
    ClientFault,
    NoObjects,
    archive,
    download,
    join_key,
    put_file,
    select,
    shard,
    split_uri,
    upload,
)
from trainyard.emulator.runtime.cluster import Outcome
from trainyard.emulator.runtime.node import Mount, Node
from trainyard.emulator.services.cloudwatch.own_metrics import training

CHECKPOINTS = "/opt/ml/checkpoints"
TENSORBOARD = "/opt/ml/output/tensorboard"
GROUP = "homogeneousCluster"  # AWS's name for the only instance group
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
    """A training job; see :class:`Job`. Raises ApiError for a request that cannot be run here."""

    KIND: ClassVar[str] = "Training"
    RESOURCE: ClassVar[str] = "training-job"
    MESSAGE: ClassVar[str] = "/opt/ml/output/failure"

    def __init__(self, place: Place, request: dict) -> None:
        for check in self.checks(request, place.python):
            check()
        for channel in request.get("InputDataConfig", []):
            _refuse_channel(channel, pipeline=False)
        if builtin_algorithms.without_script(request):
            spec = request["AlgorithmSpecification"]
            metrics_member = {"MetricDefinitions": builtin_algorithms.metric_definitions()}
            request = request | {"AlgorithmSpecification": spec | metrics_member}
        self._objects = place.objects  # as a file system reads them: not held to the job's role
        self._metrics = Metrics(request["AlgorithmSpecification"].get("MetricDefinitions", ()))
        super().__init__(place, request)
        name = "model/" if self._is_uncompressed() else "model.tar.gz"
        self.record["ModelArtifacts"] = {"S3ModelArtifacts": self._output_uri(name)}
        self.enter("Starting")

    # what differs between the kinds

    @staticmethod
    def checks(request: dict, python: Path) -> Iterator[Check]:
        yield partial(_refuse_image, request)
        yield partial(_refuse_groups, request)
        yield partial(_refuse_entrypoint, request, python)
        yield partial(_refuse_output, request)
        for channel in request.get("InputDataConfig", []):
            yield partial(_refuse_pipe, request, channel)
            yield partial(_refuse_channel, channel)

    def instances(self) -> int:
        return self.request["ResourceConfig"].get("InstanceCount", 1)

    def stage(self, node: Node, hosts: list[str]) -> None:
        node.make_directories(
            "/opt/ml/input/data", "/opt/ml/model", "/opt/ml/output/data", CHECKPOINTS
        )
        for channel in self._channels():
            self._download(channel, node, hosts)
        if "TensorBoardOutputConfig" in self.request:
            node.make_directories(self._tensorboard())
        self._download_checkpoints(node)
        self._write_config(node, hosts)
        self._say_what_is_ignored(node)
        own = self.request.get("Environment", {})
        node.environment |= {"TRAINING_JOB_NAME": self.name, "TRAINING_JOB_ARN": self.arn}
        if node.image:
            spec = self.request["AlgorithmSpecification"]
            node.own_entrypoint = not spec.get("ContainerEntrypoint")
            arguments = spec.get("ContainerArguments", ["train"] if node.own_entrypoint else [])
            node.command = [*spec.get("ContainerEntrypoint", []), *arguments]
            node.environment |= own
            return
        node.command = image_entrypoint.command(self.request, self.place.python)
        node.environment |= image_entrypoint.environment(self.request) | own
        node.environment |= container_images.own_packages(self.image(), node.environment)

    def image(self) -> str:
        return self.request["AlgorithmSpecification"]["TrainingImage"]

    def own_imports(self) -> set[str]:
        return {"xgboost"} if builtin_algorithms.without_script(self.request) else set()

    def _say_what_is_ignored(self, node: Node) -> None:
        """Log ignored members; SDK v2 sets a profiler rule in every job, so none is refused."""
        if self.request["ResourceConfig"].get("TrainingPlanArn"):
            self.write_notice(
                node.name, "TrainingPlanArn is ignored here: this machine runs the job."
            )
        for member in ("DebugRuleConfigurations", "ProfilerRuleConfigurations"):
            if self.request.get(member):
                self.write_notice(
                    node.name, f"{member}: rules are not evaluated here, so they find nothing."
                )

    def sync(self, nodes: list[Node]) -> AbstractContextManager:
        """Upload checkpoints; TensorBoard's to ``<S3OutputPath>/<job>/tensorboard-output``."""
        stack = contextlib.ExitStack()
        pairs = []
        if uri := self.request.get("CheckpointConfig", {}).get("S3Uri"):
            pairs.append((self._checkpoints(), uri))
        if uri := self.request.get("TensorBoardOutputConfig", {}).get("S3OutputPath"):
            pairs.append((self._tensorboard(), f"{uri.rstrip('/')}/{self.name}/tensorboard-output"))
        for number, (folder, uri) in enumerate(pairs):
            folders = [self.folder(node, folder) for node in nodes]
            aside = self.directory / f"continuous-{number}"
            stack.enter_context(ContinuousUpload(self.place.objects, folders, uri, aside))
        return stack

    def publish(self, nodes: list[Node], outcome: Outcome) -> None:
        """Upload model and output data, also of a stopped job: the grace period is for this."""
        self._publish_model([self.folder(node, "/opt/ml/model") for node in nodes])
        data = [self.folder(node, "/opt/ml/output/data") for node in nodes]
        tar = self.directory / "output.tar.gz"
        if archive(data, tar):
            self._put(tar, "output.tar.gz")

    def enter(self, phase: str) -> None:
        """Update SecondaryStatus, its transitions and the times that depend on them."""
        with self.lock:
            if phase == "Stopped" and self._timed_out():
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
                self._bill(now)
            self.keep()

    def set_status(self, status: str, failure: str | None = None) -> None:
        if status == "Stopping":
            self.enter("Stopping")
        super().set_status(status, failure)

    def read_line(self, host: str, line: str) -> None:
        if (values := self._metrics.read(line)) and self.measures:
            training(self.place.metrics, self.name, values)
        for message in self._metrics.given_up():
            self.write_notice(host, message)

    def describe(self) -> dict:
        return super().describe() | self._collect_metrics()

    def save(self) -> None:
        with self.lock:
            self.record |= self._collect_metrics()
            super().save()

    # inputs

    def _channels(self) -> list[dict]:
        return self.request.get("InputDataConfig", [])

    def _download(self, channel: dict, node: Node, hosts: list[str]) -> None:
        name, target = channel["ChannelName"], node.inside(f"/opt/ml/input/data/{_name(channel)}")
        if system := channel["DataSource"].get("FileSystemDataSource"):
            self._mount(name, system, node, target)
            return
        if self._mode(channel) == "FastFile":
            self.write_notice(
                node.name, f"Channel {name}: FastFile is emulated by downloading first."
            )
        source = channel["DataSource"]["S3DataSource"]
        role = self.request["RoleArn"]
        sources = select(self.place.objects, source["S3Uri"], source["S3DataType"], role)
        if source.get("S3DataDistributionType") == "ShardedByS3Key":
            sources = shard(sources, hosts.index(node.name), len(hosts))
        download(self.place.objects, sources, target)

    def _mount(self, name: str, system: dict, node: Node, target: Path) -> None:
        stand_in_place = stand_in(system)
        folder = Path(stand_in_place.place)
        if stand_in_place.is_mirrored:
            folder = self.directory / "file-systems" / name
            if not folder.exists():  # else another node's: FSx reads the bucket once for all
                place = f"{stand_in_place.place.rstrip('/')}/"  # FSx mirrors a folder
                objects = select(self._objects, place, "S3Prefix", self.request["RoleArn"])
                download(self._objects, objects, folder)
        node.mounts.append(Mount(str(folder), str(target), not stand_in_place.writable))
        self.write_notice(
            node.name, f"Channel {name}: {stand_in_place} stands in for {system['FileSystemId']}."
        )

    def _checkpoints(self) -> str:
        return self.request.get("CheckpointConfig", {}).get("LocalPath") or CHECKPOINTS

    def _tensorboard(self) -> str:
        return self.request["TensorBoardOutputConfig"].get("LocalPath") or TENSORBOARD

    def _download_checkpoints(self, node: Node) -> None:
        uri = self.request.get("CheckpointConfig", {}).get("S3Uri")
        if not uri:
            return
        folder = self._checkpoints()
        if not folder.startswith("/opt/ml/"):
            raise ClientFault(f"CheckpointConfig.LocalPath {folder!r} must be under /opt/ml here")
        node.make_directories(folder)
        with contextlib.suppress(NoObjects):  # none yet: the job starts from the beginning
            sources = select(self.place.objects, uri, "S3Prefix", "")
            download(self.place.objects, sources, node.inside(folder))

    # configuration

    def _write_config(self, node: Node, hosts: list[str]) -> None:
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
        config = node.inside("/opt/ml/input/config")
        config.mkdir()
        documents = {
            "hyperparameters": self.request.get("HyperParameters", {}),
            "resourceconfig": resources,
            "inputdataconfig": {_name(c): self._channel_config(c) for c in self._channels()},
        }
        if checkpoints := self.request.get("CheckpointConfig"):
            configuration = {"LocalPath": self._checkpoints()}
            documents["checkpointconfig"] = checkpoints | configuration
        for name, document in documents.items():
            (config / f"{name}.json").write_text(json.dumps(document))

    def _mode(self, channel: dict) -> str:
        default = self.request["AlgorithmSpecification"].get("TrainingInputMode", "File")
        return channel.get("InputMode") or default

    def _channel_config(self, channel: dict) -> dict:
        source = channel["DataSource"].get("S3DataSource", {})
        config = {
            "TrainingInputMode": self._mode(channel),
            "S3DistributionType": source.get("S3DataDistributionType", "FullyReplicated"),
            "RecordWrapperType": channel.get("RecordWrapperType", "None"),
        }
        return config | ({"ContentType": t} if (t := channel.get("ContentType")) else {})

    # results

    def _publish_model(self, folders: list[JobFolder]) -> None:
        if self._is_uncompressed():
            for folder in reversed(folders):  # algo-1 last: its files win, as in the archive
                upload(self.place.objects, folder, self._output_uri("model/"))
            self.outputs.append(self._output_uri("model/"))
            return
        tar = self.directory / "model.tar.gz"
        if archive(folders, tar):
            self._put(tar, "model.tar.gz")
        else:
            self.write_notice("algo-1", "/opt/ml/model is empty: there is no model.tar.gz.")

    def _is_uncompressed(self) -> bool:
        return self.request["OutputDataConfig"].get("CompressionType") == "NONE"

    def _output_uri(self, name: str) -> str:
        bucket, prefix = split_uri(self.request["OutputDataConfig"]["S3OutputPath"])
        return f"s3://{bucket}/{join_key(prefix, f'{self.name}/output/{name}')}"

    def _put(self, path: Path, name: str) -> None:
        with path.open("rb") as stream:
            put_file(self.place.objects, self._output_uri(""), name, stream)
        self.outputs.append(self._output_uri(name))
        path.unlink()

    def _collect_metrics(self) -> dict:
        latest = self._metrics.latest()
        return {"FinalMetricDataList": latest} if latest else {}

    def _bill(self, now: float) -> None:
        if start_time := self.record.get("TrainingStartTime"):
            seconds = max(1, round(now - start_time))
            self.record |= {"TrainingTimeInSeconds": seconds, "BillableTimeInSeconds": seconds}

    def _timed_out(self) -> bool:
        return self._outcome is not None and self._outcome.timed_out


def _refuse_image(request: dict) -> None:
    spec = request.get("AlgorithmSpecification", {})  # none with a ServerlessJobConfig
    if "TrainingImage" not in spec:
        raise _invalid("AlgorithmSpecification.AlgorithmName is not run here: use TrainingImage")
    if reason := container_images.refusal(spec["TrainingImage"]):
        raise _invalid(reason)


def _refuse_groups(request: dict) -> None:
    if request.get("ResourceConfig", {}).get("InstanceGroups"):
        raise _invalid("ResourceConfig.InstanceGroups are not run here: use InstanceCount")


def _refuse_entrypoint(request: dict, python: Path) -> None:
    if container_images.runs_in_engine(request["AlgorithmSpecification"]["TrainingImage"]):
        return
    if reason := image_entrypoint.refusal(request, python):
        raise _invalid(reason)


def _refuse_output(request: dict) -> None:
    try:
        split_uri(request["OutputDataConfig"]["S3OutputPath"])
    except ClientFault as fault:
        raise _invalid(f"OutputDataConfig.S3OutputPath: {fault}") from None


def _refuse_pipe(request: dict, channel: dict) -> None:
    default = request["AlgorithmSpecification"].get("TrainingInputMode", "File")
    if (channel.get("InputMode") or default) == "Pipe":
        raise _invalid(
            f"{_label_channel(channel)}: InputMode Pipe is not run here: use File or FastFile"
        )


def _refuse_channel(channel: dict, pipeline: bool = True) -> None:
    """Refuse a channel. ``pipeline``: by CreatePipeline's rules, which allow a file's path (AWS's
    own tests rely on that).
    """
    if channel.get("CompressionType", "None") != "None":
        problem = "CompressionType Gzip is not run here: store it uncompressed"
        raise _invalid(f"{_label_channel(channel)}: {problem}")
    try:
        if "FileSystemDataSource" in channel["DataSource"]:
            stand_in(channel["DataSource"]["FileSystemDataSource"])
        elif "S3DataSource" in channel["DataSource"]:
            if "://" in (uri := channel["DataSource"]["S3DataSource"]["S3Uri"]) or not pipeline:
                split_uri(uri)
        else:
            raise ClientFault("expected an S3DataSource or a FileSystemDataSource")
    except ClientFault as fault:
        raise _invalid(f"{_label_channel(channel)}: {fault}") from None


def _label_channel(channel: dict) -> str:
    return f"channel {channel['ChannelName']!r}"


def _name(channel: dict) -> str:
    return channel["ChannelName"]


def _invalid(message: str) -> ApiError:
    return ApiError("ValidationException", message)
