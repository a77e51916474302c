"""Fixtures for tests of any SageMaker pipeline: an AWS on this machine that runs it.

    def test_pipeline(sagemaker_endpoint):
        started = my_pipeline.upsert_and_start()  # boto3 or the SageMaker SDK, as against AWS
        ended = sagemaker_endpoint.wait(started)
        assert ended["PipelineExecutionStatus"] == "Succeeded"

pytest finds this module when trainyard is installed. The server, its state and its secret are the
session's own (with pytest-xdist each worker's), on a free loopback port, and end with it.
``--sagemaker-containers auto|always|never`` says which jobs run in podman or docker.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

# A session of pytest that uses none of this does not pay for the import.
if TYPE_CHECKING:
    from trainyard.emulator.server import Endpoint


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--sagemaker-containers",
        choices=["auto", "always", "never"],
        help="which jobs of sagemaker_endpoint run in podman or docker; else as "
        "TRAINYARD_EMULATOR_CONTAINERS says, or auto",
    )


@pytest.fixture(scope="session")
def sagemaker_server(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[Endpoint]:
    """Serve an AWS for the session. Its ``env`` points a process at it; this one is untouched."""
    from trainyard.emulator.server import serve

    mode = pytestconfig.getoption("--sagemaker-containers")
    with serve(tmp_path_factory.mktemp("sagemaker"), containers=mode) as endpoint:
        yield endpoint


@pytest.fixture
def sagemaker_endpoint(sagemaker_server: Endpoint) -> Iterator[Endpoint]:
    """Serve the session's AWS, which boto3 and the SDK use instead of the real one during the test.

    Resources that a test created are there for the next.
    """
    import boto3
    import botocore.session

    from trainyard.emulator.client_environment import apply_environment
    from trainyard.emulator.redirect.sitecustomize import hook

    hook(botocore.session)
    with apply_environment(sagemaker_server.env):
        # A session remembers the credentials and the endpoint that it began with.
        default, boto3.DEFAULT_SESSION = boto3.DEFAULT_SESSION, None
        yield sagemaker_server
        boto3.DEFAULT_SESSION = default
