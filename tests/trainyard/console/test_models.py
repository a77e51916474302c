"""The registry's pages: groups, versions, the champion's line, cards; of strangers', too."""

import html
import json
from functools import partial
from typing import Any

import pytest

from tests.trainyard.emulator.harness import IMAGE, ROLE, Cloud, until
from trainyard.console.card import blocks
from trainyard.console.champions import picture
from trainyard.console.pages import models
from trainyard.console.registry import place_of

CARD = {
    "model_overview": {"model_creator": "pipeline <b>p</b>", "model_artifact": ["s3://bkt/m"]},
    "evaluation_details": [
        {
            "name": "held-out",
            "metric_groups": [
                {"name": "m", "metric_data": [{"name": "loss", "type": "number", "value": 0.5}]}
            ],
        }
    ],
}
SERVED = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-inference:2.6.0-cpu-py312"
FOREIGN = "999988887777.dkr.ecr.eu-west-1.amazonaws.com/somebodys@sha256:" + "a" * 64


@pytest.fixture(scope="module")
def registry(cloud: Cloud) -> Cloud:
    """A group of versions with and without all that is optional, and a package in no group."""
    cloud.put("m.tar.gz", b"x" * 1234)
    cloud.sm.create_model_package_group(ModelPackageGroupName="digits")
    report = cloud.put(
        "report.json",
        json.dumps({"regression_metrics": {"mae": {"value": 0.25, "standard_deviation": 0.1}}}),
    )
    metrics = {"Statistics": {"ContentType": "application/json", "S3Uri": report}}
    register(cloud, ModelMetrics={"ModelQuality": metrics}, CustomerMetadataProperties={"a": "1"})
    register(cloud, ModelMetrics={"ModelQuality": {"Statistics": {
        "ContentType": "application/json", "S3Uri": "s3://elsewhere/nobodys.json"}}})  # fmt: skip
    content = {"ModelCardContent": json.dumps(CARD), "ModelCardStatus": "Draft"}
    register(cloud, ModelCard=content, CustomerMetadataProperties={"hash": "12e45678"})
    cloud.sm.create_model_package(ModelPackageName="alone", InferenceSpecification=spec(FOREIGN))
    return cloud


def spec(image: str) -> dict[str, Any]:
    return {
        "Containers": [{"Image": image, "ModelDataUrl": "s3://bkt/m.tar.gz"}],
        "SupportedContentTypes": ["text/csv"],
        "SupportedResponseMIMETypes": ["text/csv"],
    }


def register(cloud: Cloud, image: str = IMAGE, **more: Any) -> str:
    return cloud.sm.create_model_package(
        ModelPackageGroupName="digits", InferenceSpecification=spec(image), **more
    )["ModelPackageArn"]


