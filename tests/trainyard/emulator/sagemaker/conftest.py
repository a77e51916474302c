"""An emulator for each module; one of whose jobs run a script from their environment."""

from collections.abc import Iterator

import pytest

from tests.trainyard.emulator.harness import Cloud, cloud
from tests.trainyard.emulator.sagemaker.tuning.harness import tuning_cloud


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with cloud(tmp_path_factory.mktemp("aws") / "state") as running:
        yield running


@pytest.fixture(scope="module")
def tuning(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    folder = tmp_path_factory.mktemp("tuning")
    with tuning_cloud(folder / "aws", folder / "image") as running:
        yield running
