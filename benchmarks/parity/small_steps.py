"""Steps of the cases' definitions, and the function that Lambda steps call."""

import io
import json
import zipfile
from typing import Any

from benchmarks.parity.case_table import MACHINES
from benchmarks.parity.recording import Run
from benchmarks.parity.scrubbing import Packed

SCIKIT_LEARN = "sagemaker-scikit-learn:1.2-1-cpu-py3"
XGBOOST = "sagemaker-xgboost:1.7-1"
FUNCTION = """def handler(event, context):
    if event.get("how") == "raise":
        raise ValueError("raised on purpose")
    if event.get("how") == "lack":
        return {"text": "no number"}
    return {"text": "told " + str(event.get("how")), "number": 2.5, "yes": True}
"""


def definition(steps: list[dict], *parameters: dict) -> str:
    tree = {"Version": "2020-12-01", "Metadata": {}, "Parameters": list(parameters)}
    return json.dumps({**tree, "Steps": steps})


def text(name: str, default: str | None = None) -> dict:
    """Return a parameter."""
    value = {} if default is None else {"DefaultValue": default}
    return {"Name": name, "Type": "String", **value}


def given(**values: str) -> dict[str, list[dict]]:
    """Return StartPipelineExecution's member for parameters."""
    return {"PipelineParameters": [{"Name": key, "Value": each} for key, each in values.items()]}


def fail(name: str, message: Any) -> dict:
    return {"Name": name, "Type": "Fail", "Arguments": {"ErrorMessage": message}}


def condition(name: str, conditions: list[dict], then: list[dict], other: list[dict]) -> dict:
    arguments = {"Conditions": conditions, "IfSteps": then, "ElseSteps": other}
    return {"Name": name, "Type": "Condition", "Arguments": arguments}


def equals(left: Any, right: Any) -> dict:
    return {"Type": "Equals", "LeftValue": left, "RightValue": right}


def joined(*values: Any) -> dict:
    return {"Std:Join": {"On": "|", "Values": list(values)}}


def machine(kind: str) -> dict[str, Any]:
    return {"InstanceType": MACHINES[kind].instance_type, "InstanceCount": 1}


def process(run: Run, name: str, script: Any, **more: Any) -> dict:
    """Return a processing step whose output ``out`` goes to the run's bucket."""
    output = {
        "S3Uri": f"s3://{run.place.bucket}/{run.name(name)}",
        "LocalPath": "/opt/ml/processing/out",
        "S3UploadMode": "EndOfJob",
    }
    arguments = {
        "RoleArn": run.place.role,
        "AppSpecification": {
            "ImageUri": run.image(SCIKIT_LEARN),
            "ContainerEntrypoint": ["/bin/bash", "-c"],
            "ContainerArguments": [script],
        },
        "ProcessingResources": {"ClusterConfig": machine("processing") | {"VolumeSizeInGB": 1}},
        "ProcessingOutputConfig": {"Outputs": [{"OutputName": "out", "S3Output": output}]},
        "StoppingCondition": {"MaxRuntimeInSeconds": MACHINES["processing"].seconds},
    }
    return {"Name": name, "Type": "Processing", "Arguments": arguments, **more}


def make_function(run: Run, name: str) -> str:
    """Create the function; return its ARN. It is removed at the end."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("index.py", FUNCTION)
    code = Packed(data.getvalue())
    code.source = FUNCTION
    named = {"FunctionName": run.name(name)}
    made = run.quietly(
        "lambda.create_function", **named, Runtime="python3.12", Role=run.place.role,
        Handler="index.handler", Code={"ZipFile": code},
    )  # fmt: skip
    run.later("logs.delete_log_group", logGroupName=f"/aws/lambda/{run.name(name)}")
    run.later("lambda.delete_function", **named)
    request = {"Runtime": "python3.12", "Role": run.place.role, "Handler": "index.handler"}
    run.note("lambda.create_function", {**named, **request, "Code": {"ZipFile": code}}, {})
    active = "lambda.get_function_configuration"
    run.until(lambda: run.quietly(active, **named)["State"] == "Active" or None, "the function")
    return made["FunctionArn"]


def invoke(function: str, name: str, how: Any, **more: Any) -> dict:
    """Return a Lambda step that has the function's three outputs."""
    types = {"text": "String", "number": "Float", "yes": "Boolean"}
    outputs = [{"OutputName": key, "OutputType": kind} for key, kind in types.items()]
    told = {"FunctionArn": function, "OutputParameters": outputs, "Arguments": {"how": how}}
    return {"Name": name, "Type": "Lambda", **told, **more}


def make_queue(run: Run, name: str) -> str:
    """Create a queue; return its URL. It is removed at the end."""
    created = run.quietly("sqs.create_queue", QueueName=run.name(name))
    url = created["QueueUrl"]
    run.later("sqs.delete_queue", QueueUrl=url)
    run.scrub.hide(url, "<queue>")
    run.note("sqs.create_queue", {"QueueName": run.name(name)}, {"QueueUrl": url})
    return url


def messages(run: Run, queue: str, wait: int = 0) -> list[Any]:
    """Return the bodies of the queue's next messages, which are deleted from it."""
    answer = run.quietly(
        "sqs.receive_message", QueueUrl=queue, MaxNumberOfMessages=10, WaitTimeSeconds=wait
    )
    found = answer.get("Messages", [])
    for each in found:
        run.quietly("sqs.delete_message", QueueUrl=queue, ReceiptHandle=each["ReceiptHandle"])
    return [json.loads(each["Body"]) for each in found]
