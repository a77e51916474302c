"""An emulator, and small jobs to run on it."""

import contextlib
import functools
import json
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import psutil
import pytest

from tests.trainyard.emulator.standin import make_client
from trainyard.emulator.client_environment import apply_environment
from trainyard.emulator.containers.isolation import explain_missing_namespaces
from trainyard.emulator.sagemaker.sagemaker_api import SageMaker
from trainyard.emulator.server import Endpoint, serve_emulator

ROLE = "arn:aws:iam::123456789012:role/pipeline"
IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.6.0-cpu-py312"
PATIENCE = 120  # seconds, far more than anything here takes on a busy machine
ENDED = ("Succeeded", "Failed", "Stopped", "CompletedWithFailures")
needs_namespaces = pytest.mark.skipif(
    explain_missing_namespaces() is not None, reason=f"namespaces: {explain_missing_namespaces()}"
)


@dataclass
class Cloud:
    """A running emulator and boto3 clients of it. Its bucket is ``bkt``."""

    endpoint: Endpoint
    state: Path

    def __post_init__(self) -> None:
        self.sm = make_client(self.endpoint, "sagemaker")
        self.s3 = make_client(self.endpoint, "s3")
        self.logs = make_client(self.endpoint, "logs")
        self.s3.create_bucket(Bucket="bkt")

    @functools.cached_property
    def runtime(self):
        """Return a client for requests to endpoints."""
        return make_client(self.endpoint, "sagemaker-runtime")

    @functools.cached_property
    def functions(self):
        """Return a client of Lambda."""
        return make_client(self.endpoint, "lambda")

    def put(self, key: str, data: bytes | str) -> str:
        body = data if isinstance(data, bytes) else data.encode()
        self.s3.put_object(Bucket="bkt", Key=key, Body=body)
        return f"s3://bkt/{key}"

    def get(self, key: str) -> bytes:
        return self.s3.get_object(Bucket="bkt", Key=key)["Body"].read()

    def keys(self, prefix: str = "") -> list[str]:
        found = self.s3.list_objects_v2(Bucket="bkt", Prefix=prefix).get("Contents", [])
        return [entry["Key"] for entry in found]

    # jobs

    def train(self, name: str, script: str, **overrides: Any) -> dict:
        """Run a training job to its end; return its description."""
        self.sm.create_training_job(TrainingJobName=name, **training(script) | overrides)
        return self.wait_for_training(name)

    def wait_for_training(self, name: str) -> dict:
        describe = functools.partial(self.sm.describe_training_job, TrainingJobName=name)
        return wait(describe, "TrainingJobStatus", ("Completed", "Failed", "Stopped"))

    def process(self, name: str, script: str, **overrides: Any) -> dict:
        """Run a processing job to its end; return its description."""
        self.sm.create_processing_job(ProcessingJobName=name, **processing(script) | overrides)
        describe = functools.partial(self.sm.describe_processing_job, ProcessingJobName=name)
        return wait(describe, "ProcessingJobStatus", ("Completed", "Failed", "Stopped"))

    def log(self, kind: str, job: str, node: str = "algo-1") -> list[str]:
        """Return the job's own log lines, without those that the emulator marks."""
        lines = self.all_lines(kind, job, node)
        return [line for line in lines if not line.startswith("[emulator] ")]

    def all_lines(self, kind: str, job: str, node: str = "algo-1") -> list[str]:
        """Return the lines of the job's log; none as long as the job has not written any."""
        group = f"/aws/sagemaker/{kind}Jobs"
        try:
            streams = self.logs.describe_log_streams(
                logGroupName=group, logStreamNamePrefix=f"{job}/{node}-"
            )["logStreams"]
        except self.logs.exceptions.ResourceNotFoundException:
            return []  # the group is created with the first line, as on AWS
        if not streams:
            return []
        events = self.logs.get_log_events(
            logGroupName=group, logStreamName=streams[0]["logStreamName"], startFromHead=True
        )
        return [event["message"] for event in events["events"]]

    def processes(self, job: str) -> list[psutil.Process]:
        """Return the main processes of the job's nodes that are alive."""
        path = self.state / "jobs" / job / "nodes.json"
        until(path.exists)
        nodes = json.loads(path.read_text())
        return [psutil.Process(pid) for pid in nodes.values() if psutil.pid_exists(pid)]

    def family(self, job: str, at_least: int) -> list[psutil.Process]:
        """Return all processes of the job, when there are that many beside its supervisor."""
        supervisor = until(lambda: self.processes(job))[0].parent()
        children = lambda: supervisor.children(recursive=True)  # noqa: E731
        return [supervisor, *until(lambda: c if len(c := children()) >= at_least else None)]

    # pipelines

    def create(self, name: str, steps: list[dict], **definition: Any) -> str:
        text = json.dumps(pipeline(steps, **definition))
        return self.sm.create_pipeline(
            PipelineName=name, PipelineDefinition=text, RoleArn=ROLE, ClientRequestToken="t" * 32
        )["PipelineArn"]

    def start(self, name: str, parameters: dict[str, str] | None = None, **more: Any) -> str:
        given = [{"Name": key, "Value": value} for key, value in (parameters or {}).items()]
        return self.sm.start_pipeline_execution(
            PipelineName=name, PipelineParameters=given, **more
        )["PipelineExecutionArn"]

    def wait_for_execution(self, arn: str) -> dict:
        describe = functools.partial(self.sm.describe_pipeline_execution, PipelineExecutionArn=arn)
        return wait(describe, "PipelineExecutionStatus", ENDED)

    def steps(self, arn: str) -> dict[str, dict]:
        """Return step name -> its entry, in the order in which they started."""
        answer = self.sm.list_pipeline_execution_steps(
            PipelineExecutionArn=arn, SortOrder="Ascending"
        )
        return {step["StepName"]: step for step in answer["PipelineExecutionSteps"]}

    def run(self, name: str, parameters: dict[str, str] | None = None) -> tuple[dict, dict]:
        """Run the pipeline to its end; return the execution's description and its steps."""
        arn = self.start(name, parameters)
        return self.wait_for_execution(arn), self.steps(arn)


