"""Run a thousand executions on one emulator.

python -m benchmarks.endurance [--json FILE]

An execution is two processing jobs, one after the other, and a registered package: the smallest
that a pipeline of this project does. Between the stages nothing runs, and the emulator's process
is looked at: descriptors, threads, memory, its children, the bytes and files of its state, how long
one execution takes, and how long the answers about all of them take. What the last stage has more
of than the first, beyond what its executions are meant to leave, is a leak.
"""

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer

from benchmarks.harness import JsonFile, keep, show_table
from benchmarks.measured_process import client, emulator

IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.6.0-cpu-py312"
ROLE = "arn:aws:iam::123456789012:role/pipeline"
PIPELINE = "endurance"
EVIDENCE = "x" * 200  # what a job writes; and a package records as much in each of its properties
ALONE = 5  # executions timed one by one at the end of a stage
SETTLE = 0.5  # seconds until threads of the last job and of closed connections have ended


@dataclass(frozen=True, slots=True)
class Look:
    """The emulator's process after so many executions, while none runs."""

    executions: int
    jobs: int
    descriptors: int
    threads: int
    children: int
    """Processes; zombies, too."""
    resident_mb: float
    state_mb: float
    state_files: int
    execution_s: float
    """An execution alone, from its start to its end: the median of some."""
    emulator_cpu_s: float
    """Processor time of the emulator itself for one of those, on a busy machine, too."""
    list_executions_s: float
    """Seconds to read every page of ListPipelineExecutions."""
    list_jobs_s: float
    list_packages_s: float
    describe_s: float
    """DescribeProcessingJob of the first job."""


def main(
    executions: Annotated[int, typer.Option(min=ALONE, help="In all.")] = 1000,
    stages: Annotated[int, typer.Option(min=1, help="Looks, beside the one at the start.")] = 2,
    parallel: Annotated[int, typer.Option(min=1, help="Executions at a time.")] = 4,
    state: Annotated[Path | None, typer.Option(help="Keep the state here.")] = None,
    json_file: JsonFile = None,
) -> None:
    """Exit status 1 when descriptors, threads or children are more at the end than at the start."""
    with tempfile.TemporaryDirectory(prefix="endurance-") as folder:
        state = state or Path(folder) / "aws"
        with emulator(state) as (process, environment):
            observe = partial(look, psutil.Process(process.pid), environment, state)
            looks = endure(observe, environment, executions, stages, parallel)
    show(looks)
    keep(json_file, [asdict(look) for look in looks])
    raise typer.Exit(0 if steady(looks) else 1)


def endure(
    observe: Callable[[], Look],
    environment: dict[str, str],
    executions: int,
    stages: int,
    parallel: int,
) -> list[Look]:
    """One look at the start, and one after each of equal stages."""
    with _client(environment, "s3") as s3:
        s3.create_bucket(Bucket="endurance")
    with _client(environment, "sagemaker") as sagemaker:
        sagemaker.create_pipeline(
            PipelineName=PIPELINE,
            PipelineDefinition=json.dumps(_definition()),
            RoleArn=ROLE,
            ClientRequestToken="endurance" * 4,
        )
    looks = [observe()]
    for stage in range(1, stages + 1):
        began = time.monotonic()
        missing = executions * stage // stages - looks[-1].executions - ALONE
        run_many(environment, max(0, missing), parallel)
        looks.append(observe())
        print(f"{looks[-1].executions} executions, {time.monotonic() - began:.0f} s", flush=True)
    return looks


def run_many(environment: dict[str, str], executions: int, parallel: int) -> None:
    """So many executions, ``parallel`` at a time."""
    with _client(environment, "sagemaker") as sagemaker, ThreadPoolExecutor(parallel) as pool:
        for _ in pool.map(lambda _: run(sagemaker), range(executions)):
            pass


def run(sagemaker: Any) -> float:
    """One execution to its end; returns its seconds. Raises SystemExit unless it succeeded."""
    began = time.monotonic()
    arn = sagemaker.start_pipeline_execution(PipelineName=PIPELINE)["PipelineExecutionArn"]
    while True:
        answer = sagemaker.describe_pipeline_execution(PipelineExecutionArn=arn)
        if answer["PipelineExecutionStatus"] not in ("Executing", "Stopping"):
            break
        time.sleep(0.02)
    if answer["PipelineExecutionStatus"] != "Succeeded":
        raise SystemExit(f"{arn}: {answer.get('FailureReason', answer)}")
    return time.monotonic() - began


