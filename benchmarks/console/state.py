"""A state directory with as many executions as are asked for.

One execution of each pipeline is run by the emulator, to its end. The others are its copies: the
same documents, written by the emulator's own code, with an id, a time, a status and parameters of
their own.
"""

import itertools
import json
import random
import shutil
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3

from trainyard.common import atomic_file
from trainyard.emulator.client_environment import applied
from trainyard.emulator.json_documents import read_json
from trainyard.emulator.server import serve

STEPS = 20
PIPELINES = ("churn", "forecast", "ranking", "vision", "language")
EVERY = 600.0  # seconds from one execution's start to the next one's
ROLE = "arn:aws:iam::123456789012:role/pipeline"
IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.6.0-cpu-py312"
REASON = "Step failure: One or multiple steps failed."
STATUSES = {"Succeeded": 80, "Failed": 14, "Stopped": 6}
"""Status → its share of the executions, in per cent."""


def definition(jobs: int) -> str:
    """20 steps, of which ``jobs`` are processing jobs and the others conditions."""
    script = ["/bin/sh", "-c", "true"]
    cluster = {"InstanceType": "ml.m5.xlarge", "InstanceCount": 1, "VolumeSizeInGB": 10}
    work: dict[str, Any] = {
        "RoleArn": ROLE,
        "AppSpecification": {"ImageUri": IMAGE, "ContainerEntrypoint": script},
        "ProcessingResources": {"ClusterConfig": cluster},
    }
    test = {"Type": "Equals", "LeftValue": 1, "RightValue": 1}
    look = {"Conditions": [test], "IfSteps": [], "ElseSteps": []}
    steps = [
        {"Name": f"Work{i}", "Type": "Processing", "Arguments": work}
        if i < jobs
        else {"Name": f"Look{i}", "Type": "Condition", "Arguments": look}
        for i in range(STEPS)
    ]
    parameters = [
        {"Name": "LearningRate", "Type": "Float", "DefaultValue": 0.001},
        {"Name": "Epochs", "Type": "Integer", "DefaultValue": 3},
        {"Name": "InstanceType", "Type": "String", "DefaultValue": "ml.m5.xlarge"},
        {"Name": "InputData", "Type": "String", "DefaultValue": "s3://data/day"},
    ]
    return json.dumps({"Version": "2020-12-01", "Parameters": parameters, "Steps": steps})


def make(state: Path, executions: int, jobs: int = 3) -> None:
    """Fill the empty directory ``state``; the newest execution was started an hour ago."""
    state.mkdir(parents=True, exist_ok=True)
    firsts = [Path(state / "executions" / id) for id in _run(state, definition(jobs))]
    chance = random.Random(0)
    newest = max(_started(first) for first in firsts) - 3_600
    for number, first in zip(range(executions - len(firsts)), itertools.cycle(firsts)):
        _copy(first, newest - number * EVERY, chance, state)


def _run(state: Path, text: str) -> Iterator[str]:
    """The ids of one execution of each pipeline that the emulator has run to its end."""
    with serve(state) as endpoint, applied(endpoint.env):
        sagemaker = boto3.session.Session().client("sagemaker")
        for name in PIPELINES:
            sagemaker.create_pipeline(PipelineName=name, PipelineDefinition=text, RoleArn=ROLE)
            started = sagemaker.start_pipeline_execution(PipelineName=name)
            endpoint.wait(started["PipelineExecutionArn"])
            yield started["PipelineExecutionArn"].rpartition("/")[2]


def _started(execution: Path) -> float:
    return float(read_json(execution / "execution.json")["answer"]["CreationTime"])


def _copy(first: Path, started: float, chance: random.Random, state: Path) -> None:
    id = "".join(chance.choices(string.ascii_lowercase + string.digits, k=12))
    record = json.loads((first / "execution.json").read_text().replace(first.name, id))
    answer, later = record["answer"], started - record["answer"]["CreationTime"]
    [status] = chance.choices(list(STATUSES), list(STATUSES.values()))
    lasted = chance.uniform(60, 7_200)
    answer |= {
        "PipelineExecutionDisplayName": f"execution-{int(started * 1000)}",
        "PipelineExecutionStatus": status,
        "CreationTime": started,
        "LastModifiedTime": started + lasted,
        **({"FailureReason": REASON} if status == "Failed" else {}),
    }
    record["parameters"] |= {
        "LearningRate": chance.choice([0.1, 0.01, 0.003, 0.001]),
        "Epochs": chance.randint(1, 20),
        "InstanceType": chance.choice(["ml.m5.xlarge", "ml.g5.xlarge", "ml.p4d.24xlarge"]),
        "InputData": f"s3://data/day={int(started // 86_400)}",
    }
    for step in record["steps"].values():
        step["StartTime"] += later
        step["EndTime"] = step["StartTime"] + lasted / STEPS
        for job in step["Metadata"].values():
            if arn := job.get("Arn"):
                _copy_job(state, arn.rpartition("/")[2], first.name, id, later, lasted / STEPS)
    directory = state / "executions" / id
    _write(directory / "execution.json", json.dumps(record, indent=1))
    shutil.copyfile(first / "definition.json", directory / "definition.json")


def _copy_job(state: Path, name: str, old: str, id: str, later: float, lasted: float) -> None:
    """``name``: the copy's, in which the execution's id stands already."""
    text = (state / "jobs" / name.replace(id, old) / "job.json").read_text().replace(old, id)
    document = json.loads(text)
    for key, value in document["describe"].items():
        if key.endswith("Time") and isinstance(value, float):
            document["describe"][key] = value + later
    document["describe"]["ProcessingEndTime"] = document["describe"]["CreationTime"] + lasted
    _write(state / "jobs" / name / "job.json", json.dumps(document, indent=1))


def _write(path: Path, text: str) -> None:
    """As the emulator writes it, but for waiting for the disk."""
    path.parent.mkdir(parents=True)
    atomic_file.begin(path, text).finish(durable=False)
