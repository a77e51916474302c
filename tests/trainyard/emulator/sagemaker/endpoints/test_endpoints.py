"""Endpoints through boto3: start, requests, deletion, and custom handlers."""

import io
import json
import os
import socket
import tarfile
from importlib.metadata import version
from pathlib import Path

import psutil
import pytest
from botocore.exceptions import ClientError

from tests.trainyard.emulator.harness import PATIENCE, ROLE, Cloud, cloud, until
from tests.trainyard.emulator.standin import make_client
from trainyard.emulator.sagemaker.endpoints import serving_instance
from trainyard.emulator.sagemaker.endpoints.serving_instance import _Connection

pytestmark = pytest.mark.slow

IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-inference:2.6.0-cpu-py312"
LIGHT = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-scikit-learn:1.2-1-cpu-py3"
"""An image whose server starts in a fifth of the time of PyTorch's."""
ECHO = """
import os, socket
def model_fn(model_dir): return open(model_dir + "/greeting").read()
def input_fn(body, content_type): return body.decode() if isinstance(body, bytes) else body
def predict_fn(text, model):
    if text == "raise": raise RuntimeError("raised on purpose")
    return f"{model} {text} {os.environ['COLOUR']} {sorted(socket.if_nameindex())}"
def output_fn(answer, accept): return answer
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with cloud(tmp_path_factory.mktemp("state")) as found:
        yield found


def package(handlers: str) -> bytes:
    """Return a model.tar.gz."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for name, text in (("code/inference.py", handlers), ("greeting", "hello")):
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    return archive.getvalue()


def deploy(cloud: Cloud, name: str, handlers: str | None, image: str = IMAGE) -> None:
    if handlers is not None:
        cloud.put(f"{name}/model.tar.gz", package(handlers))
    environment = {"SAGEMAKER_PROGRAM": "inference.py", "COLOUR": "blue"}
    uri = f"s3://bkt/{name}/model.tar.gz"
    container = {"Image": image, "ModelDataUrl": uri, "Environment": environment}
    cloud.sm.create_model(ModelName=name, PrimaryContainer=container, ExecutionRoleArn=ROLE)
    variant = {"VariantName": "one", "ModelName": name, "InstanceType": "ml.m5.large",
               "InitialInstanceCount": 1}  # fmt: skip
    cloud.sm.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])
    cloud.sm.create_endpoint(EndpointName=name, EndpointConfigName=name)


def ended(cloud: Cloud, name: str) -> dict:
    """Return the endpoint's description when it is no longer Creating."""
    describe = lambda: cloud.sm.describe_endpoint(EndpointName=name)  # noqa: E731
    return until(lambda: d if (d := describe())["EndpointStatus"] != "Creating" else None)


def ask(cloud: Cloud, name: str, body: str) -> str:
    runtime = make_client(cloud.endpoint, "sagemaker-runtime")
    answer = runtime.invoke_endpoint(EndpointName=name, Body=body, ContentType="text/plain")
    return answer["Body"].read().decode()


def test_an_endpoint_answers_refuses_and_ends(served):
    deploy(served, "echo", ECHO)
    deploy(served, "broken", "raise RuntimeError('this handler is broken')")
    deploy(served, "nowhere", None)
    with pytest.raises(ClientError, match="not in service: Creating"):
        ask(served, "echo", "you")

    described = ended(served, "echo")
    assert described["EndpointStatus"] == "InService", described
    assert described["ProductionVariants"][0]["VariantName"] == "one"
    assert ask(served, "echo", "you").startswith("hello you blue [(1, 'lo')")  # its own network
    with pytest.raises(ClientError) as refused:
        ask(served, "echo", "raise")
    assert refused.value.response["Error"]["Code"] == "ModelError"
    assert refused.value.response["OriginalStatusCode"] == 500
    assert "raised on purpose" in refused.value.response["OriginalMessage"]
    assert ask(served, "echo", "again").startswith("hello again")

    broken = ended(served, "broken")
    assert broken["EndpointStatus"] == "Failed"
    assert "this handler is broken" in broken["FailureReason"]
    assert ended(served, "nowhere")["EndpointStatus"] == "Failed"
    statuses = {e["EndpointName"]: e["EndpointStatus"] for e in
                served.sm.list_endpoints()["Endpoints"]}  # fmt: skip
    assert statuses == {"echo": "InService", "broken": "Failed", "nowhere": "Failed"}

    with pytest.raises(ClientError, match="already existing"):
        served.sm.create_endpoint(EndpointName="echo", EndpointConfigName="echo")
    children = psutil.Process().children(recursive=True)
    family = [p for p in children if any("endpoints/containers/" in word for word in p.cmdline())]
    assert family
    served.sm.delete_endpoint(EndpointName="echo")
    assert psutil.wait_procs(family, timeout=PATIENCE)[1] == []
    with pytest.raises(ClientError, match="Endpoint echo of account|Could not find endpoint"):
        ask(served, "echo", "you")
    assert not list((served.state / "endpoints").glob("*"))


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("123.dkr.ecr.us-east-1.amazonaws.com/sagemaker-base-python-310:1", "is not served here"),
        ("example.com/mine:1", "not known to this emulator"),
    ],
)
def test_an_image_that_is_not_served_is_refused_at_once(served, image, expected):
    with pytest.raises(ClientError, match=expected):
        deploy(served, f"image-{len(image)}", ECHO, image)


