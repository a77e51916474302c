"""A workload that uses all of the language model's except the model itself."""

import json
from pathlib import Path

import pytest

from steps.train import job
from tests.training import worlds
from tests.training.strategies.cases import MODEL, SETTINGS, container, write_data
from tests.training.trainings import TOYS, arguments, losses

pytestmark = pytest.mark.long

DERIVED = SETTINGS | {
    "workload": "toys.derived",
    "workload_config": json.dumps(MODEL),
    "precision": "float64",
    "max_steps": 2,
}


@pytest.fixture(autouse=True)
def _path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TOYS))


def roots(folder: Path, *names: str) -> list[Path]:
    write_data(folder / "data")
    return [container(folder / "data", folder / name) for name in names]


@pytest.mark.slow
def test_fsdp_needs_nothing_more(tmp_path: Path):
    alone, several = roots(tmp_path, "alone", "several")
    job.main(arguments(alone, DERIVED | {"strategy": "single"}))
    worlds.train_each({several: DERIVED | {"strategy": "fsdp"}}, 2)
    assert losses(several) == pytest.approx(losses(alone), rel=1e-12)


SPLITS = {
    "tensor_parallel": {"tensor_parallel": 2, "sequence_parallel": False},
    "sequence_parallel": {"tensor_parallel": 2},
    "stage": {"pipeline_parallel": 2},
    "context_parallel": {"context_parallel": 2},
}
"""Method of the workload → settings that call it."""


@pytest.mark.slow
@pytest.mark.parametrize("method", SPLITS)
def test_what_splits_the_model_names_the_method_to_override(tmp_path: Path, method: str):
    [root] = roots(tmp_path, "root")
    codes = worlds.finish(worlds.start(root, 2, **DERIVED | {"strategy": "ddp"} | SPLITS[method]))
    assert codes == [1, 1]
    assert f"override {method}() in the workload, or" in (root / "rank-0.log").read_text()
