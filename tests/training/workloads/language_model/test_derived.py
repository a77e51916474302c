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


SPLITS = {
    "tensor_parallel": {"tensor_parallel": 2, "sequence_parallel": False},
    "sequence_parallel": {"tensor_parallel": 2},
    "stage": {"pipeline_parallel": 2},
    "context_parallel": {"context_parallel": 2},
}
"""Method of the workload → settings that call it."""


@pytest.mark.slow
def test_fsdp_needs_nothing_more_and_what_splits_the_model_names_the_method_to_override(
    tmp_path: Path,
):
    write_data(tmp_path / "data")
    roots = {name: container(tmp_path / "data", tmp_path / name) for name in ("fsdp", *SPLITS)}
    given = {"fsdp": {"strategy": "fsdp"}} | {n: {"strategy": "ddp"} | s for n, s in SPLITS.items()}
    worlds.train_each({roots[name]: DERIVED | more for name, more in given.items()}, 2)
    alone = container(tmp_path / "data", tmp_path / "alone")
    job.main(arguments(alone, DERIVED | {"strategy": "single"}))
    assert losses(roots["fsdp"]) == pytest.approx(losses(alone), rel=1e-12)
    for name in SPLITS:
        said = (roots[name] / "output/failure").read_text()
        assert f"override {name}() in the workload, or" in said
