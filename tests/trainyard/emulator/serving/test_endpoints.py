"""Endpoints through boto3: a container is started, asked, and gone; with handlers of anyone's."""

import io
import tarfile

import psutil
import pytest
from botocore.exceptions import ClientError

from tests.trainyard.emulator.harness import ROLE, Cloud, cloud, until

pytestmark = pytest.mark.slow

IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-inference:2.6.0-cpu-py312"
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
    """A model.tar.gz."""
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
    """The endpoint's description when it is no longer Creating."""
    describe = lambda: cloud.sm.describe_endpoint(EndpointName=name)  # noqa: E731
    return until(lambda: d if (d := describe())["EndpointStatus"] != "Creating" else None, 120)


def ask(cloud: Cloud, name: str, body: str) -> str:
    from tests.trainyard.emulator.standin import make_client

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
    family = [p for p in children if any("serving/containers/" in word for word in p.cmdline())]
    assert family
    served.sm.delete_endpoint(EndpointName="echo")
    assert psutil.wait_procs(family, timeout=1)[1] == []
    with pytest.raises(ClientError, match="Could not find endpoint"):
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