def test_without_namespaces_it_answers_too(served, monkeypatch):
    monkeypatch.setenv("TRAINYARD_EMULATOR_ISOLATION", "relocate")
    deploy(served, "relocated", ECHO)
    described = ended(served, "relocated")
    assert described["EndpointStatus"] == "InService", described
    assert ask(served, "relocated", "you").startswith("hello you blue")


# several variants, updates


WHO = """
import os, json
def model_fn(model_dir): return os.environ["COLOUR"]
def input_fn(body, content_type): return body.decode() if isinstance(body, bytes) else body
def predict_fn(text, model):
    if text == "bad": raise RuntimeError("bad")
    return model
def output_fn(answer, accept): return answer
"""


def model(cloud: Cloud, name: str, colour: str, handlers: str = WHO) -> str:
    uri = cloud.put(f"{name}/model.tar.gz", package(handlers))
    environment = {"SAGEMAKER_PROGRAM": "inference.py", "COLOUR": colour}
    container = {"Image": LIGHT, "ModelDataUrl": uri, "Environment": environment}
    cloud.sm.create_model(ModelName=name, PrimaryContainer=container, ExecutionRoleArn=ROLE)
    return name


def config(cloud: Cloud, name: str, weights: dict[str, float], **more) -> str:
    """Create an endpoint configuration; each variant is named after its model."""
    variants = [
        {"VariantName": model, "ModelName": model, "InstanceType": "ml.m5.large",
         "InitialInstanceCount": 1, "InitialVariantWeight": weight}
        for model, weight in weights.items()
    ]  # fmt: skip
    cloud.sm.create_endpoint_config(EndpointConfigName=name, ProductionVariants=variants, **more)
    return name


def invoke(cloud: Cloud, name: str, body: str = "who", **more) -> tuple[str, str]:
    """Return the answer, and the variant that gave it."""
    answer = cloud.runtime.invoke_endpoint(EndpointName=name, Body=body, **more)
    return answer["Body"].read().decode(), answer["InvokedProductionVariant"]


def settled(cloud: Cloud, name: str) -> dict:
    describe = lambda: cloud.sm.describe_endpoint(EndpointName=name)  # noqa: E731
    busy = ("Creating", "Updating", "RollingBack")
    return until(lambda: d if (d := describe())["EndpointStatus"] not in busy else None)


