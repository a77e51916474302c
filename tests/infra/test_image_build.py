"""infra/buildspec/image.yml for real, but for Docker's engine: AWS's command line, moto's ECR."""

import json
import sys
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer

from tests.conftest import CHECKOUT
from tests.infra.codebuild import head

pytestmark = pytest.mark.long

NAME = "trainyard-training"
BASE = "public.ecr.aws/docker/library/python@sha256:" + "ab" * 32


@pytest.fixture(scope="module")
def ecr():
    """Moto's ECR, with the repository, and its URL."""
    server = ThreadedMotoServer("127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    client = boto3.client(
        "ecr", endpoint_url=f"http://{host}:{port}", region_name="us-east-1",
        aws_access_key_id="a", aws_secret_access_key="b",
    )  # fmt: skip
    client.create_repository(repositoryName=NAME)
    yield client
    server.stop()


@pytest.fixture
def build(codebuild, ecr, tmp_path: Path):
    """Run the build; its result, and the calls of Docker."""

    def run(number: int, **variables: str):
        log = tmp_path / "docker.jsonl"
        done = codebuild(
            "infra/buildspec/image.yml",
            PATH=f"{CHECKOUT}/tests/fakes:{Path(sys.executable).parent}:/usr/bin:/bin",
            REPOSITORY_URI=f"123456789012.dkr.ecr.us-east-1.amazonaws.com/{NAME}",
            CODEBUILD_BUILD_NUMBER=str(number),
            AWS_ENDPOINT_URL_ECR=ecr.meta.endpoint_url,
            AWS_DEFAULT_REGION="us-east-1",
            DOCKER_LOG=str(log),
            **variables,
        )
        return done, [json.loads(line) for line in log.read_text().splitlines()]

    return run


def test_the_image_is_built_on_a_digest_and_named_by_one(build, ecr, source):
    done, calls = build(1)
    assert done.status == 0, done.output
    (made,) = [call for call in calls if call[0] == "build"]
    assert f"BASE={BASE}" in made and made[made.index("--target") + 1] == "training"
    assert f"org.opencontainers.image.base.digest={BASE.partition('@')[2]}" in made
    (pushed,) = ecr.describe_images(repositoryName=NAME)["imageDetails"]
    assert pushed["imageTags"] == [f"{head(source)}-1"]
    image = f"123456789012.dkr.ecr.us-east-1.amazonaws.com/{NAME}@{pushed['imageDigest']}"
    assert done.exported == [f"IMAGE={image}"]
    assert f"images: {{training: {image}}}" in done.output


def test_an_image_with_a_compiler_is_not_pushed(build):
    done, calls = build(2, HOLDS="gcc")
    assert done.status != 0 and "holds a compiler" in done.output
    assert "push" not in [call[0] for call in calls]


def test_only_the_stage_that_is_left_behind_installs_compilers():
    text = (CHECKOUT / "containers/training/Dockerfile").read_text()
    first, *_, last = text.split("\nFROM ")[1:]
    assert "build-essential" in first
    assert last.startswith("${BASE} AS training\n") and "apt-get" not in last
