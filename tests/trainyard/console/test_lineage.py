"""Where a package came from: as far as AWS tells, and no further."""

import html
from itertools import combinations, product
from typing import Any

import pytest
from botocore.stub import Stubber

from tests.trainyard.emulator.harness import (
    IMAGE,
    ROLE,
    Cloud,
    channel,
    process_step,
    s3_input,
    train_step,
)
from trainyard.console.account import Account
from trainyard.console.app import create
from trainyard.console.lineage.entities import producer
from trainyard.console.lineage.graph import Lineage, Node, trace
from trainyard.console.lineage.jobs import is_of
from trainyard.console.lineage.maker import trained
from trainyard.console.lineage.picture import drawn

MODEL = {"Get": "Steps.Train.ModelArtifacts.S3ModelArtifacts"}


def output(step: str, name: str) -> dict[str, str]:
    return {"Get": f"Steps.{step}.ProcessingOutputConfig.Outputs['{name}'].S3Output.S3Uri"}


def spec(model: Any) -> dict[str, Any]:
    return {
        "Containers": [{"Image": IMAGE, "ModelDataUrl": model}],
        "SupportedContentTypes": ["text/csv"],
        "SupportedResponseMIMETypes": ["text/csv"],
    }


@pytest.fixture(scope="module")
def arn(cloud: Cloud) -> str:
    """A package that a run of three jobs registered, approved and made a model of.

    Beside the run's own data lie the raw ones, under the same prefix as what Prepare writes."""
    cloud.put("data/raw/a.csv", "1,2")
    prepare = process_step(
        "Prepare",
        "echo 1 > /opt/ml/processing/train/x",
        outputs={"train": "s3://bkt/data/train"},
        arguments={"ProcessingInputs": [s3_input("raw", "s3://bkt/data/raw")]},
    )
    train = train_step("Train", "echo hi > /opt/ml/model/m.txt")
    train["Arguments"]["InputDataConfig"] = [
        channel("train", output("Prepare", "train")),
        channel("all", "s3://bkt/data/raw"),
    ]
    evaluate = process_step("Evaluate", "true", outputs={"scores": "s3://bkt/scores"})
    evaluate["Arguments"]["ProcessingInputs"] = [s3_input("model", MODEL)]
    report = {"Std:Join": {"On": "/", "Values": [output("Evaluate", "scores"), "e.json"]}}
    register = {
        "Name": "Register",
        "Type": "RegisterModel",
        "Arguments": {
            "ModelPackageGroupName": "line",
            "ModelApprovalStatus": "Approved",
            "InferenceSpecification": spec(MODEL),
            "ModelMetrics": {
                "ModelQuality": {"Statistics": {"ContentType": "application/json", "S3Uri": report}}
            },
            "CustomerMetadataProperties": {"run": {"Get": "Execution.PipelineExecutionArn"}},
        },
    }
    cloud.create("line", [prepare, train, evaluate, register])
    _, steps = cloud.run("line")
    found: str = steps["Register"]["Metadata"]["RegisterModel"]["Arn"]
    return found


def traced(cloud: Cloud, arn: str, execution: tuple[str, str] | None) -> Lineage:
    account = Account(may_write=False)
    with create(account, "key").test_request_context("/"):
        found = trace(account, account.sagemaker.describe_model_package(ModelPackageName=arn),
                      execution)  # fmt: skip
    return found


def named(found: Lineage) -> set[tuple[str, str, str]]:
    """(from, as, to), by the nodes' names."""
    return {
        (found.nodes[a].name, what, found.nodes[b].name) for (a, b), what in found.edges.items()
    }


def test_a_package_leads_back_to_raw_data(cloud: Cloud, arn: str):
    package = cloud.sm.describe_model_package(ModelPackageName=arn)
    execution = package["CustomerMetadataProperties"]["run"].rpartition("/")[2]
    found = traced(cloud, arn, ("line", execution))
    assert named(found) == {
        ("data/raw", "raw", "Prepare"),
        ("data/raw", "all", "Train"),
        ("Prepare", "train", "Train"),
        ("Train", "model", "Evaluate"),
        ("Train", "model", "line 1"),
        ("Evaluate", "statistics", "line 1"),
    }
    assert all(node.href for node in found.nodes.values())
    picture = drawn(found)
    above = {box.node.name: box.y for box in picture.boxes}
    assert (
        above["data/raw"] < above["Prepare"] < above["Train"] < above["Evaluate"] < above["line 1"]
    )


def test_without_its_run_the_model_leads_to_its_training_job_alone(cloud: Cloud, arn: str):
    found = traced(cloud, arn, None)
    kinds = {node.kind for node in found.nodes.values()}
    assert "training job" in kinds and "processing job" not in kinds
    assert "cannot be known" not in kinds