class Gate:
    """A point that an emulator's jobs do not pass before it is opened: a file in their /opt/ml."""

    def __init__(self, aws: Cloud) -> None:
        self._name = f"gate-{uuid.uuid4().hex}"
        self._folders: list[Path] = []
        self._is_open = False
        self._lock = threading.Lock()
        self._next = aws.endpoint.app.aws.on_stage
        aws.endpoint.app.aws.on_stage = self._stage
        self.wait = f"until [ -e /opt/ml/{self._name} ]; do sleep 0.05; done"
        """Script that waits for it."""

    def open(self) -> None:
        with self._lock:
            self._is_open = True
            for folder in self._folders:
                with contextlib.suppress(FileNotFoundError):  # of a job that has ended
                    (folder / self._name).touch()

    def _stage(self, job: str, host: str, folder: Path) -> None:
        self._next(job, host, folder)
        with self._lock:
            self._folders.append(folder)
            if self._is_open:
                (folder / self._name).touch()


@contextlib.contextmanager
def cloud(state: Path, stop_grace: float = 1.0) -> Iterator[Cloud]:
    """Start an emulator. ``stop_grace``: seconds from SIGTERM to SIGKILL for a stopped job, whose
    shell mostly does not handle it; AWS's are two minutes.
    """
    make = functools.partial(SageMaker, stop_grace=stop_grace)
    with serve_emulator(state, make_sagemaker=make) as endpoint:
        yield Cloud(endpoint, state)


@contextlib.contextmanager
def taken_for_aws(aws: Cloud) -> Iterator[None]:
    """Use the emulator as AWS in this process; boto3's session keeps no keys of an earlier one."""
    with apply_environment(aws.endpoint.env):
        boto3.DEFAULT_SESSION = None
        yield
    boto3.DEFAULT_SESSION = None


def until(condition: Any, timeout: float = PATIENCE) -> Any:
    """Return the condition's first true value.

    The pauses get longer: the condition runs on the same cores as the work that it waits for.
    """
    end, pause = time.monotonic() + timeout, 0.01
    while not (value := condition()):
        assert time.monotonic() < end, "timed out"
        time.sleep(pause)
        pause = min(0.1, 1.25 * pause)
    return value


