"""One studio for all: importing the SDK and compiling cost seconds."""

import pytest

from tests.trainyard.plan.pictures import Studio


@pytest.fixture(scope="session")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Studio:
    return Studio(tmp_path_factory.mktemp("studio"))
