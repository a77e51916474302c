"""Endpoints through boto3: start, requests, deletion, and custom handlers."""

import json
import os
import socket
from importlib.metadata import version
from pathlib import Path

import psutil
import pytest
from botocore.exceptions import ClientError

from tests.trainyard.emulator.harness import PATIENCE, ROLE, Cloud, cloud, until
from tests.trainyard.emulator.sagemaker.builders import archive
from trainyard.emulator.sagemaker.endpoints import serving_instance
from trainyard.emulator.sagemaker.endpoints.serving_instance import _Connection

pytestmark = pytest.mark.slow

IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-inference:2.6.0-cpu-py312"
LIGHT = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-scikit-learn:1.2-1-cpu-py3"
"""An image whose server starts in a fifth of the time of PyTorch's."""
HANDLERS = """
import os, socket
def model_fn(model_dir): return open(model_dir + "/greeting").read()
def input_fn(body, content_type): return body.decode() if isinstance(body, bytes) else body
def output_fn(answer, accept): return answer
"""
ECHO = f"""{HANDLERS}
def predict_fn(text, model):
    if text == "raise": raise RuntimeError("raised on purpose")
    return f"{{model}} {{text}} {{os.environ['COLOUR']}} {{sorted(socket.if_nameindex())}}"
"""
WHO = f"""{HANDLERS}
def predict_fn(text, model):
    if text == "bad": raise RuntimeError("bad")
    return os.environ["COLOUR"]
"""
ADD = f"{HANDLERS}\ndef predict_fn(text, model): return text + os.environ['COLOUR']\n"
VARIANT = {"VariantName": "v", "InstanceType": "ml.m5.large", "InitialInstanceCount": 1}


def package(handlers: str) -> bytes:
    """Return a model.tar.gz."""
    return archive({"code/inference.py": handlers, "greeting": "hello"})


def container(name: str, colour: str, image: str = LIGHT) -> dict:
    environment = {"SAGEMAKER_PROGRAM": "inference.py", "COLOUR": colour}
    uri = f"s3://bkt/{name}/model.tar.gz"
    return {"Image": image, "ModelDataUrl": uri, "Environment": environment}


def model(
    cloud: Cloud, name: str, colour: str, handlers: str | None = WHO, image: str = LIGHT
) -> str:
    if handlers is not None:
        cloud.put(f"{name}/model.tar.gz", package(handlers))
    primary = container(name, colour, image)
    cloud.sm.create_model(ModelName=name, PrimaryContainer=primary, ExecutionRoleArn=ROLE)
    return name


def config(cloud: Cloud, name: str, weights: dict[str, float], **more) -> str:
    """Create an endpoint configuration; each variant is named after its model."""
    variants = [
        VARIANT | {"VariantName": model, "ModelName": model, "InitialVariantWeight": weight}
        for model, weight in weights.items()
    ]
    cloud.sm.create_endpoint_config(EndpointConfigName=name, ProductionVariants=variants, **more)
    return name


def deploy(cloud: Cloud, name: str, handlers: str | None, image: str = IMAGE) -> None:
    """Create the model, its configuration and the endpoint, all of that name."""
    model(cloud, name, "blue", handlers, image)
    config(cloud, name, {name: 1.0})
    cloud.sm.create_endpoint(EndpointName=name, EndpointConfigName=name)


def wait_for_endpoint(cloud: Cloud, name: str) -> dict:
    """Wait until the endpoint is neither Creating nor Updating; return its description."""
    describe = lambda: cloud.sm.describe_endpoint(EndpointName=name)  # noqa: E731
    busy = ("Creating", "Updating", "RollingBack")
    return until(lambda: d if (d := describe())["EndpointStatus"] not in busy else None)


settled = wait_for_endpoint


def in_service(cloud: Cloud, name: str) -> dict:
    described = settled(cloud, name)
    assert described["EndpointStatus"] == "InService", described
    return described


def invoke(cloud: Cloud, name: str, body: str = "who", **more) -> tuple[str, str]:
    """Return the answer, and the variant that gave it."""
    answer = cloud.runtime.invoke_endpoint(EndpointName=name, Body=body, **more)
    return answer["Body"].read().decode(), answer["InvokedProductionVariant"]


