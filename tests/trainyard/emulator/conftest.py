"""A real emulator on a real port, without the part that runs pipelines."""

import functools
from collections.abc import Callable, Iterator

import pytest

from tests.trainyard.emulator.standin import NoPipelines, make_client
from trainyard.emulator.containers.isolation import VARIABLE, explain_missing_namespaces
from trainyard.emulator.server import Endpoint, serve_emulator


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    with serve_emulator(tmp_path_factory.mktemp("aws"), make_sagemaker=NoPipelines) as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def client(endpoint: Endpoint) -> Callable:
    """Returns boto3 clients of the endpoint: ``client("s3")``."""
    return functools.cache(functools.partial(make_client, endpoint))


@pytest.fixture(params=["namespaces", "relocate"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The way in which the test's jobs are isolated."""
    if request.param == "namespaces" and explain_missing_namespaces():
        pytest.skip(f"namespaces: {explain_missing_namespaces()}")
    monkeypatch.setenv(VARIABLE, request.param)
    return request.param
