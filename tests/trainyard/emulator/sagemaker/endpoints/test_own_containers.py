"""Processing jobs, endpoints and transform jobs in containers of a real engine."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from tests.container_images import OWN, URI, build, make_base, needs_engine
from tests.trainyard.emulator.harness import IMAGE, ROLE, Cloud, cloud, processing, s3_input, until
from tests.trainyard.emulator.sagemaker.builders import archive, wait_for_transform
from tests.trainyard.emulator.sagemaker.endpoints.test_deployment import blue_green, percent, update
from tests.trainyard.emulator.sagemaker.endpoints.test_endpoints import (
    config,
    in_service,
    invoke,
    log_of,
    wait_for_endpoint,
)
from trainyard.emulator.containers.container_engine import find_engine

pytestmark = [pytest.mark.slow, needs_engine]


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    make_base()
    with cloud(tmp_path_factory.mktemp("aws")) as found:
        found.put("m/model.tar.gz", archive({"greeting": "hello"}))
        yield found


def create_model(aws: Cloud, name: str, *images: str, data: str = "m", **more) -> None:
    """Create a model of containers with these images, and its endpoint configuration."""
    same = {"ModelDataUrl": f"s3://bkt/{data}/model.tar.gz", "Environment": {"COLOUR": "red"}}
    containers = [{"Image": image, **same} for image in images]
    which = {"Containers": containers} if len(images) > 1 else {"PrimaryContainer": containers[0]}
    aws.sm.create_model(ModelName=name, ExecutionRoleArn=ROLE, **which, **more)
    config(aws, name, {name: 1.0})


def create_endpoint(aws: Cloud, name: str) -> None:
    aws.sm.create_endpoint(EndpointName=name, EndpointConfigName=name)


def ask(aws: Cloud, name: str, body: str) -> str:
    return invoke(aws, name, body, ContentType="text/plain")[0]


def test_the_processing_contract(aws: Cloud) -> None:
    aws.put("in/a.csv", "1\n2\n")
    code = """
import json, pathlib, os
root = pathlib.Path("/opt/ml/processing")
job = json.load(open("/opt/ml/config/processingjobconfig.json"))
rows = (root / "in/a.csv").read_text().split()
(root / "out/sum").write_text(str(sum(map(int, rows))))
os.chmod(root / "out/sum", 0o600)
(root / "early/part").write_text(os.environ["PROCESSING_JOB_NAME"])
open("/opt/ml/output/message", "w").write("all is well")
print(json.load(open("/opt/ml/config/resourceconfig.json"))["hosts"])
"""
    request = processing("true", outputs={"out": "s3://bkt/out", "early": "s3://bkt/early"})
    request["AppSpecification"] = {
        "ImageUri": URI,
        "ContainerEntrypoint": ["python3", "-c", "import sys; exec(''.join(sys.argv[1:]))"],
        "ContainerArguments": [code[i : i + 256] for i in range(0, len(code), 256)],
    }
    request["ProcessingInputs"] = [s3_input("in", "s3://bkt/in")]
    request["ProcessingOutputConfig"]["Outputs"][1]["S3Output"]["S3UploadMode"] = "Continuous"
    done = aws.process("sum", "", **request)
    assert done["ProcessingJobStatus"] == "Completed", done.get("FailureReason")
    assert aws.get("out/sum") == b"3" and aws.get("early/part") == b"sum"
    assert done["ExitMessage"] == "all is well"
    assert "['algo-1']" in aws.log("Processing", "sum")


def test_a_processing_job_may_leave_the_entrypoint_to_the_image(aws: Cloud) -> None:
    own = {"ImageUri": URI, "ContainerArguments": ["process", "print(6*7)"]}
    aws.process("own", "", AppSpecification=own)
    assert "42" in aws.log("Processing", "own")


def test_an_endpoint_answers_refuses_restarts_and_ends(aws: Cloud) -> None:
    create_model(aws, "echo", URI)
    create_endpoint(aws, "echo")
    [image] = in_service(aws, "echo")["ProductionVariants"][0]["DeployedImages"]
    digest = find_engine().find_image(OWN).digest
    assert image["ResolvedImage"] == f"{URI.removesuffix(':1')}@{digest}"
    assert ask(aws, "echo", "you") == "hello you"
    with pytest.raises(ClientError) as refused:
        ask(aws, "echo", "refuse")
    assert refused.value.response["OriginalMessage"] == "refused on purpose"
    with pytest.raises(ClientError, match="ModelError"):
        ask(aws, "echo", "die")
    assert ask(aws, "echo", "again") == "hello again"  # it was started again
    with pytest.raises(ClientError, match="Endpoint echo is not a multi-model endpoint"):
        aws.runtime.invoke_endpoint(EndpointName="echo", Body="x", TargetModel="a.tar.gz")
    aws.sm.delete_endpoint(EndpointName="echo")
    until(lambda: not list((aws.state / "endpoints").glob("*")), 20)
    running = find_engine().call("ps", "--quiet", "--filter", f"label=trainyard.state={aws.state}")
    assert running.stdout == ""


def test_a_canary_shifts_requests_from_container_to_container(aws: Cloud) -> None:
    aws.put("green/model.tar.gz", archive({"greeting": "moin"}))
    create_model(aws, "canary", URI)
    create_model(aws, "green", URI, data="green")
    create_endpoint(aws, "canary")
    in_service(aws, "canary")
    canary = blue_green("CANARY", 2, CanarySize=percent(50))
    _, answers = update(aws, "green", canary, "canary")
    green = answers.index("moin who")
    assert answers[:green] == ["hello who"] * green
    assert {*answers[green:]} == {"hello who", "moin who"}, "the canary has half of the requests"
    assert invoke(aws, "canary")[0] == "moin who"
    aws.sm.delete_endpoint(EndpointName="canary")


def test_a_model_without_a_network_and_serial_containers_serve_too(aws: Cloud) -> None:
    create_model(aws, "closed", URI, EnableNetworkIsolation=True)
    create_model(aws, "serial", URI, URI)
    for name, answer in (("closed", "hello you"), ("serial", "hello hello you")):
        create_endpoint(aws, name)
        in_service(aws, name)
        assert ask(aws, name, "you") == answer
        aws.sm.delete_endpoint(EndpointName=name)


def test_a_server_that_cannot_start_fails_the_endpoint(aws: Cloud) -> None:
    create_model(aws, "none", "trainyard-tests/base:bookworm")
    create_endpoint(aws, "none")
    described = wait_for_endpoint(aws, "none")
    assert described["EndpointStatus"] == "Failed"
    assert "serve" in described["FailureReason"]


MODEL_STORE = """#!/usr/bin/env python3
import json, os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