def refusal(cloud: Cloud, name: str, body: str) -> dict:
    """Return the error with which the request is answered."""
    with pytest.raises(ClientError) as refused:
        invoke(cloud, name, body)
    return refused.value.response


def log_of(cloud: Cloud, endpoint: str) -> list[str]:
    group = {"logGroupName": f"/aws/sagemaker/Endpoints/{endpoint}"}
    return [event["message"] for event in cloud.logs.filter_log_events(**group)["events"]]


def test_an_endpoint_answers_refuses_and_ends(aws):
    deploy(aws, "echo", ECHO)
    deploy(aws, "broken", "raise RuntimeError('this handler is broken')", LIGHT)
    deploy(aws, "nowhere", None)
    with pytest.raises(ClientError, match="not in service: Creating"):
        invoke(aws, "echo", "you")

    assert in_service(aws, "echo")["ProductionVariants"][0]["VariantName"] == "echo"
    text = {"ContentType": "text/plain"}
    found, _ = invoke(aws, "echo", "you", **text)
    assert found.startswith("hello you blue [(1, 'lo')")  # its own network
    refused = refusal(aws, "echo", "raise")
    assert (refused["Error"]["Code"], refused["OriginalStatusCode"]) == ("ModelError", 500)
    assert "raised on purpose" in refused["OriginalMessage"]
    assert invoke(aws, "echo", "again", **text)[0].startswith("hello again")

    broken = wait_for_endpoint(aws, "broken")
    assert broken["EndpointStatus"] == "Failed"
    assert "this handler is broken" in broken["FailureReason"]
    assert wait_for_endpoint(aws, "nowhere")["EndpointStatus"] == "Failed"
    listed = aws.sm.list_endpoints()["Endpoints"]
    statuses = {endpoint["EndpointName"]: endpoint["EndpointStatus"] for endpoint in listed}
    assert statuses == {"echo": "InService", "broken": "Failed", "nowhere": "Failed"}

    with pytest.raises(ClientError, match="already existing"):
        aws.sm.create_endpoint(EndpointName="echo", EndpointConfigName="echo")
    children = psutil.Process().children(recursive=True)
    family = [p for p in children if any("endpoints/containers/" in word for word in p.cmdline())]
    assert family
    aws.sm.delete_endpoint(EndpointName="echo")
    assert psutil.wait_procs(family, timeout=PATIENCE)[1] == []
    with pytest.raises(ClientError, match="Endpoint echo of account|Could not find endpoint"):
        invoke(aws, "echo", "you")
    assert not list((aws.state / "endpoints").glob("*"))


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("123.dkr.ecr.us-east-1.amazonaws.com/sagemaker-base-python-310:1", "is not served here"),
        ("example.com/mine:1", "not known to this emulator"),
    ],
)
def test_an_image_that_is_not_served_is_refused_at_once(aws, image, expected):
    with pytest.raises(ClientError, match=expected):
        deploy(aws, f"image-{len(image)}", ECHO, image)


def test_without_namespaces_it_answers_too_and_its_log_names_another_version(aws, monkeypatch):
    monkeypatch.setenv("TRAINYARD_EMULATOR_ISOLATION", "relocate")
    deploy(aws, "relocated", f"import sklearn\n{ECHO}", LIGHT)
    in_service(aws, "relocated")
    found, _ = invoke(aws, "relocated", "you", ContentType="text/plain")
    assert found.startswith("hello you blue")
    [line] = [line for line in log_of(aws, "relocated") if "stands in for" in line]
    assert f"scikit-learn {version('scikit-learn')} (there 1.2.1)" in line
    aws.sm.delete_endpoint(EndpointName="relocated")


