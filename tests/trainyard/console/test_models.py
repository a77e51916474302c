"""The registry's pages: groups, versions, also of other tools."""

import html
import json
from typing import Any

import pytest

from tests.trainyard.emulator.harness import IMAGE, Cloud
from trainyard.console.outcomes import split_package_arn
from trainyard.console.pages import models

FOREIGN = "999988887777.dkr.ecr.eu-west-1.amazonaws.com/somebodys@sha256:" + "a" * 64


@pytest.fixture(scope="module")
def registry(cloud: Cloud) -> Cloud:
    """A group of versions with and without all optional members, and a package without a group."""
    cloud.put("m.tar.gz", b"x" * 1234)
    cloud.sm.create_model_package_group(ModelPackageGroupName="digits")
    mae = {"mae": {"value": 0.25, "standard_deviation": 0.1}}
    report = cloud.put("report.json", json.dumps({"regression_metrics": mae}))
    for uri, metadata in ((report, {"a": "1"}), ("s3://elsewhere/nobodys.json", {})):
        statistics = {"Statistics": {"ContentType": "application/json", "S3Uri": uri}}
        told = {"ModelMetrics": {"ModelQuality": statistics}}
        register(cloud, CustomerMetadataProperties=metadata, **told)
    register(cloud, CustomerMetadataProperties={"hash": "12e45678"})
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


def read_page(client: Any, address: str) -> str:
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
    text = read_page(client, "/models/digits?metric=mae")
    assert "the champion, its newest Approved one" in text and "all checks" in text
    assert "0.25" in text
    assert "12e45678" not in text  # a hash is no metric
    assert "digits" in read_page(client, "/models")
    alone = read_page(client, "/models/-/alone")
    assert FOREIGN in alone and "the metadata do not name an execution" in alone
    for nothing in ("/models/nobody", "/models/digits/99"):
        assert client.get(nothing).status_code == 502


def test_a_group_draws_its_most_important_metric_with_the_champion_marked(cloud: Cloud, client):
    cloud.sm.create_model_package_group(ModelPackageGroupName="drawn")
    for number, loss in enumerate(("0.5", "0.3", "0.4")):
        cloud.sm.create_model_package(
            ModelPackageGroupName="drawn",
            InferenceSpecification=spec(IMAGE),
            ModelApprovalStatus="Approved" if number == 1 else "PendingManualApproval",
            CustomerMetadataProperties={"seed": str(number), "loss": loss},
        )
    text = read_page(client, "/models/drawn")
    assert "loss by version" in text and "champion: 0.3 at version 2" in text
    assert "lowest 0.3 at version 2, highest 0.5 at version 1" in text
    assert text.count('class="n metric"') == 2


def test_a_group_of_many_versions_shows_the_newest(registry: Cloud, client, monkeypatch):
    monkeypatch.setattr(models, "AT_ONCE", 2)
    text = read_page(client, "/models/digits")
    assert ">3</a>" in text and ">2</a>" in text and "and 1 older ones" in text


@pytest.mark.parametrize(
    ("arn", "place"),
    [
        ("arn:aws:sagemaker:eu-west-1:1:model-package/g/12", ("g", "12")),
        ("arn:aws:sagemaker:eu-west-1:1:model-package/alone", ("-", "alone")),
        ("alone", ("-", "alone")),
    ],
)
def test_the_place_of_a_package_is_in_its_arn(arn: str, place: tuple[str, str]):
    assert split_package_arn(arn) == place
