"""Lambda: functions really run, called directly and by a pipeline's step."""

import base64
import io
import json
import time
import zipfile
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from tests.trainyard.emulator.harness import Cloud, cloud, compare, condition_step, until

pytestmark = pytest.mark.long

ROLE = "arn:aws:iam::123456789012:role/functions"
ARN = "arn:aws:lambda:us-east-1:123456789012:function:"
SOURCE = """
import os, sys, time

def add(event, context):
    print("asked for", event, "by", context.function_name, os.environ["WHO"])
    return {"sum": event["a"] + event["b"], "list": [1, {"x": 2}], "ok": True}

def fail(event, context):
    raise KeyError("what is not there")

def leave(event, context):
    sys.exit(7)

def sleep(event, context):
    time.sleep(600)

def odd(event, context):
    return {1, 2}
"""


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory):
    with cloud(tmp_path_factory.mktemp("aws")) as running:
        for name in ("add", "fail", "leave", "sleep", "odd"):
            make(running, name)
        yield running


def zip_function(source: str = SOURCE) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("app/main.py", source)
    return data.getvalue()


def make(aws: Cloud, name: str, **more) -> dict:
    request = {
        "FunctionName": name,
        "Runtime": "python3.11",
        "Handler": f"app.main.{name}",
        "Role": ROLE,
        "Code": {"ZipFile": zip_function()},
        "Environment": {"Variables": {"WHO": "tests"}},
    }
    return aws.functions.create_function(**request | more)


def call(aws: Cloud, name: str, event: object = None, **more) -> tuple[dict, dict]:
    answer = aws.functions.invoke(FunctionName=name, Payload=json.dumps(event or {}), **more)
    return answer, json.loads(answer["Payload"].read() or b"{}")


def lambda_step(name: str, function: str, arguments: dict, **outputs: str) -> dict:
    declared = [{"OutputName": n, "OutputType": kind} for n, kind in outputs.items()]
    return {
        "Name": name,
        "Type": "Lambda",
        "FunctionArn": ARN + function,
        "Arguments": arguments,
        "OutputParameters": declared,
    }


def log_of(aws: Cloud, name: str) -> list[str]:
    events = aws.logs.filter_log_events(logGroupName=f"/aws/lambda/{name}")["events"]
    return [event["message"] for event in events]


def code_folder(aws: Cloud, name: str) -> Path:
    """Return the folder that the function sees as /opt/ml."""
    [found] = (aws.state / "functions" / name).glob("code-*")
    return found


def test_a_function_runs_and_its_log_is_there(aws: Cloud) -> None:
    answer, result = call(aws, ARN + "add", {"a": 1, "b": 2}, LogType="Tail")
    assert result == {"sum": 3, "list": [1, {"x": 2}], "ok": True}
    assert (answer["StatusCode"], answer["ExecutedVersion"]) == (200, "$LATEST")
    lines = log_of(aws, "add")
    assert base64.b64decode(answer["LogResult"]).decode().splitlines() == lines
    assert "asked for {'a': 1, 'b': 2} by add tests" in lines
    own = [line for line in lines if not line.startswith("[emulator] ")]
    assert [line.split()[0] for line in own] == ["START", "asked", "END", "REPORT"]


def test_a_function_is_its_role_and_reaches_the_endpoint(aws: Cloud) -> None:
    source = "import boto3\ndef who(event, context):\n    s3 = boto3.client('s3')\n"
    source += "    s3.put_object(Bucket='bkt', Key='from-a-function', Body=b'x')\n"
    source += "    return boto3.client('sts').get_caller_identity()['Arn']\n"
    make(aws, "who", Code={"ZipFile": zip_function(source)}, Timeout=60)
    _, arn = call(aws, "who")
    assert ":assumed-role/functions/" in arn
    assert aws.get("from-a-function") == b"x"


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("fail", "KeyError", "'what is not there'"),
        ("leave", "Runtime.ExitError", "Runtime exited with error: exit status 7"),
        ("odd", "Runtime.MarshalError", "Object of type set is not JSON serializable"),
    ],
)
def test_a_failure_has_awss_form(aws: Cloud, name: str, kind: str, message: str) -> None:
    answer, error = call(aws, name)
    assert answer["FunctionError"] == "Unhandled"
    assert error["errorType"] == kind and message in error["errorMessage"]
    if name == "fail":
        assert "app/main.py" in error["stackTrace"][0] and "in fail" in error["stackTrace"][0]