def shown(client: Any, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200, answer.get_data(as_text=True)
    return html.unescape(answer.get_data(as_text=True))


def test_a_group_shows_its_champion_and_each_versions_metrics(registry: Cloud, client):
    arns = [one["ModelPackageArn"] for one in registry.sm.list_model_packages(
        ModelPackageGroupName="digits", SortBy="CreationTime", SortOrder="Ascending"
    )["ModelPackageSummaryList"]]  # fmt: skip
    registry.sm.update_model_package(
        ModelPackageArn=arns[0], ModelApprovalStatus="Approved", ApprovalDescription="all checks"
    )
    text = shown(client, "/models/digits?metric=mae")
    assert "the champion, its newest Approved one" in text and "all checks" in text
    assert "version 1: 0.25, Approved, champion" in text
    assert "version 2: without this metric" in text  # its report is another account's
    assert "12e45678" not in text  # a hash is no metric
    assert "digits" in shown(client, "/models")


def test_a_version_shows_its_card_and_where_its_model_lies(registry: Cloud, client):
    raw = client.get("/models/digits/3").get_data(as_text=True)
    assert "pipeline &lt;b&gt;p&lt;/b&gt;" in raw and "<b>p</b>" not in raw
    assert "Evaluation details: held-out" in raw and "<td>loss</td>" in raw
    assert "1.23 kB" in raw


def test_a_package_of_no_group_has_its_page(registry: Cloud, client):
    text = shown(client, "/models/-/alone")
    assert FOREIGN in text and "its metadata name no execution" in text


def test_what_is_not_in_the_registry_is_said(registry: Cloud, client):
    assert client.get("/models/nobody").status_code == 502
    assert client.get("/models/digits/99").status_code == 502


def test_a_group_of_many_versions_is_shown_page_by_page(registry: Cloud, client, monkeypatch):
    monkeypatch.setattr(models, "AT_ONCE", 2)
    first, second = shown(client, "/models/digits"), shown(client, "/models/digits?page=2")
    assert "page 1 of 2" in first and ">3</a>" in first
    assert ">1</a>" in second and ">3</a>" not in second


@pytest.mark.parametrize("content", ["[]", "{", '"text"'])
def test_a_card_of_another_form_is_no_card(content: str):
    with pytest.raises(ValueError):
        blocks(content)


def test_a_card_of_any_depth_and_length_is_bounded():
    deep: Any = "end"
    for _ in range(50):
        deep = {"inner": deep}
    rows = {f"k{number}": number for number in range(1_000)}
    found = blocks(json.dumps({"deep": deep, "wide": rows, "many": [[1, {"a": [2]}]] * 500}))
    assert len(found) <= 100
    wide = next(block for block in found if block.title == "Wide")
    assert (len(wide.rows), wide.left_out) == (200, 800)


def test_the_line_joins_what_is_approved_and_numbers_stay_readable():
    packages = [
        {
            "ModelPackageArn": f"arn:aws:sagemaker:eu:1:model-package/g/{number}",
            "ModelPackageVersion": number,
            "ModelApprovalStatus": "Approved" if number % 50 == 0 else "Rejected",
        }
        for number in range(200, 0, -1)
    ]
    values = [float("nan"), 1e300, None, *[float(n) for n in range(197)]]
    found = picture(packages, values, packages[0]["ModelPackageArn"])
    assert found is not None
    assert found.line.count("L") == 2  # 50, 100, 150: the champion has no number
    assert sum(mark.label for mark in found.marks) <= 26
    assert found.marks[-1].is_champion and found.marks[-1].value is None
    assert picture([], [], None) is None


@pytest.mark.parametrize(
    ("arn", "place"),
    [
        ("arn:aws:sagemaker:eu-west-1:1:model-package/g/12", ("g", "12")),
        ("arn:aws:sagemaker:eu-west-1:1:model-package/alone", ("-", "alone")),
        ("alone", ("-", "alone")),
    ],
)
def test_the_place_of_a_package_is_in_its_arn(arn: str, place: tuple[str, str]):
    assert place_of(arn) == place


def test_an_endpoint_is_listed_with_what_it_serves_and_can_be_switched(registry: Cloud, client):
    """This one fails, since its model is not there; so it cannot be switched either."""
    arn = register(registry, SERVED, ModelApprovalStatus="Approved")
    registry.s3.delete_object(Bucket="bkt", Key="m.tar.gz")
    for name in ("first", "second"):
        container = {"ModelPackageName": arn}
        registry.sm.create_model(ModelName=name, PrimaryContainer=container, ExecutionRoleArn=ROLE)
        variant = {"VariantName": "A", "ModelName": name, "InstanceType": "ml.m5.large",
                   "InitialInstanceCount": 1}  # fmt: skip
        registry.sm.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])
    registry.sm.create_endpoint(EndpointName="live", EndpointConfigName="first")
    describe = partial(registry.sm.describe_endpoint, EndpointName="live")
    until(lambda: describe()["EndpointStatus"] == "Failed")
    listed = shown(client, "/models")
    version = arn.rpartition("/")[2]
    assert f'/models/digits/{version}">{version}</a>' in listed and "Failed" in listed
    assert 'href="/do/switch-endpoint?endpoint=live"' in listed
    asked = shown(client, "/do/switch-endpoint?endpoint=live")
    assert "only an endpoint that is InService can be updated" in asked
    assert "second (" in asked and f"digits version {version}" in asked
    assert "live" in shown(client, f"/models/digits/{version}/lineage")
