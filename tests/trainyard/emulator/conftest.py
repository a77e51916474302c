"""A real emulator on a real port, without the part that runs pipelines."""

from collections.abc import Callable, Iterator

import pytest

from tests.trainyard.emulator.standin import NoPipelines, make_client
from trainyard.emulator.server import Endpoint, serve


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    with serve(tmp_path_factory.mktemp("aws"), make_sagemaker=NoPipelines) as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def client(endpoint: Endpoint) -> Callable:
    """Returns boto3 clients of the endpoint: ``client("s3")``."""
    return lambda service: make_client(endpoint, service)
