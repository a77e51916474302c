"""The real train job over toy data, in this process."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from steps.train import job
from tests.training.trainings import TOYS, arguments, write_ragged


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    """Tiny models are slower on two threads, by far when something else runs beside the tests."""
    torch.set_num_threads(1)


@pytest.fixture
def root(tmp_path: Path, monkeypatch) -> Path:
    """A training container's folders with 100 + 20 toy samples."""
    monkeypatch.syspath_prepend(str(TOYS))
    return write_inputs(tmp_path / "ml")


def write_inputs(root: Path) -> Path:
    write_ragged(root / "input/data/train", 100, seed=1)
    write_ragged(root / "input/data/validation", 20, seed=2)
    return root


@pytest.fixture(scope="session")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished training over the samples of ``root``, to look at or to copy; its seed is 3."""
    root = tmp_path_factory.mktemp("alone") / "ml"
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(TOYS))
        write_inputs(root)
        job.main(arguments(root, {"strategy": "single", "seed": 3}))
    return root


@pytest.fixture
def train() -> Callable[..., Path]:
    """Run the train job in this process, one rank: ``train(root, micro_batch=4)``."""

    def run(root: Path, **settings) -> Path:
        job.main(arguments(root, {"strategy": "single"} | settings))
        return root

    return run
