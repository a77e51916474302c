"""What many tests need: running our command lines as a user does, and an emulator to talk to."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# No deadlines: a busy machine is no defect of the code under test.
settings.register_profile("trainyard", deadline=None)
settings.load_profile("trainyard")

CHECKOUT = Path(__file__).parent.parent
AWS_NAMES = ("AWS_", "SAGEMAKER_", "ARTIFACT_BUCKET", "CODEBUILD_")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that start real jobs come first: at the end no core waits for the other's long one."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def clean_environment() -> dict[str, str]:
    """This process's environment without anything that configures AWS."""
    return {k: v for k, v in os.environ.items() if not k.startswith(AWS_NAMES)}


@pytest.fixture
def run_python(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess]:
    """Run this Python in the checkout, with an empty HOME and no AWS in the environment."""

    def run(*arguments: str, env: dict[str, str] | None = None, cwd: Path = CHECKOUT, **kwargs):
        environment = clean_environment() | {"HOME": str(tmp_path), "COLUMNS": "200"} | (env or {})
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=cwd,
            env=environment,
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
            **kwargs,
        )

    return run


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the module's emulator keeps its state."""
    return tmp_path_factory.mktemp("aws")


@pytest.fixture(scope="module")
def emulator(state: Path) -> Iterator:
    """An emulator of this module's own; ``emulator.env`` points a command line at it."""
    from trainyard.emulator.server import serve

    with serve(state=state) as endpoint:
        yield endpoint
