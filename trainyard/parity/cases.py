"""The pipelines and calls that are compared: small, cheap, and each about one thing.

A case is a function that gets a :class:`Run`; its name is the case's. Only jobs cost money;
each job here is one of :data:`INSTANCE` for at most :data:`SECONDS`.
"""

import json
from collections.abc import Callable
from typing import Any

from trainyard.parity.recording import Run

INSTANCE = "ml.t3.medium"
SECONDS = 900
JOBS = 3
"""Number of processing jobs that all cases start; a test counts them."""

Case = Callable[[Run], None]
CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    CASES[function.__name__] = function
    return function


def definition(steps: list[dict], parameters: list[dict] | None = None) -> str:
    tree = {"Version": "2020-12-01", "Metadata": {}, "Parameters": parameters or []}
    return json.dumps({**tree, "Steps": steps})


def fail(name: str, message: Any) -> dict:
    return {"Name": name, "Type": "Fail", "Arguments": {"ErrorMessage": message}}


def condition(name: str, conditions: list[dict], then: list[dict], other: list[dict]) -> dict:
    arguments = {"Conditions": conditions, "IfSteps": then, "ElseSteps": other}
    return {"Name": name, "Type": "Condition", "Arguments": arguments}


def equals(left: Any, right: Any) -> dict:
    return {"Type": "Equals", "LeftValue": left, "RightValue": right}


def process(run: Run, name: str, script: str, **more: Any) -> dict:
    """Return a processing step whose output ``out`` goes to the run's bucket."""
    output = {"S3Uri": f"s3://{run.bucket}/{name}", "LocalPath": "/opt/ml/processing/out"}
    outputs = [{"OutputName": "out", "S3Output": output | {"S3UploadMode": "EndOfJob"}}]
    machine = {"InstanceType": INSTANCE, "InstanceCount": 1, "VolumeSizeInGB": 1}
    arguments = {
        "RoleArn": run.role,
        "AppSpecification": {
            "ImageUri": run.image,
            "ContainerEntrypoint": ["/bin/bash", "-c"],
            "ContainerArguments": [script],
        },
        "ProcessingResources": {"ClusterConfig": machine},
        "ProcessingOutputConfig": {"Outputs": outputs},
        "StoppingCondition": {"MaxRuntimeInSeconds": SECONDS},
    }
    return {"Name": name, "Type": "Processing", "Arguments": arguments, **more}


@case
def a_fail_step_ends_the_execution(run: Run) -> None:
    text = {"Std:Join": {"On": "|", "Values": ["a", 1, 2.5, True, {"Get": "Parameters.N"}]}}
    number = {"Name": "N", "Type": "Integer", "DefaultValue": 7}
    run.create("fails", definition([fail("Stop", text)], [number]))
    run.executed("fails", parameters=[{"Name": "N", "Value": "8"}])


@case
def conditions_choose_a_branch(run: Run) -> None:
    listed = {"Type": "In", "QueryValue": "b", "Values": ["a", "b"]}
    either = {"Type": "Or", "Conditions": [equals(1, 2), listed]}
    inner = condition("Inner", [{"Type": "Not", "Condition": either}], [], [fail("Else", "else")])
    run.create("chooses", definition([condition("Outer", [equals(1, 1.0)], [inner], [])]))
    run.executed("chooses")


@case
def what_create_pipeline_refuses(run: Run) -> None:
    loop = [fail("A", "a") | {"DependsOn": ["B"]}, fail("B", "b") | {"DependsOn": ["A"]}]
    wrong = {
        "no-json": "{",
        "no-steps": definition([]),
        "no-such-type": definition([{"Name": "A", "Type": "Nothing", "Arguments": {}}]),
        "same-name": definition([fail("A", "a"), fail("A", "b")]),
        "a-loop": definition(loop),
        "unknown-step": definition([fail("A", "a") | {"DependsOn": ["No"]}]),
        "unknown-parameter": definition([fail("A", {"Get": "Parameters.No"})]),
        "after-fail": definition([fail("A", "a"), fail("B", "b") | {"DependsOn": ["A"]}]),
    }
    for name, text in wrong.items():
        run.create(name, text)


