"""A good model comes into service, a quietly worse one is rolled back; one command goes back."""

import io
import os
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from pipelines.endpoint import rollout
from pipelines.endpoint.endpoint_requests import Release
from pipelines.endpoint.rollout import (
    deploy_release,
    find_config_package,
    find_served_package,
    roll_back_endpoint,
)
from pipelines.recipe.config import Recipe
from pipelines.recipe.read_recipe import load_recipe
from pipelines.registry.champion import find_champion
from tests.conftest import CHECKOUT
from tests.endpoint_load import Load
from trainyard.common.errors import GateError, RecipeError
from trainyard.emulator.client_environment import apply_environment
from trainyard.emulator.server import serve_emulator

pytestmark = pytest.mark.sweep
IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-inference:2.6.0-cpu-py312"
ROLE = "arn:aws:iam::123456789012:role/AmazonSageMaker-ExecutionRole"
HANDLERS = """
import json, random
def model_fn(model_dir): return float(open(model_dir + "/level").read())
def input_fn(body, content_type): return body
def predict_fn(data, level): return {"bits_per_byte": random.gauss(level, 1.0)}
def output_fn(answer, accept): return json.dumps(answer), "application/json"
"""
SETS = ["deploy.endpoint=models", "deploy.bake_minutes=0.5", "deploy.capture_share=1",
        "deploy.compare={quality: bits_per_byte}"]  # fmt: skip
SAID: list[str] = []


def register_package(
    number: int, level: float, group: str = "models", name: str = "bits_per_byte"
) -> str:
    """Register and approve a model whose answers have that mean under a name; return its package's
    ARN.
    """
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for file, text in (
            ("code/inference.py", HANDLERS.replace("bits_per_byte", name)),
            ("level", str(level)),
        ):
            entry = tarfile.TarInfo(file)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    s3, sagemaker = boto3.client("s3"), boto3.client("sagemaker")
    s3.put_object(Bucket="trainyard-laptop", Key=f"{number}.tar.gz", Body=archive.getvalue())
    container = {
        "Image": IMAGE,
        "ModelDataUrl": f"s3://trainyard-laptop/{number}.tar.gz",
        "Environment": {"SAGEMAKER_PROGRAM": "inference.py"},
    }
    made = sagemaker.create_model_package(
        ModelPackageGroupName=group,
        ModelApprovalStatus="Approved",
        InferenceSpecification={"Containers": [container]},
    )
    arn: str = made["ModelPackageArn"]
    return arn


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recipe]:
    monkeypatch.setattr(rollout, "POLL_SECONDS", 0.5)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    with serve_emulator(tmp_path / "aws") as endpoint, apply_environment(endpoint.env):
        boto3.client("s3").create_bucket(Bucket="trainyard-laptop")
        boto3.client("sagemaker").create_model_package_group(ModelPackageGroupName="models")
        yield load_recipe(CHECKOUT / "recipes/laptop.yaml", SETS)


def release_package(recipe: Recipe, package: str) -> rollout.Outcome:
    capture = "s3://trainyard-laptop/captured"
    return deploy_release(Release(recipe, package, ROLE, capture), SAID.append)


def test_from_the_first_model_to_the_way_back(recipe: Recipe) -> None:
    sagemaker: Any = boto3.client("sagemaker")
    first, better, worse = (
        register_package(1, 1.0),
        register_package(2, 0.9),
        register_package(3, 3.0),
    )
    assert find_served_package(sagemaker, "models") is None
    assert release_package(recipe, first).is_serving
    assert find_served_package(sagemaker, "models") == first
    with pytest.raises(GateError, match="only one model"):
        roll_back_endpoint("models", "us-east-1", SAID.append)
    with Load(os.environ, "models", lambda _: {"Body": b"{}"}) as load:
        good = release_package(recipe, better)
        assert good.is_serving, good
        bad = release_package(recipe, worse)
        assert not bad.is_serving and find_config_package(sagemaker, bad.config) == better
        assert "its answers are worse" in "\n".join(SAID)
        assert "models-models-3-worse" in bad.reason
        assert roll_back_endpoint("models", "us-east-1", SAID.append).is_serving
    assert find_served_package(sagemaker, "models") == first
    assert find_champion(sagemaker, "models", "models") == first, (
        "not the newest Approved, which is bad"
    )
    assert find_champion(sagemaker, "models", None) == worse
    assert load.ended and all(one.answer for one in load.ended), load.lost


def test_a_quality_that_no_answer_has_is_refused_or_rolled_back(recipe: Recipe) -> None:
    sagemaker, s3 = boto3.client("sagemaker"), boto3.client("s3")
    first, second, other = (
        register_package(1, 1.0),
        register_package(2, 1.0),
        register_package(3, 1.0, name="nats"),
    )
    assert release_package(recipe, first).is_serving
    sets = [*SETS, "deploy.compare={quality: nats}"]
    renamed = load_recipe(CHECKOUT / "recipes/laptop.yaml", sets)
    with Load(os.environ, "models", lambda _: {"Body": b"{}"}):
        while not s3.list_objects_v2(Bucket="trainyard-laptop", Prefix="captured/").get("Contents"):
            time.sleep(0.1)
        said = r"quality: none of .* has a number 'nats'; (nearest|valid) .*bits_per_byte"
        with pytest.raises(RecipeError, match=said):
            release_package(renamed, second)
        assert len(sagemaker.list_models()["Models"]) == 1, "nothing was made"
        SAID.clear()
        assert not release_package(recipe, other).is_serving
        assert "its answers lack the compared number" in "\n".join(SAID)
    SAID.clear()
    assert release_package(recipe, second).is_serving
    assert "too few to compare; capture more" in "\n".join(SAID)