def test_the_time_out_kills_it_and_nothing_is_left(aws: Cloud) -> None:
    aws.functions.update_function_configuration(FunctionName="sleep", Timeout=1)
    begun = time.monotonic()
    answer, error = call(aws, "sleep")
    assert time.monotonic() - begun >= 1
    assert answer["FunctionError"] == "Unhandled"
    assert error["errorMessage"].endswith("Task timed out after 1.00 seconds")
    assert not list((aws.state / "invocations").iterdir())


def test_new_code_from_s3_and_a_new_handler(aws: Cloud) -> None:
    make(aws, "changed", Handler="app.main.add")
    aws.put("code.zip", zip_function("def other(event, context):\n    return 'new'\n"))
    aws.functions.update_function_code(FunctionName="changed", S3Bucket="bkt", S3Key="code.zip")
    aws.functions.get_waiter("function_updated_v2").wait(FunctionName="changed")
    assert call(aws, "changed")[1]["errorType"] == "Runtime.HandlerNotFound"
    aws.functions.update_function_configuration(FunctionName="changed", Handler="app.main.other")
    assert call(aws, "changed")[1] == "new"
    assert len(list((aws.state / "functions/changed").glob("code-*"))) == 1
    aws.functions.delete_function(FunctionName="changed")
    with pytest.raises(ClientError, match="ResourceNotFoundException.*Function not found"):
        aws.functions.get_function(FunctionName="changed")


def test_a_dry_run_runs_nothing_and_an_event_is_run_later(aws: Cloud) -> None:
    touch = "def touch(event, context):\n    print('touched')\n"
    make(aws, "touch", Code={"ZipFile": zip_function(touch)})
    assert call(aws, "touch", InvocationType="DryRun")[0]["StatusCode"] == 204
    assert call(aws, "touch", InvocationType="Event")[0]["StatusCode"] == 202
    until(lambda: not list((aws.state / "functions/touch/events").iterdir()))
    assert log_of(aws, "touch").count("touched") == 1


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ({"Runtime": "nodejs20.x"}, "Runtime 'nodejs20.x' is not supported by this emulator"),
        ({"Layers": [ARN.replace("function:", "layer:x:1")]},
         "Layers is not supported by this emulator: layers are not"),
        ({"PackageType": "Image", "Code": {"ImageUri": "x"}}, "PackageType Image is not supported"),
        ({"Code": {"ZipFile": b"no zip"}}, "Could not unzip uploaded file"),
        ({"Code": {"S3Bucket": "bkt", "S3Key": "none"}}, "S3 Error Code: NoSuchKey"),
        ({"Publish": True}, "Publish: versions are not stored"),
        ({"Timeout": 901}, "Timeout 901: expected 1 to 900"),
        ({"Environment": {"Variables": {"AWS_REGION": "x"}}}, "Reserved keys used .*: AWS_REGION"),
    ],
)  # fmt: skip
def test_what_cannot_run_is_refused_by_name(aws: Cloud, request_: dict, said: str) -> None:
    with pytest.raises(ClientError, match=f"InvalidParameterValueException.*{said}"):
        make(aws, "refused", **request_)
    assert not (aws.state / "functions/refused/function.json").exists()