@case
def what_start_refuses(run: Run) -> None:
    parameter = {"Name": "N", "Type": "Integer"}
    run.create("starts", definition([fail("A", {"Get": "Parameters.N"})], [parameter]))
    start = "start_pipeline_execution"
    run.call(start, PipelineName=run.name("starts"))
    for name, value in (("N", "x"), ("Other", "1")):
        given = [{"Name": name, "Value": value}]
        run.call(start, PipelineName=run.name("starts"), PipelineParameters=given)
    run.call(start, PipelineName=run.name("nobody"))


@case
def what_does_not_exist(run: Run) -> None:
    execution = f"{run.arn('pipeline/' + run.name('no'))}/execution/abcdefghijkl"
    run.call("describe_pipeline", PipelineName=run.name("no"))
    run.call("delete_pipeline", PipelineName=run.name("no"), ClientRequestToken="t" * 32)
    run.call("describe_pipeline_execution", PipelineExecutionArn=execution)
    run.call("describe_training_job", TrainingJobName=run.name("no"))
    run.call("describe_processing_job", ProcessingJobName=run.name("no"))
    run.call("describe_model", ModelName=run.name("no"))
    run.call("describe_endpoint", EndpointName=run.name("no"))
    run.call("describe_model_package_group", ModelPackageGroupName=run.name("no"))


@case
def a_pipeline_described(run: Run) -> None:
    run.create("shown", definition([fail("A", "a")]))
    run.call("describe_pipeline", PipelineName=run.name("shown"))
    run.call("list_pipeline_executions", PipelineName=run.name("shown"))
    run.create("shown", definition([fail("A", "b")]), token="e" * 32)


@case
def model_packages_of_a_group(run: Run) -> None:
    group = {"ModelPackageGroupName": run.name("group")}
    run.call("create_model_package_group", **group)
    run.later("delete_model_package_group", **group)
    container = {"Image": run.image, "ModelDataUrl": f"s3://{run.bucket}/model.tar.gz"}
    spec = {"Containers": [container], "SupportedContentTypes": ["text/csv"],
            "SupportedResponseMIMETypes": ["text/csv"]}  # fmt: skip
    made = run.call("create_model_package", **group, InferenceSpecification=spec)
    if made:
        package = {"ModelPackageName": made["ModelPackageArn"]}
        run.later("delete_model_package", **package)
        run.call("describe_model_package", **package)
    run.call("create_model_package_group", **group)


@case
def a_jobs_output_decides(run: Run) -> None:
    report = '{"metrics": {"mse": {"value": 0.25}}}'
    files = [{"PropertyFileName": "Report", "OutputName": "out", "FilePath": "report.json"}]
    script = f"echo '{report}' > /opt/ml/processing/out/report.json"
    job = process(run, "Evaluate", script, PropertyFiles=files)
    file = {"Get": "Steps.Evaluate.PropertyFiles.Report"}
    value = {"Std:JsonGet": {"PropertyFile": file, "Path": "metrics.mse.value"}}
    check = {"Type": "LessThan", "LeftValue": value, "RightValue": 0.5}
    steps = [job, condition("Check", [check], [], [fail("No", "no")])]
    run.create("decides", definition(steps))
    run.executed("decides")


@case
def a_job_that_fails_and_is_retried(run: Run) -> None:
    job = process(run, "Breaks", "echo it broke >&2; exit 3")
    run.create("breaks", definition([job, fail("After", "x") | {"DependsOn": ["Breaks"]}]))
    arn = run.executed("breaks")
    if arn:
        run.call("retry_pipeline_execution", PipelineExecutionArn=arn, ClientRequestToken="r" * 32)
        run.ended(arn)