def wait(describe: Any, field: str, ended: tuple[str, ...]) -> dict:
    return until(lambda: d if (d := describe())[field] in ended else None)


# requests


LONGEST = 256
"""Characters of a container's argument, at most."""


def arguments(script: str) -> list[str]:
    """Return bash's arguments for the script; of a long one as many as it takes."""
    if len(script) <= LONGEST:
        return [script]
    parts = [script[begin : begin + LONGEST] for begin in range(0, len(script), LONGEST)]
    return ['eval "$(printf %s "$@")"', "job", *parts]


def machine(nodes: int) -> dict:
    return {"InstanceType": "ml.m5.large", "InstanceCount": nodes, "VolumeSizeInGB": 1}


def training(script: str, nodes: int = 1) -> dict:
    """Return CreateTrainingJob's request without a name: bash runs ``script`` on each node."""
    return {
        "RoleArn": ROLE,
        "AlgorithmSpecification": {
            "TrainingImage": IMAGE,
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["/bin/bash", "-c"],
            "ContainerArguments": arguments(script),
        },
        "ResourceConfig": machine(nodes),
        "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
        "OutputDataConfig": {"S3OutputPath": "s3://bkt/models"},
    }


def processing(script: str, nodes: int = 1, outputs: dict[str, str] | None = None) -> dict:
    """Return CreateProcessingJob's request without a name; ``outputs``: name -> S3 URI."""
    request: dict = {
        "RoleArn": ROLE,
        "AppSpecification": {
            "ImageUri": IMAGE,
            "ContainerEntrypoint": ["/bin/bash", "-c"],
            "ContainerArguments": arguments(script),
        },
        "ProcessingResources": {"ClusterConfig": machine(nodes)},
    }
    entries = []
    for name, uri in (outputs or {}).items():
        place = {"S3Uri": uri, "LocalPath": f"/opt/ml/processing/{name}"}
        entries.append({"OutputName": name, "S3Output": place | {"S3UploadMode": "EndOfJob"}})
    return request | ({"ProcessingOutputConfig": {"Outputs": entries}} if entries else {})


def s3_input(name: str, uri: Any, distribution: str = "FullyReplicated") -> dict:
    """Return an entry of ProcessingInputs, at /opt/ml/processing/<name>."""
    return {
        "InputName": name,
        "S3Input": {
            "S3Uri": uri,
            "LocalPath": f"/opt/ml/processing/{name}",
            "S3DataType": "S3Prefix",
            "S3InputMode": "File",
            "S3DataDistributionType": distribution,
        },
    }


def channel(name: str, uri: Any, **more: Any) -> dict:
    source = {"S3DataType": "S3Prefix", "S3Uri": uri, **more}
    return {"ChannelName": name, "DataSource": {"S3DataSource": source}}


# steps


def pipeline(steps: list[dict], **more: Any) -> dict:
    return {"Version": "2020-12-01", "Metadata": {}, "Parameters": [], **more, "Steps": steps}


def process_step(name: str, script: str, depends_on: tuple = (), **more: Any) -> dict:
    arguments = processing(script, outputs=more.pop("outputs", None)) | more.pop("arguments", {})
    waits = {"DependsOn": list(depends_on)} if depends_on else {}
    return {"Name": name, "Type": "Processing", "Arguments": arguments, **waits, **more}


def train_step(name: str, script: str, **more: Any) -> dict:
    arguments = training(script) | more.pop("arguments", {})
    return {"Name": name, "Type": "Training", "Arguments": arguments, **more}


def fail_step(name: str, message: Any) -> dict:
    return {"Name": name, "Type": "Fail", "Arguments": {"ErrorMessage": message}}


def condition_step(name: str, conditions: list[dict], then: list, other: list, **more: Any) -> dict:
    arguments = {"Conditions": conditions, "IfSteps": then, "ElseSteps": other}
    return {"Name": name, "Type": "Condition", "Arguments": arguments, **more}


def compare(kind: str, left: Any, right: Any) -> dict:
    return {"Type": kind, "LeftValue": left, "RightValue": right}


def json_get(step: str, file: str, path: str) -> dict:
    get = {"Get": f"Steps.{step}.PropertyFiles.{file}"}
    return {"Std:JsonGet": {"PropertyFile": get, "Path": path}}