def test_what_lambda_has_and_this_has_not_is_refused_by_name(aws: Cloud) -> None:
    with pytest.raises(ClientError, match="UnknownOperation.*does not implement CreateAlias"):
        aws.functions.create_alias(FunctionName="add", Name="live", FunctionVersion="$LATEST")
    with pytest.raises(ClientError, match="ResourceConflictException.*already exist: add"):
        make(aws, "add")


def test_functions_and_accepted_events_outlive_the_emulator(tmp_path: Path) -> None:
    touch = "def touch(event, context):\n    print(event)\n"
    with cloud(tmp_path / "state") as aws:
        make(aws, "touch", Code={"ZipFile": zip_function(touch)}, Tags={"team": "x"})
    events = tmp_path / "state/functions/touch/events"
    events.mkdir()
    (events / "1.json").write_text('"left over"')  # as a killed emulator leaves it
    with cloud(tmp_path / "state") as aws:
        found = aws.functions.get_function(FunctionName="touch")
        assert found["Tags"] == {"team": "x"}
        until(lambda: not list(events.iterdir()))
        assert log_of(aws, "touch").count("left over") == 1


# the step


def test_values_go_through_lambda_steps_in_their_types(aws: Cloud) -> None:
    total, of_second, ok = (
        {"Get": f"Steps.{step}.OutputParameters['{name}']"}
        for step, name in (("First", "sum"), ("Second", "sum"), ("First", "ok"))
    )
    conditions = [compare("Equals", of_second, 3.5), compare("Equals", ok, True)]
    steps = [
        lambda_step("First", "add", {"a": 1, "b": 2}, sum="Integer", list="String", ok="Boolean"),
        lambda_step("Second", "add", {"a": total, "b": 0.5}, sum="Float"),
        condition_step("Check", conditions, [], []),
    ]
    aws.create("adds", steps)
    answer, steps = aws.run("adds")
    assert answer["PipelineExecutionStatus"] == "Succeeded", answer
    values = {"sum": "3", "list": '[1, {"x": 2}]', "ok": "true"}
    assert steps["First"]["Metadata"]["Lambda"] == {
        "Arn": ARN + "add",
        "OutputParameters": [{"Name": name, "Value": value} for name, value in values.items()],
    }
    assert steps["Check"]["Metadata"]["Condition"]["Outcome"] == "True"


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (lambda_step("L", "fail", {}), "failed: KeyError: 'what is not there'"),
        (lambda_step("L", "none", {}), f"Function not found: {ARN}none"),
        (lambda_step("L", "add", {"a": 1, "b": 1}, x="String"), "returned no output 'x'"),
        (lambda_step("L", "add", {"a": 1, "b": 0.5}, sum="Integer"), "is not of type Integer"),
    ],
)
def test_a_lambda_step_fails_with_the_reason(aws: Cloud, step: dict, reason: str) -> None:
    name = f"fails-{abs(hash(reason)) % 10**8}"
    aws.create(name, [step])
    answer, steps = aws.run(name)
    assert answer["PipelineExecutionStatus"] == "Failed"
    assert reason in steps["L"]["FailureReason"]


def test_a_stop_waits_for_the_function(aws: Cloud) -> None:
    wait = """
import os, time
def wait(event, context):
    while not os.path.exists("/opt/ml/end"):
        time.sleep(0.02)
    return {"y": 1}
"""
    make(aws, "wait", Code={"ZipFile": zip_function(wait)})
    aws.create("stopped", [lambda_step("L", "wait", {}, y="Integer"), lambda_step("M", "wait", {})])
    arn = aws.start("stopped")
    until(lambda: aws.steps(arn).get("L"))
    aws.sm.stop_pipeline_execution(PipelineExecutionArn=arn, ClientRequestToken="s" * 32)
    (code_folder(aws, "wait") / "end").touch()
    assert aws.wait_for_execution(arn)["PipelineExecutionStatus"] == "Stopped"
    assert aws.steps(arn)["L"]["StepStatus"] == "Succeeded"