def test_variants_share_requests_and_are_captured(aws):
    for colour in ("red", "Green"):
        model(aws, colour, colour)
    capture = {
        "EnableCapture": True, "InitialSamplingPercentage": 50,
        "DestinationS3Uri": "s3://bkt/captured",
        "CaptureOptions": [{"CaptureMode": "Input"}, {"CaptureMode": "Output"}],
        "CaptureContentTypeHeader": {"CsvContentTypes": ["text/csv"]},
    }  # fmt: skip
    config(aws, "two", {"red": 3.0, "Green": 1.0}, DataCaptureConfig=capture)
    aws.sm.create_endpoint(EndpointName="Two", EndpointConfigName="two")
    assert in_service(aws, "Two")["DataCaptureConfig"]["CaptureStatus"] == "Started"

    found = [invoke(aws, "Two", ContentType="text/csv", Accept="text/csv") for _ in range(8)]
    assert sorted(found) == [("Green", "Green")] * 2 + [("red", "red")] * 6
    assert invoke(aws, "Two", TargetVariant="Green", InferenceId="mine")[0] == "Green"
    with pytest.raises(ClientError, match="not one of this endpoint's: red, Green"):
        invoke(aws, "Two", TargetVariant="blue")
    with pytest.raises(ClientError, match="InvokeEndpointAsync is not supported here"):
        aws.runtime.invoke_endpoint_async(EndpointName="Two", InputLocation="s3://bkt/x")

    aws.sm.delete_endpoint(EndpointName="Two")
    keys = aws.keys("captured")
    assert all(key.startswith(("captured/Two/red/2", "captured/Two/Green/2")) for key in keys)
    lines = [json.loads(line) for key in keys for line in aws.get(key).splitlines()]
    assert len(lines) in (4, 5)  # half of 9
    line = next(line for line in lines if line["captureData"]["endpointInput"]["encoding"] == "CSV")
    assert line["captureData"]["endpointInput"] == {
        "observedContentType": "text/csv", "mode": "INPUT", "data": "who", "encoding": "CSV"
    }  # fmt: skip
    assert line["eventVersion"] == "0" and line["eventMetadata"]["eventId"]


MORTAL = """
import os, pathlib
STAMP = pathlib.Path("/tmp/broken")
def model_fn(model_dir):
    if STAMP.exists(): raise RuntimeError("it does not load any more")
    return os.getpid()
def input_fn(body, content_type): return body.decode() if isinstance(body, bytes) else body
def predict_fn(text, model):
    if text == "break": STAMP.touch()
    if text in ("die", "break"): os._exit(3)
    return "alive"
def output_fn(answer, accept): return answer
"""


def test_a_model_process_that_ends_is_started_again(aws, monkeypatch):
    """The request that met its end is told so; later ones wait."""
    deploy(aws, "mortal", MORTAL, LIGHT)
    in_service(aws, "mortal")
    for _ in range(2):
        died = refusal(aws, "mortal", "die")
        assert died["Error"]["Code"] == "ModelError" and "broke off" in died["OriginalMessage"]
        assert invoke(aws, "mortal", "again")[0] == "alive"
        in_service(aws, "mortal")
    ends = [line for line in log_of(aws, "mortal") if "container ended" in line]
    assert [line.partition("exit status ")[2] for line in ends] == [
        "3 (consecutive exit 1): restarting it at once.",
        "3 (consecutive exit 2): restarting it in 1 s.",
    ]

    monkeypatch.setattr(serving_instance, "ANSWER", 2.0)
    refusal(aws, "mortal", "break")
    late = refusal(aws, "mortal", "again")
    assert late["OriginalStatusCode"] == 0
    assert "Received server error (0) from primary" in late["Error"]["Message"]
    assert "Your invocation timed out" in late["OriginalMessage"]
    until(lambda: any("consecutive exit 4" in line for line in log_of(aws, "mortal")))
    in_service(aws, "mortal")
    aws.sm.delete_endpoint(EndpointName="mortal")
    assert not list((aws.state / "endpoints").glob("mortal/*"))


def test_an_update_serves_the_next_one_and_a_broken_one_leaves_the_last(aws):
    broken = "raise RuntimeError('broken on purpose')"
    for name, handlers in (("first", WHO), ("second", WHO), ("third", broken)):
        config(aws, name, {model(aws, name, name, handlers): 1})
    aws.sm.create_endpoint(EndpointName="updated", EndpointConfigName="first")
    in_service(aws, "updated")
    aws.sm.update_endpoint(EndpointName="updated", EndpointConfigName="second")
    with pytest.raises(ClientError, match="it is Updating"):
        aws.sm.update_endpoint(EndpointName="updated", EndpointConfigName="first")
    assert invoke(aws, "updated")[0] in ("first", "second")  # it serves all the time
    assert settled(aws, "updated")["EndpointConfigName"] == "second"
    assert invoke(aws, "updated")[0] == "second"
    aws.sm.update_endpoint(EndpointName="updated", EndpointConfigName="third")
    found = in_service(aws, "updated")
    assert found["EndpointConfigName"] == "second"
    assert "broken on purpose" in found["FailureReason"]
    assert invoke(aws, "updated")[0] == "second"
    aws.sm.delete_endpoint(EndpointName="updated")
    assert not list((aws.state / "endpoints").glob("updated/*"))


