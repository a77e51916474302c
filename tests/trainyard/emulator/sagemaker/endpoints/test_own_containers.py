"""Processing jobs, endpoints and transform jobs in containers of a real engine."""

import io
import tarfile
from collections.abc import Iterator

import pytest
from botocore.exceptions import ClientError

from tests.container_images import OWN, URI, make_base, needs_engine
from tests.trainyard.emulator.harness import IMAGE, ROLE, Cloud, cloud, processing, until, wait
from trainyard.emulator.containers.container_engine import find_engine

pytestmark = [pytest.mark.slow, needs_engine]


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    make_base()
    with cloud(tmp_path_factory.mktemp("aws")) as found:
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w:gz") as tar:
            entry = tarfile.TarInfo("greeting")
            entry.size = 5
            tar.addfile(entry, io.BytesIO(b"hello"))
        found.put("m/model.tar.gz", archive.getvalue())
        yield found


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


def test_containers_and_processes_do_not_mix_in_a_model(aws: Cloud) -> None:
    create_model(aws, "mixed", URI, IMAGE.replace("training", "inference"))
    with pytest.raises(ClientError, match="cannot reach each other.*--containers always"):
        create_endpoint(aws, "mixed")


def test_batch_transform(aws: Cloud) -> None:
    create_model(aws, "batch", URI)
    aws.put("rows/a.csv", "1\n2\n")
    aws.put("rows/b.csv", "3")
    aws.sm.create_transform_job(
        TransformJobName="batch",
        ModelName="batch",
        TransformInput={
            "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://bkt/rows"}},
            "SplitType": "Line",
        },
        TransformOutput={"S3OutputPath": "s3://bkt/answers", "AssembleWith": "Line"},
        TransformResources={"InstanceType": "ml.m5.large", "InstanceCount": 2},
    )
    describe = lambda: aws.sm.describe_transform_job(TransformJobName="batch")  # noqa: E731
    done = wait(describe, "TransformJobStatus", ("Completed", "Failed", "Stopped"))
    assert done["TransformJobStatus"] == "Completed", done.get("FailureReason")
    assert aws.get("answers/a.csv.out") == b"hello 1\nhello 2\n"
    assert aws.get("answers/b.csv.out").startswith(b"hello 3")
    assert "serving red" in aws.all_lines("Transform", "batch")
