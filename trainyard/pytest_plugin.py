"""Fixtures for tests of any SageMaker pipeline: an AWS on this machine that runs it.

    def test_pipeline(sagemaker_endpoint):
        started = my_pipeline.upsert_and_start()  # boto3 or the SageMaker SDK, as against AWS
        ended = sagemaker_endpoint.wait(started)
        assert ended["PipelineExecutionStatus"] == "Succeeded"

pytest finds this module if trainyard is installed. Each pytest session (with pytest-xdist, each
worker) has its own server with its own state and secret, on a free loopback port. They end with the
session. ``--sagemaker-containers auto|always|never`` says which jobs run in podman or docker.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

# The emulator is imported only when a fixture is used, so that other sessions of pytest do not pay
# for the import.
if TYPE_CHECKING:
    from trainyard.emulator.server import Endpoint


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--sagemaker-containers",
        choices=["auto", "always", "never"],
        help="which jobs of sagemaker_endpoint run in podman or docker; default: "
        "TRAINYARD_EMULATOR_CONTAINERS, or auto",
    )


@pytest.fixture(scope="session")
def sagemaker_server(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[Endpoint]:
    """Run an emulated AWS for the session.

    Its ``env`` are the environment variables that make another process use it; the environment of
    this process is not changed.
    """
    from trainyard.emulator.server import serve_emulator

    mode = pytestconfig.getoption("--sagemaker-containers")
    with serve_emulator(tmp_path_factory.mktemp("sagemaker"), containers=mode) as endpoint:
        yield endpoint


@pytest.fixture
def sagemaker_endpoint(sagemaker_server: Endpoint) -> Iterator[Endpoint]:
    """Make boto3 and the SDK use the session's emulated AWS instead of the real one during a test.

    Resources that a test created still exist in the next test.
    """
    import boto3
    import botocore.session

    from trainyard.emulator.client_environment import apply_environment
    from trainyard.emulator.redirect.sitecustomize import wrap_session_methods

    wrap_session_methods(botocore.session)
    with apply_environment(sagemaker_server.env):
        # boto3's default session keeps the credentials and endpoint with which it was created, so
        # the test needs a new one.
        default, boto3.DEFAULT_SESSION = boto3.DEFAULT_SESSION, None
        yield sagemaker_server
        boto3.DEFAULT_SESSION = default