def test_a_request_passes_the_containers_of_a_model_in_their_order(aws):
    aws.put("chain/model.tar.gz", package(ADD))
    containers = [container("chain", colour) for colour in ("-1", "-2", "-3")]
    aws.sm.create_model(ModelName="chain", Containers=containers, ExecutionRoleArn=ROLE)
    config(aws, "chain", {"chain": 1})
    aws.sm.create_endpoint(EndpointName="chain", EndpointConfigName="chain")
    in_service(aws, "chain")
    assert invoke(aws, "chain", "0", ContentType="application/octet-stream")[0] == "0-1-2-3"
    aws.sm.delete_endpoint(EndpointName="chain")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"InstanceType": "ml.x1"},
            "Value .ml.x1. at .productionVariants.1.member.instanceType. failed to satisfy",
        ),
        ({"ModelName": "nobody"}, "Could not find model"),
    ],
)
def test_a_configuration_that_could_not_serve_is_refused(aws, changes, says):
    variants = [VARIANT | {"ModelName": "x"} | changes]
    with pytest.raises(ClientError, match=says):
        aws.sm.create_endpoint_config(EndpointConfigName="bad", ProductionVariants=variants)


def test_steps_make_a_configuration_and_create_or_update_an_endpoint(aws):
    variant = VARIANT | {"ModelName": model(aws, "Stepped", "stepped")}
    arguments = {"ProductionVariants": [variant]}
    configure = {"Name": "Configure", "Type": "EndpointConfig", "Arguments": arguments}
    name = {"Get": "Steps.Configure.EndpointConfigName"}
    arguments = {"EndpointName": "stepped", "EndpointConfigName": name}
    aws.create(
        "deploying", [configure, {"Name": "Deploy", "Type": "Endpoint", "Arguments": arguments}]
    )
    for _ in range(2):
        execution, steps = aws.run("deploying")
        assert execution["PipelineExecutionStatus"] == "Succeeded", steps
        assert invoke(aws, "stepped")[0] == "stepped"
    arn = steps["Configure"]["Metadata"]["EndpointConfig"]["Arn"]
    described = aws.sm.describe_endpoint(EndpointName="stepped")
    assert described["EndpointConfigName"].lower() == arn.rpartition("/")[2]
    aws.sm.delete_endpoint(EndpointName="stepped")


def test_models_and_configurations_survive_the_emulator(tmp_path):
    with cloud(tmp_path) as first:
        config(first, "kept", {model(first, "kept", "x"): 2.0})
        created = first.sm.describe_model(ModelName="kept")["CreationTime"]
    with cloud(tmp_path) as second:
        described = second.sm.describe_model(ModelName="kept")
        assert described["CreationTime"] == created and "VpcConfig" not in described
        found = second.sm.describe_endpoint_config(EndpointConfigName="kept")
        assert found["ProductionVariants"][0]["InitialVariantWeight"] == 2.0
        tag = {"Key": "k", "Value": "v"}
        second.sm.add_tags(ResourceArn=found["EndpointConfigArn"], Tags=[tag])
        second.sm.delete_endpoint_config(EndpointConfigName="kept")
        config(second, "kept", {"kept": 1.0})
        assert second.sm.list_tags(ResourceArn=found["EndpointConfigArn"])["Tags"] == []
        second.sm.delete_endpoint_config(EndpointConfigName="kept")
        assert second.sm.list_endpoint_configs()["EndpointConfigs"] == []


def test_a_container_cannot_lead_requests_to_another_socket(tmp_path: Path) -> None:
    """A link in its place could name Docker's. The folder's path may be longer than a socket's."""
    folder = tmp_path / ("long" * 40)
    folder.mkdir()
    here = os.open(folder, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"/proc/self/fd/{here}/docker.sock")
        listening.listen()
        (folder / "serve.sock").symlink_to("docker.sock")
        with pytest.raises(OSError):
            _Connection(folder / "serve.sock", 1).connect()
        connection = _Connection(folder / "docker.sock", 1)
        connection.connect()
        listening.accept()[0].close()
        connection.close()
    os.close(here)
