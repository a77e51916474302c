"""`trainyard why` names the causes of steps that really fail on an emulator.

``failures.yaml`` has the failing steps: what somebody's job could be, which knows nothing of `why`.
``drawn.csv`` keeps sources, expected classes and verdicts of 946 quoted failures, not their texts.
Up to the seventeenth draw the verdict is that of the table as it is now, of the later draws the one
when they were asked for the first time.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.trainyard.emulator.definitions.service import IMAGE, ROLE, Service
from trainyard.emulator.client_environment import apply_environment
from trainyard.emulator.server import serve_emulator
from trainyard.runs.execution import Execution
from trainyard.runs.why.diagnosis import Cause
from trainyard.runs.why.read_evidence import find_causes

Failure = Mapping[str, Any]
FAILURES: dict[str, Failure] = yaml.safe_load(
    Path(__file__).with_name("failures.yaml").read_text(encoding="utf-8")
)
pytestmark = pytest.mark.sweep
BUCKET, SCARCE = "why", "ml.p5.48xlarge"
"""The instance type is one of which the emulator has none."""
BREAKS = "def answer(event, context):\n    return {'share': 1 / event['parts']}\n"
RANKS = """import datetime, os, sys, time, torch, torch.distributed as dist
dist.init_process_group('gloo')
group = dist.new_group(timeout=datetime.timedelta(seconds=4))
rank, x = dist.get_rank(), torch.ones(3)
"""


def steps_of(failure: Failure, code: str) -> list[dict[str, Any]]:
    """A pipeline's steps, of which ``Breaks`` fails; ``code``: where its program lies in S3."""
    if "step" in failure:
        return [{"Name": "Breaks"} | failure["step"]]
    if "writes" in failure:
        return [writing(failure["writes"]), asking(failure["asks"])]
    return [training(failure, code)]


def program(failure: Failure) -> str:
    """The Python of a training job, which lies in a channel; empty if it is a command."""
    return failure.get("python", "") or ("ranks" in failure and RANKS + failure["ranks"]) or ""


def training(failure: Failure, code: str) -> dict[str, Any]:
    started = f"torchrun --standalone --nproc_per_node={failure.get('count', 3)}"
    command = f"{failure.get('variable', '')} {started}" if "ranks" in failure else "python"
    script = failure.get("bash") or f"{command} /opt/ml/input/data/code/t.py"
    machines = {"InstanceType": failure.get("instance", "ml.m5.large"), "VolumeSizeInGB": 1}
    arguments: dict[str, Any] = {
        "RoleArn": ROLE,
        "AlgorithmSpecification": {
            "TrainingImage": IMAGE,
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["/bin/bash", "-c"],
            "ContainerArguments": [script],
        },
        "ResourceConfig": machines | {"InstanceCount": failure.get("machines", 1)},
        "StoppingCondition": {"MaxRuntimeInSeconds": failure.get("seconds", 100)},
        "OutputDataConfig": {"S3OutputPath": f"s3://{BUCKET}/models"},
    }
    if uri := failure.get("input") or (code if program(failure) else ""):
        source = {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": uri}}
        arguments["InputDataConfig"] = [{"ChannelName": "code", "DataSource": source}]
    return {"Name": "Breaks", "Type": "Training", "Arguments": arguments}


def writing(text: str) -> dict[str, Any]:
    """A processing step that writes ``text`` to s3://…/scores.json, apart from its like."""
    folder = "/opt/ml/processing/scores"
    place = {"S3Uri": f"s3://{BUCKET}/{len(text)}", "LocalPath": folder, "S3UploadMode": "EndOfJob"}
    cluster = {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1}
    program = {"ImageUri": IMAGE, "ContainerEntrypoint": ["/bin/bash", "-c"],
               "ContainerArguments": [f"echo '{text}' > {folder}/scores.json"]}  # fmt: skip
    arguments = {
        "RoleArn": ROLE,
        "AppSpecification": program,
        "ProcessingResources": {"ClusterConfig": cluster},
        "ProcessingOutputConfig": {"Outputs": [{"OutputName": "scores", "S3Output": place}]},
    }
    file = {"PropertyFileName": "Read", "OutputName": "scores", "FilePath": "scores.json"}
    step = {"Name": "Scores", "Type": "Processing", "Arguments": arguments}
    return step | {"PropertyFiles": [file]}


def asking(path: str) -> dict[str, Any]:
    """A condition step that reads ``path`` of what the step Scores has written."""
    file = {"Get": "Steps.Scores.PropertyFiles.Read"}
    value = {"Std:JsonGet": {"PropertyFile": file, "Path": path}}
    condition = {"Type": "LessThan", "LeftValue": value, "RightValue": 0.5}
    arguments = {"Conditions": [condition], "IfSteps": [], "ElseSteps": []}
    return {"Name": "Breaks", "Type": "Condition", "Arguments": arguments}


def verdict(right: Sequence[str], cause: Cause, says: str = "") -> str:
    """``unknown``, ``wrong`` or ``wrong and certain`` with the cause; empty if it is right.

    ``says``: an expression that the sentence has to match, too.
    """
    if "unknown" in right and cause.certainty == "unknown":
        return ""
    if cause.name in right and re.search(says, cause.sentence):
        return ""
    word = {"certain": "wrong and certain", "unknown": "unknown"}.get(cause.certainty, "wrong")
    return f"{word}: {cause.name}: {cause.sentence}"


@pytest.fixture(scope="module")
def service(tmp_path_factory) -> Iterator[Service]:
    """An emulator, of which the bucket, the function and the queue are there."""
    state = tmp_path_factory.mktemp("why")
    with (
        serve_emulator(state, without_capacity=(SCARCE,)) as endpoint,
        apply_environment(endpoint.env),
    ):
        service = Service(endpoint.env)
        service.s3.create_bucket(Bucket=BUCKET)
        service.function("breaks", BREAKS)
        with service.answering(service.queue()):
            yield service


@pytest.mark.slow
@pytest.mark.parametrize("name", FAILURES)
def test_a_step_that_really_fails_has_its_cause(name: str, service: Service) -> None:
    failure, pipeline = FAILURES[name], f"why-{name.replace(' ', '-')}"
    service.s3.put_object(Bucket=BUCKET, Key=f"{pipeline}/t.py", Body=program(failure))
    steps = steps_of(failure, f"s3://{BUCKET}/{pipeline}/")
    service.create(pipeline, {"Version": "2020-12-01", "Steps": steps}, service.queue())
    arn = service.start(pipeline)
    service.wait_for_execution(arn)
    [cause, *_] = [cause for cause in find_causes(Execution(arn)) if cause.step == "Breaks"]
    assert not verdict(failure["right"].split(), cause, failure.get("says", ""))


def test_a_wrong_cause_counts_as_such() -> None:
    cause = Cause(step="", name="memory/gpu", sentence="x", certainty="certain")
    assert verdict(["memory/gpu"], cause) == ""
    assert verdict(["memory/disk"], cause).startswith("wrong and certain")
    assert verdict(["memory/gpu"], cause, says="rank 3")
    assert len({one["kind"] for one in FAILURES.values()}) == len(FAILURES) >= 30