def steady(looks: list[Look]) -> bool:
    """Return whether descriptors and threads did not grow between the first look and the last."""
    first, last = looks[0], looks[-1]
    return all(
        getattr(last, name) <= getattr(first, name)
        for name in ("descriptors", "threads", "children")
    )


def look(process: psutil.Process, environment: dict[str, str], state: Path) -> Look:
    """Run some executions one by one, asks for everything, and looks at the process."""
    with _client(environment, "sagemaker") as sagemaker:
        before = process.cpu_times()
        alone = statistics.median(run(sagemaker) for _ in range(ALONE))
        after = process.cpu_times()
        times, found = {}, {}
        for name, ask in _questions(sagemaker).items():
            began = time.monotonic()
            found[name] = ask()
            times[f"{name}_s"] = time.monotonic() - began
    time.sleep(SETTLE)
    files = [path.stat().st_size for path in state.rglob("*") if path.is_file()]
    return Look(
        executions=len(found["list_executions"]),
        jobs=len(found["list_jobs"]),
        descriptors=process.num_fds(),
        threads=process.num_threads(),
        children=len(process.children()),
        resident_mb=process.memory_info().rss / 1e6,
        state_mb=sum(files) / 1e6,
        state_files=len(files),
        execution_s=alone,
        emulator_cpu_s=(after.user + after.system - before.user - before.system) / ALONE,
        **times,
    )


def _questions(sagemaker: Any) -> dict[str, Callable[[], Any]]:
    def pages(operation: str, **request: Any) -> list[dict]:
        found = sagemaker.get_paginator(operation).paginate(
            **request, PaginationConfig={"PageSize": 100}
        )
        lists = (value for page in found for value in page.values() if isinstance(value, list))
        return [item for items in lists for item in items]

    first = pages("list_processing_jobs")[0]["ProcessingJobName"]
    return {
        "list_executions": lambda: pages("list_pipeline_executions", PipelineName=PIPELINE),
        "list_jobs": lambda: pages("list_processing_jobs"),
        "list_packages": lambda: pages("list_model_packages", ModelPackageGroupName=PIPELINE),
        "describe": lambda: sagemaker.describe_processing_job(ProcessingJobName=first),
    }


def _client(environment: dict[str, str], service: str) -> closing[Any]:
    """A client that is closed in the end: its connections are descriptors of the emulator, too."""
    return closing(client(environment, service))


def _definition() -> dict:
    """Two jobs that write a line and a file, and a package."""
    steps = [_job("First", []), _job("Second", ["First"]), _package(["Second"])]
    return {"Version": "2020-12-01", "Metadata": {}, "Parameters": [], "Steps": steps}


def _job(name: str, waits: list[str]) -> dict:
    output = {
        "OutputName": "out",
        "S3Output": {
            "S3Uri": f"s3://endurance/{name}",
            "LocalPath": "/opt/ml/processing/out",
            "S3UploadMode": "EndOfJob",
        },
    }
    cluster = {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1}
    arguments = {
        "RoleArn": ROLE,
        "AppSpecification": {
            "ImageUri": IMAGE,
            "ContainerEntrypoint": ["/bin/sh", "-c"],
            "ContainerArguments": [f"echo {EVIDENCE} | tee /opt/ml/processing/out/evidence"],
        },
        "ProcessingResources": {"ClusterConfig": cluster},
        "ProcessingOutputConfig": {"Outputs": [output]},
    }
    return {"Name": name, "Type": "Processing", "Arguments": arguments, "DependsOn": waits}


def _package(waits: list[str]) -> dict:
    container = {"Image": IMAGE, "ModelDataUrl": "s3://endurance/model.tar.gz"}
    arguments = {
        "ModelPackageGroupName": PIPELINE,
        "InferenceSpecification": {
            "Containers": [container],
            "SupportedContentTypes": ["application/json"],
            "SupportedResponseMIMETypes": ["application/json"],
        },
        "CustomerMetadataProperties": {f"property-{number}": EVIDENCE for number in range(30)},
    }
    return {"Name": "Package", "Type": "RegisterModel", "Arguments": arguments, "DependsOn": waits}


def show(looks: list[Look]) -> None:
    """A row for each thing that was looked at."""
    rows = []
    for name in Look.__slots__[1:]:
        values = [getattr(look, name) for look in looks]
        shown = [f"{value:,.3f}" if isinstance(value, float) else f"{value:,}" for value in values]
        rows.append((name.replace("_", " "), *shown))
    show_table(("", *(f"{look.executions:,} executions" for look in looks)), rows, "", 140)


if __name__ == "__main__":
    typer.run(main)