def test_variants_share_requests_and_are_captured(served):
    for colour in ("red", "Green"):
        model(served, colour, colour)
    capture = {
        "EnableCapture": True, "InitialSamplingPercentage": 50,
        "DestinationS3Uri": "s3://bkt/captured",
        "CaptureOptions": [{"CaptureMode": "Input"}, {"CaptureMode": "Output"}],
        "CaptureContentTypeHeader": {"CsvContentTypes": ["text/csv"]},
    }  # fmt: skip
    config(served, "two", {"red": 3.0, "Green": 1.0}, DataCaptureConfig=capture)
    served.sm.create_endpoint(EndpointName="Two", EndpointConfigName="two")
    described = settled(served, "Two")
    assert described["EndpointStatus"] == "InService", described
    assert described["DataCaptureConfig"]["CaptureStatus"] == "Started"

    found = [invoke(served, "Two", ContentType="text/csv", Accept="text/csv") for _ in range(8)]
    assert sorted(found) == [("Green", "Green")] * 2 + [("red", "red")] * 6
    assert invoke(served, "Two", TargetVariant="Green", InferenceId="mine")[0] == "Green"
    with pytest.raises(ClientError, match="not one of this endpoint's: red, Green"):
        invoke(served, "Two", TargetVariant="blue")
    with pytest.raises(ClientError, match="InvokeEndpointAsync is not run here"):
        make_client(served.endpoint, "sagemaker-runtime").invoke_endpoint_async(
            EndpointName="Two", InputLocation="s3://bkt/x"
        )

    served.sm.delete_endpoint(EndpointName="Two")
    keys = served.keys("captured")
    assert all(key.startswith(("captured/Two/red/2", "captured/Two/Green/2")) for key in keys)
    lines = [json.loads(line) for key in keys for line in served.get(key).splitlines()]
    assert len(lines) in (4, 5)  # half of 9
    line = next(line for line in lines if line["captureData"]["endpointInput"]["encoding"] == "CSV")
    assert line["captureData"]["endpointInput"] == {
        "observedContentType": "text/csv", "mode": "INPUT", "data": "who", "encoding": "CSV"
    }  # fmt: skip
    assert line["eventVersion"] == "0" and line["eventMetadata"]["eventId"]


