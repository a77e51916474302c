"""Processing jobs, endpoints and transform jobs in containers of a real engine."""

import io
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from tests.container_images import OWN, URI, build, make_base, needs_engine
from tests.trainyard.emulator.harness import IMAGE, ROLE, Cloud, cloud, processing, until, wait
from trainyard.emulator.containers.container_engine import find_engine

pytestmark = [pytest.mark.slow, needs_engine]


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    make_base()
    with cloud(tmp_path_factory.mktemp("aws")) as found:
        found.put("m/model.tar.gz", model("hello"))
        yield found


def model(greeting: str) -> bytes:
    """Return a model.tar.gz for the image's server."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        entry = tarfile.TarInfo("greeting")
        entry.size = len(greeting)
        tar.addfile(entry, io.BytesIO(greeting.encode()))
    return archive.getvalue()


def create_model(aws: Cloud, name: str, *images: str, **more) -> None:
    """Create a model of containers with these images."""
    containers = [
        {
            "Image": image,
            "ModelDataUrl": "s3://bkt/m/model.tar.gz",
            "Environment": {"COLOUR": "red"},
        }
        for image in images
    ]
    which = (
        {"Containers": containers} if len(containers) > 1 else {"PrimaryContainer": containers[0]}
    )
    aws.sm.create_model(ModelName=name, ExecutionRoleArn=ROLE, **which, **more)


def create_endpoint(aws: Cloud, name: str) -> dict:
    """Create an endpoint of the model of that name; return its description in the end."""
    variant = {"VariantName": "one", "ModelName": name, "InstanceType": "ml.m5.large",
               "InitialInstanceCount": 1}  # fmt: skip
    aws.sm.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])
    aws.sm.create_endpoint(EndpointName=name, EndpointConfigName=name)
    describe = lambda: aws.sm.describe_endpoint(EndpointName=name)  # noqa: E731
    return until(lambda: d if (d := describe())["EndpointStatus"] != "Creating" else None)


def ask(aws: Cloud, name: str, body: str) -> str:
    answer = aws.runtime.invoke_endpoint(EndpointName=name, Body=body, ContentType="text/plain")
    return answer["Body"].read().decode()


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
    request = processing("true", outputs={"out": "s3://bkt/out"})
    request["AppSpecification"] = {
        "ImageUri": URI,
        "ContainerEntrypoint": ["python3", "-c", "import sys; exec(''.join(sys.argv[1:]))"],
        "ContainerArguments": [code[i : i + 256] for i in range(0, len(code), 256)],
    }
    request["ProcessingInputs"] = [
        {
            "InputName": "in",
            "S3Input": {
                "S3Uri": "s3://bkt/in",
                "LocalPath": "/opt/ml/processing/in",
                "S3DataType": "S3Prefix",
                "S3InputMode": "File",
            },
        }
    ]
    request["ProcessingOutputConfig"]["Outputs"] = [
        {
            "OutputName": name,
            "S3Output": {
                "S3Uri": f"s3://bkt/{name}",
                "LocalPath": f"/opt/ml/processing/{name}",
                "S3UploadMode": mode,
            },
        }
        for name, mode in (("out", "EndOfJob"), ("early", "Continuous"))
    ]
    aws.sm.create_processing_job(ProcessingJobName="sum", **request)
    describe = lambda: aws.sm.describe_processing_job(ProcessingJobName="sum")  # noqa: E731
    done = wait(describe, "ProcessingJobStatus", ("Completed", "Failed", "Stopped"))
    assert done["ProcessingJobStatus"] == "Completed", done.get("FailureReason")
    assert aws.get("out/sum") == b"3" and aws.get("early/part") == b"sum"
    assert done["ExitMessage"] == "all is well"
    assert "['algo-1']" in aws.log("Processing", "sum")


def test_a_processing_job_may_leave_the_entrypoint_to_the_image(aws: Cloud) -> None:
    request = processing("true")
    own = {"ImageUri": URI, "ContainerArguments": ["process", "print(6*7)"]}
    request["AppSpecification"] = own
    aws.sm.create_processing_job(ProcessingJobName="own", **request)
    describe = lambda: aws.sm.describe_processing_job(ProcessingJobName="own")  # noqa: E731
    wait(describe, "ProcessingJobStatus", ("Completed", "Failed", "Stopped"))
    assert "42" in aws.log("Processing", "own")


def test_an_endpoint_answers_refuses_restarts_and_ends(aws: Cloud) -> None:
    create_model(aws, "echo", URI)
    described = create_endpoint(aws, "echo")
    assert described["EndpointStatus"] == "InService", described.get("FailureReason")
    [image] = described["ProductionVariants"][0]["DeployedImages"]
    digest = find_engine().image(OWN).digest
    assert image["ResolvedImage"] == f"{URI.removesuffix(':1')}@{digest}"
    assert ask(aws, "echo", "you") == "hello you"
    with pytest.raises(ClientError) as refused:
        ask(aws, "echo", "refuse")
    assert refused.value.response["OriginalMessage"] == "refused on purpose"
    with pytest.raises(ClientError) as died:
        ask(aws, "echo", "die")
    assert died.value.response["Error"]["Code"] == "ModelError"
    assert ask(aws, "echo", "again") == "hello again"  # it was started again
    aws.sm.delete_endpoint(EndpointName="echo")
    until(lambda: not list((aws.state / "endpoints").glob("*")), 20)
    running = find_engine().call("ps", "--quiet", "--filter", f"label=trainyard.state={aws.state}")
    assert running.stdout == ""


def test_a_canary_shifts_requests_from_container_to_container(aws: Cloud) -> None:
    aws.put("green/model.tar.gz", model("moin"))
    create_model(aws, "canary", URI)
    container = {"Image": URI, "ModelDataUrl": "s3://bkt/green/model.tar.gz"}
    aws.sm.create_model(ModelName="green", ExecutionRoleArn=ROLE, PrimaryContainer=container)
    assert create_endpoint(aws, "canary")["EndpointStatus"] == "InService"
    variant = {"VariantName": "one", "ModelName": "green", "InstanceType": "ml.m5.large",
               "InitialInstanceCount": 1}  # fmt: skip
    aws.sm.create_endpoint_config(EndpointConfigName="green", ProductionVariants=[variant])
    canary = {
        "Type": "CANARY",
        "CanarySize": {"Type": "CAPACITY_PERCENT", "Value": 50},
        "WaitIntervalInSeconds": 2,
    }
    policy = {"BlueGreenUpdatePolicy": {"TrafficRoutingConfiguration": canary}}
    aws.sm.update_endpoint(
        EndpointName="canary", EndpointConfigName="green", DeploymentConfig=policy
    )
    answers = []
    while aws.sm.describe_endpoint(EndpointName="canary")["EndpointStatus"] == "Updating":
        answers.append(ask(aws, "canary", "x"))
        time.sleep(0.02)  # beside others' work
    green = answers.index("moin x")
    assert answers[:green] == ["hello x"] * green
    assert {*answers[green:]} == {"hello x", "moin x"}, "the canary has half of the requests"
    assert ask(aws, "canary", "x") == "moin x"
    aws.sm.delete_endpoint(EndpointName="canary")


def test_a_model_without_a_network_serves_too(aws: Cloud) -> None:
    create_model(aws, "closed", URI, EnableNetworkIsolation=True)
    assert create_endpoint(aws, "closed")["EndpointStatus"] == "InService"
    assert ask(aws, "closed", "you") == "hello you"
    aws.sm.delete_endpoint(EndpointName="closed")


def test_a_server_that_cannot_start_fails_the_endpoint(aws: Cloud) -> None:
    create_model(aws, "none", "trainyard-tests/base:bookworm")
    described = create_endpoint(aws, "none")
    assert described["EndpointStatus"] == "Failed"
    assert "serve" in described["FailureReason"]


def test_requests_pass_serial_containers(aws: Cloud) -> None:
    create_model(aws, "serial", URI, URI)
    assert create_endpoint(aws, "serial")["EndpointStatus"] == "InService"
    assert ask(aws, "serial", "you") == "hello hello you"
    aws.sm.delete_endpoint(EndpointName="serial")


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
        aws.put(f"many/{name}.tar.gz", model(name))
    container = {"Image": image, "ModelDataUrl": "s3://bkt/many/", "Mode": "MultiModel"}
    aws.sm.create_model(ModelName="many", ExecutionRoleArn=ROLE, PrimaryContainer=container)
    assert create_endpoint(aws, "many")["EndpointStatus"] == "InService"

    def invoke(name: str, body: str = "x") -> str:
        target = {"TargetModel": f"{name}.tar.gz"} if name else {}
        answer = aws.runtime.invoke_endpoint(EndpointName="many", Body=body, **target)
        return answer["Body"].read().decode()

    answers = [invoke(name) for name in ("a", "b", "a", "sub/c", "b")]
    assert answers == ["a a.tar.gz", "b b.tar.gz", "a a.tar.gz", "sub/c sub/c.tar.gz", "b b.tar.gz"]
    stream = {"logGroupName": "/aws/sagemaker/Endpoints/many"}
    name = aws.logs.describe_log_streams(**stream)["logStreams"][0]["logStreamName"]
    events = aws.logs.get_log_events(**stream, logStreamName=name, startFromHead=True)["events"]
    unloaded = [event["message"] for event in events if "unloaded" in event["message"]]
    assert unloaded == ["unloaded b", "unloaded a"]  # the one used longest ago
    with pytest.raises(
        ClientError, match=r"Failed to download model data\(bucket: bkt, key: many/d"
    ):
        invoke("d")
    with pytest.raises(ClientError, match="missing a target model header"):
        invoke("")
    with pytest.raises(ClientError, match="broke off"):
        invoke("b", "die")
    assert invoke("b") == "b b.tar.gz"  # loaded anew
    with pytest.raises(ClientError, match="which Batch Transform does not run"):
        transform(aws, "many")
    aws.sm.delete_endpoint(EndpointName="many")


def test_where_one_model_is_served_none_can_be_named(aws: Cloud) -> None:
    create_model(aws, "single", URI)
    assert create_endpoint(aws, "single")["EndpointStatus"] == "InService"
    with pytest.raises(ClientError, match="Endpoint single is not a multi-model endpoint"):
        aws.runtime.invoke_endpoint(EndpointName="single", Body="x", TargetModel="a.tar.gz")
    aws.sm.delete_endpoint(EndpointName="single")


def test_what_runs_as_a_process_has_one_model(aws: Cloud) -> None:
    container = {"Image": IMAGE.replace("training", "inference"), "Mode": "MultiModel"}
    container["ModelDataUrl"] = "s3://bkt/many/"
    aws.sm.create_model(ModelName="process", ExecutionRoleArn=ROLE, PrimaryContainer=container)
    with pytest.raises(ClientError, match="Mode MultiModel runs in a container only"):
        create_endpoint(aws, "process")


def test_containers_and_processes_do_not_mix_in_a_model(aws: Cloud) -> None:
    create_model(aws, "mixed", URI, IMAGE.replace("training", "inference"))
    with pytest.raises(ClientError, match="cannot reach each other.*--containers always"):
        create_endpoint(aws, "mixed")


def transform(aws: Cloud, name: str) -> None:
    """Start a transform job of the model of that name."""
    aws.sm.create_transform_job(
        TransformJobName=name,
        ModelName=name,
        TransformInput={
            "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://bkt/rows"}},
            "SplitType": "Line",
        },
        TransformOutput={"S3OutputPath": "s3://bkt/answers", "AssembleWith": "Line"},
        TransformResources={"InstanceType": "ml.m5.large", "InstanceCount": 2},
    )


def test_batch_transform(aws: Cloud) -> None:
    create_model(aws, "batch", URI)
    aws.put("rows/a.csv", "1\n2\n")
    aws.put("rows/b.csv", "3")
    transform(aws, "batch")
    describe = lambda: aws.sm.describe_transform_job(TransformJobName="batch")  # noqa: E731
    done = wait(describe, "TransformJobStatus", ("Completed", "Failed", "Stopped"))
    assert done["TransformJobStatus"] == "Completed", done.get("FailureReason")
    assert aws.get("answers/a.csv.out") == b"hello 1\nhello 2\n"
    assert aws.get("answers/b.csv.out").startswith(b"hello 3")
    assert "serving red" in aws.all_lines("Transform", "batch")