loaded = {}

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, body=b""):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer(200)

    def do_DELETE(self):
        print("unloaded", loaded.pop(self.path.split("/")[2]), flush=True)
        self.answer(200)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path != "/models":
            if body == b"die":
                os._exit(3)
            target = self.headers["X-Amzn-SageMaker-Target-Model"]
            return self.answer(200, f"{loaded[self.path.split('/')[2]]} {target}".encode())
        asked = json.loads(body)
        if len(loaded) == 2:
            return self.answer(507, b"no memory")
        with open(asked["url"] + "/greeting") as file:
            loaded[asked["model_name"]] = file.read()
        self.answer(200)

assert os.environ["SAGEMAKER_MULTI_MODEL"] == "true"
ThreadingHTTPServer(("0.0.0.0", 8080), Handler).serve_forever()
"""


def test_a_multi_model_container_loads_what_requests_name(aws: Cloud, tmp_path: Path) -> None:
    (tmp_path / "serve").write_text(MODEL_STORE)
    (tmp_path / "serve").chmod(0o755)
    (tmp_path / "Dockerfile").write_text(f"FROM {OWN}\nCOPY serve /usr/local/bin/serve\n")
    image = build(tmp_path, "trainyard-tests/models:1")
    for name in ("a", "b", "sub/c"):
        aws.put(f"many/{name}.tar.gz", archive({"greeting": name}))
    container = {"Image": image, "ModelDataUrl": "s3://bkt/many/", "Mode": "MultiModel"}
    aws.sm.create_model(ModelName="many", ExecutionRoleArn=ROLE, PrimaryContainer=container)
    config(aws, "many", {"many": 1.0})
    create_endpoint(aws, "many")
    in_service(aws, "many")

    def invoke_model(name: str, body: str = "x") -> str:
        target = {"TargetModel": f"{name}.tar.gz"} if name else {}
        return invoke(aws, "many", body, **target)[0]

    answers = [invoke_model(name) for name in ("a", "b", "a", "sub/c", "b")]
    assert answers == ["a a.tar.gz", "b b.tar.gz", "a a.tar.gz", "sub/c sub/c.tar.gz", "b b.tar.gz"]
    unloaded = lambda: [line for line in log_of(aws, "many") if "unloaded" in line]  # noqa: E731
    assert until(lambda: lines if len(lines := unloaded()) == 2 else None) == [
        "unloaded b",
        "unloaded a",
    ]  # the one used longest ago
    missing = r"Failed to download model data\(bucket: bkt, key: many/d"
    with pytest.raises(ClientError, match=missing):
        invoke_model("d")
    with pytest.raises(ClientError, match="missing a target model header"):
        invoke_model("")
    with pytest.raises(ClientError, match="broke off"):
        invoke_model("b", "die")
    assert invoke_model("b") == "b b.tar.gz"  # loaded anew
    with pytest.raises(ClientError, match="which Batch Transform does not support"):
        transform(aws, "many")
    aws.sm.delete_endpoint(EndpointName="many")


def test_what_no_container_serves_is_refused_when_the_endpoint_is_made(aws: Cloud) -> None:
    process = IMAGE.replace("training", "inference")
    container = {"Image": process, "Mode": "MultiModel", "ModelDataUrl": "s3://bkt/many/"}
    aws.sm.create_model(ModelName="process", ExecutionRoleArn=ROLE, PrimaryContainer=container)
    config(aws, "process", {"process": 1.0})
    with pytest.raises(ClientError, match="Mode MultiModel runs in a container only"):
        create_endpoint(aws, "process")
    create_model(aws, "mixed", URI, process)
    with pytest.raises(ClientError, match="cannot reach each other.*--containers always"):
        create_endpoint(aws, "mixed")


def transform(aws: Cloud, name: str) -> None:
    """Start a transform job of the model of that name."""
    source = {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://bkt/rows"}}
    aws.sm.create_transform_job(
        TransformJobName=name,
        ModelName=name,
        TransformInput={"DataSource": source, "SplitType": "Line"},
        TransformOutput={"S3OutputPath": "s3://bkt/answers", "AssembleWith": "Line"},
        TransformResources={"InstanceType": "ml.m5.large", "InstanceCount": 2},
    )


def test_batch_transform(aws: Cloud) -> None:
    create_model(aws, "batch", URI)
    aws.put("rows/a.csv", "1\n2\n")
    aws.put("rows/b.csv", "3")
    transform(aws, "batch")
    done = wait_for_transform(aws, "batch")
    assert done["TransformJobStatus"] == "Completed", done.get("FailureReason")
    assert aws.get("answers/a.csv.out") == b"hello 1\nhello 2\n"
    assert aws.get("answers/b.csv.out").startswith(b"hello 3")
    assert "serving red" in aws.all_lines("Transform", "batch")