def test_a_run_that_no_metadata_name_is_found_by_its_training_job(cloud: Cloud, arn: str, client):
    package = cloud.sm.describe_model_package(ModelPackageName=arn)
    run = package["CustomerMetadataProperties"]["run"].rpartition("/")[2]
    model = package["InferenceSpecification"]["Containers"][0]["ModelDataUrl"]
    cloud.sm.create_model_package(ModelPackageName="stranger", InferenceSpecification=spec(model))
    assert f'href="/runs/line/{run}">line {run}</a>' in client.get("/models/-/stranger").text
    account = Account(may_write=False)
    other = account.sagemaker.describe_model_package(ModelPackageName="stranger")
    assert trained(account, other) == ("line", run)
    assert ("Prepare", "train", "Train") in named(traced(cloud, "stranger", ("line", run)))
    cloud.put(f"x/pipelines-{run}-Train-nobodysjob/output/model.tar.gz", "m")
    spoofed = spec(f"s3://bkt/x/pipelines-{run}-Train-nobodysjob/output/model.tar.gz")
    assert trained(account, {"InferenceSpecification": spoofed}) is None


def test_a_model_that_nobody_says_to_have_written_is_not_guessed(cloud: Cloud, client):
    cloud.sm.create_model_package(
        ModelPackageName="alone", InferenceSpecification=spec("s3://bkt/there/model.tar.gz")
    )
    answer = client.get("/models/-/alone/lineage")
    assert answer.status_code == 200
    text = html.unescape(answer.get_data(as_text=True))
    assert "no job that is known says that it wrote s3://bkt/there/model.tar.gz" in text


def test_a_run_that_is_gone_is_a_gap(cloud: Cloud, arn: str):
    found = traced(cloud, arn, ("line", "nobodysknows"))
    gaps = [node for node in found.nodes.values() if node.kind == "cannot be known"]
    assert [node.name for node in gaps] == ["its run"]


def test_a_package_leads_on_to_its_endpoint(cloud: Cloud, arn: str, monkeypatch):
    """The endpoint is not begun: that its instances run is no matter here."""
    from trainyard.console import serving

    cloud.sm.create_model(
        ModelName="m", PrimaryContainer={"ModelPackageName": arn}, ExecutionRoleArn=ROLE
    )
    variant = {"VariantName": "A", "ModelName": "m", "InstanceType": "ml.m5.large",
               "InitialInstanceCount": 1}  # fmt: skip
    cloud.sm.create_endpoint_config(EndpointConfigName="c", ProductionVariants=[variant])
    one = serving.Endpoint(
        name="live", status="InService", config="c", models=("m",), packages=(arn,)
    )
    monkeypatch.setattr("trainyard.console.lineage.graph.endpoints", lambda _: [one])
    found = named(traced(cloud, arn, None))
    assert {("line 1", "", "m"), ("m", "", "c"), ("c", "", "live")} <= found


def test_sagemakers_own_lineage_names_the_job_and_the_job_confirms_it(cloud: Cloud):
    account, uri = Account(), "s3://bkt/out/train"
    artifact = "arn:aws:sagemaker:eu-west-1:123456789012:artifact/" + "a" * 32
    component = "arn:aws:sagemaker:eu-west-1:123456789012:experiment-trial-component/"
    with Stubber(account.sagemaker) as stub:
        stub.add_response("list_artifacts", {"ArtifactSummaries": []})
        stub.add_response("list_artifacts", {"ArtifactSummaries": [{"ArtifactArn": artifact}]})
        vertices = [{"Arn": f"{component}{name}-aws-processing-job"} for name in ("liar", "p")]
        stub.add_response("query_lineage", {"Vertices": [{}, *vertices]})
        for name, wrote in (("liar", "s3://bkt/else"), ("p", "s3://bkt/out")):
            stub.add_response("describe_processing_job", processed(name, wrote))
        found = producer(account, uri)
    assert found is not None and (found.kind, found.name) == ("ProcessingJob", "p")


def processed(name: str, wrote: str) -> dict[str, Any]:
    target = {"S3Uri": wrote, "LocalPath": "/opt/ml/processing/x", "S3UploadMode": "EndOfJob"}
    return {
        "ProcessingJobName": name,
        "ProcessingOutputConfig": {"Outputs": [{"OutputName": "x", "S3Output": target}]},
        "ProcessingResources": {
            "ClusterConfig": {
                "InstanceCount": 1,
                "InstanceType": "ml.m5.large",
                "VolumeSizeInGB": 1,
            }
        },
        "AppSpecification": {"ImageUri": IMAGE},
        "ProcessingJobArn": f"arn:aws:sagemaker:eu-west-1:123456789012:processing-job/{name}",
        "ProcessingJobStatus": "Completed",
        "CreationTime": 0,
    }


@pytest.mark.parametrize(
    ("uri", "written", "is_one"),
    [
        ("s3://b/a", "s3://b/a/", True),
        ("s3://b/a/x.csv", "s3://b/a", True),
        ("s3://b/a", "s3://b/a/x", True),
        ("s3://b/ab", "s3://b/a", False),
    ],
)
def test_prefixes_end_at_slashes(uri: str, written: str, is_one: bool):
    assert is_of(uri, written) is is_one


def test_no_label_of_an_edge_stands_on_another():
    nodes = {name: Node(kind="S3", name=name) for name in "abcdefgh"}
    edges = {ends: "model" for ends in product("abcd", "efgh")}
    lines = drawn(Lineage(nodes, edges)).lines
    assert not [(one, other) for one, other in combinations(lines, 2) if one.is_over(other)]
    assert sum(bool(one.short) for one in lines) >= 12