MORTAL = """
import os, pathlib, sklearn
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


def log_of(cloud: Cloud, endpoint: str) -> list[str]:
    group = f"/aws/sagemaker/Endpoints/{endpoint}"
    [stream] = cloud.logs.describe_log_streams(logGroupName=group)["logStreams"]
    events = cloud.logs.get_log_events(
        logGroupName=group, logStreamName=stream["logStreamName"], startFromHead=True
    )
    return [event["message"] for event in events["events"]]


def test_a_model_process_that_ends_is_started_again(served, monkeypatch):
    """The request that met its end is told so; later ones wait."""
    model(served, "mortal", "x", MORTAL)
    config(served, "mortal", {"mortal": 1})
    served.sm.create_endpoint(EndpointName="mortal", EndpointConfigName="mortal")
    assert settled(served, "mortal")["EndpointStatus"] == "InService"
    for _ in range(2):
        with pytest.raises(ClientError) as died:
            invoke(served, "mortal", "die")
        assert died.value.response["Error"]["Code"] == "ModelError"
        assert "broke off" in died.value.response["OriginalMessage"]
        assert invoke(served, "mortal", "again")[0] == "alive"
        assert settled(served, "mortal")["EndpointStatus"] == "InService"
    ends = [line for line in log_of(served, "mortal") if "container ended" in line]
    assert [line.partition("exit status ")[2] for line in ends] == [
        "3, time 1 in a row: it is started again at once.",
        "3, time 2 in a row: it is started again in 1 s.",
    ]

    monkeypatch.setattr(serving_instance, "ANSWER", 2.0)
    with pytest.raises(ClientError):
        invoke(served, "mortal", "break")
    with pytest.raises(ClientError) as late:
        invoke(served, "mortal", "again")
    assert late.value.response["OriginalStatusCode"] == 0
    assert "Received server error (0) from primary" in str(late.value)
    assert "Your invocation timed out" in late.value.response["OriginalMessage"]
    until(lambda: any("time 4 in a row" in line for line in log_of(served, "mortal")))
    assert settled(served, "mortal")["EndpointStatus"] == "InService"
    served.sm.delete_endpoint(EndpointName="mortal")
    assert not list((served.state / "endpoints").glob("mortal/*"))


def test_the_log_of_an_endpoint_names_what_is_of_another_version(served):
    model(served, "older", "x", MORTAL)
    config(served, "older", {"older": 1})
    served.sm.create_endpoint(EndpointName="older", EndpointConfigName="older")
    settled(served, "older")
    [line] = [line for line in log_of(served, "older") if "stands in for" in line]
    assert f"scikit-learn {version('scikit-learn')} (there 1.2.1)" in line
    served.sm.delete_endpoint(EndpointName="older")


def test_an_update_serves_the_next_one_and_a_broken_one_leaves_the_last(served):
    model(served, "first", "first")
    model(served, "second", "second")
    model(served, "broken-one", "x", "raise RuntimeError('broken on purpose')")
    config(served, "first", {"first": 1})
    config(served, "second", {"second": 1})
    config(served, "third", {"broken-one": 1})
    served.sm.create_endpoint(EndpointName="updated", EndpointConfigName="first")
    assert settled(served, "updated")["EndpointStatus"] == "InService"
    served.sm.update_endpoint(EndpointName="updated", EndpointConfigName="second")
    with pytest.raises(ClientError, match="it is Updating"):
        served.sm.update_endpoint(EndpointName="updated", EndpointConfigName="first")
    assert invoke(served, "updated")[0] in ("first", "second")  # it serves all the time
    assert settled(served, "updated")["EndpointConfigName"] == "second"
    assert invoke(served, "updated")[0] == "second"
    served.sm.update_endpoint(EndpointName="updated", EndpointConfigName="third")
    found = settled(served, "updated")
    assert (found["EndpointStatus"], found["EndpointConfigName"]) == ("InService", "second")
    assert "broken on purpose" in found["FailureReason"]
    assert invoke(served, "updated")[0] == "second"
    served.sm.delete_endpoint(EndpointName="updated")
    assert not list((served.state / "endpoints").glob("updated/*"))


def test_a_request_passes_the_containers_of_a_model_in_their_order(served):
    add = "def model_fn(d): return 0\n"
    add += "def input_fn(b, c): return b if isinstance(b, str) else b.decode()\n"
    add += "def predict_fn(x, m):\n  import os\n  return x + os.environ['COLOUR']\n"
    add += "def output_fn(x, accept): return x\n"
    uri = served.put("chain/model.tar.gz", package(add))
    containers = [
        {"Image": LIGHT, "ModelDataUrl": uri,
         "Environment": {"SAGEMAKER_PROGRAM": "inference.py", "COLOUR": colour}}
        for colour in ("-1", "-2", "-3")
    ]  # fmt: skip
    served.sm.create_model(ModelName="chain", Containers=containers, ExecutionRoleArn=ROLE)
    config(served, "chain", {"chain": 1})
    served.sm.create_endpoint(EndpointName="chain", EndpointConfigName="chain")
    assert settled(served, "chain")["EndpointStatus"] == "InService"
    assert invoke(served, "chain", "0", ContentType="application/octet-stream")[0] == "0-1-2-3"
    served.sm.delete_endpoint(EndpointName="chain")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"InstanceType": "ml.x1"},
            "Value .ml.x1. at .productionVariants.1.member.instanceType. failed to satisfy",
        ),
        ({"ModelName": "nobody"}, "Could not find model"),
        ({"ServerlessConfig": {"MemorySizeInMB": 1024, "MaxConcurrency": 1}}, "serverless"),
    ],
)
def test_a_configuration_that_could_not_serve_is_refused(served, changes, says):
    variant = {"VariantName": "v", "ModelName": "x", "InstanceType": "ml.m5.large",
               "InitialInstanceCount": 1}  # fmt: skip
    with pytest.raises(ClientError, match=says):
        served.sm.create_endpoint_config(
            EndpointConfigName="bad", ProductionVariants=[variant | changes]
        )


def test_steps_make_a_configuration_and_create_or_update_an_endpoint(served):
    model(served, "Stepped", "stepped")
    variant = {"VariantName": "v", "ModelName": "Stepped", "InstanceType": "ml.m5.large",
               "InitialInstanceCount": 1}  # fmt: skip
    configure = {"Name": "Configure", "Type": "EndpointConfig",
                 "Arguments": {"ProductionVariants": [variant]}}  # fmt: skip
    name = {"Get": "Steps.Configure.EndpointConfigName"}
    deploy = {"Name": "Deploy", "Type": "Endpoint",
              "Arguments": {"EndpointName": "stepped", "EndpointConfigName": name}}  # fmt: skip
    served.create("deploying", [configure, deploy])
    for _ in range(2):
        execution, steps = served.run("deploying")
        assert execution["PipelineExecutionStatus"] == "Succeeded", steps
        assert invoke(served, "stepped")[0] == "stepped"
    arn = steps["Configure"]["Metadata"]["EndpointConfig"]["Arn"]
    described = served.sm.describe_endpoint(EndpointName="stepped")
    assert described["EndpointConfigName"].lower() == arn.rpartition("/")[2]
    served.sm.delete_endpoint(EndpointName="stepped")


def test_models_and_configurations_survive_the_emulator(tmp_path):
    with cloud(tmp_path) as first:
        model(first, "kept", "x")
        config(first, "kept", {"kept": 2.0})
        described = first.sm.describe_model(ModelName="kept")
        created = described["CreationTime"]
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
