"""examples/xgboost as it is run: two processes grow one model of a table's shards."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet

from tests.conftest import CHECKOUT, clean_environment
from tests.training.workloads.tabular.tables import SETTINGS, dataset, table
from tests.training.worlds import free_port

pytestmark = pytest.mark.sweep

PROJECT = CHECKOUT / "examples/xgboost"
GROUPED = SETTINGS | {"group": "day", "group_ordered": True}


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """Shards of three splits, of two units each; in ``model`` what two processes left."""
    root = tmp_path_factory.mktemp("xgboost")
    for seed, split in enumerate(("train", "validation", "test")):
        frame = table(2000, seed).assign(day=np.arange(2000) // 40)
        frame["day"] = frame["day"].astype(str)
        dataset(root / split, GROUPED, {"a": frame[:700], "b": frame[700:]})
    (root / "model").mkdir()
    (root / "scores").mkdir()
    return root


def environment(root: Path, **more: str) -> dict[str, str]:
    channels = {f"SM_CHANNEL_{s.upper()}": str(root / s) for s in ("train", "validation", "test")}
    folders = {"SM_MODEL_DIR": str(root / "model"), "SM_OUTPUT_DATA_DIR": str(root / "scores")}
    return clean_environment() | channels | folders | more


@pytest.fixture(scope="module")
def printed_outputs(root: Path) -> list[str]:
    """What each of two ranks printed, as torchrun starts them."""
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    ranks = [
        subprocess.Popen(
            [sys.executable, "train.py", "--num_round", "30", "--eta", "0.3"],
            cwd=PROJECT, env=environment(root, **place, RANK=str(rank)), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        for rank in range(2)
    ]  # fmt: skip
    said = [rank.communicate(timeout=250)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], said
    told = [re.search(r"rank (\d) of 2: \d+ rounds, model ([0-9a-f]{64})", text) for text in said]
    assert [one[1] for one in told] == ["0", "1"]
    assert told[0][2] == told[1][2], "both grow the very same model"
    assert "train-logloss:" in said[0] and "validation-logloss:" in said[0]
    return said


def test_the_scores_are_a_row_an_example_and_better_than_the_base_rate(root: Path, printed_outputs):
    subprocess.run(
        [sys.executable, "evaluate.py"], cwd=PROJECT, env=environment(root), check=True, timeout=250
    )
    scores, rate = (
        parquet.read_table(root / f"scores/{name}.parquet").to_pandas()
        for name in ("scores", "baseline.base_rate")
    )
    assert len(scores) == 2000 and scores["example"].is_unique and scores["group"].nunique() == 50
    assert scores["log_loss"].mean() < 0.3 < 0.6 < rate["log_loss"].mean()
    assert scores["accuracy"].mean() > 0.9


def test_an_endpoint_answers_a_record_as_the_evaluation_scores_it(
    root: Path, printed_outputs, project
):
    split = project.shards.Split(str(root / "train"))  # its parts are all rows, each once
    whole, parts = split.rows(), [split.rows(part, 3) for part in range(3)]
    assert len(whole) == 2000 and sum(map(len, parts)) == 2000
    again = [row.tobytes() for row in np.concatenate(parts)]
    assert sorted(again) == sorted(row.tobytes() for row in whole)
    model = project.inference.model_fn(str(root / "model"))
    frame = table(40, seed=2)  # as the test split begins
    for record in json.loads(frame.to_json(orient="records"))[:5]:
        body = json.dumps(record)
        asked = project.inference.input_fn(body, "application/json")
        answer = project.inference.output_fn(project.inference.predict_fn(asked, model), "")
        late = (record["colour"] == "red") ^ (record["weight"] < 100)
        assert (json.loads(answer)["probability"] > 0.5) == late


@pytest.fixture
def project(monkeypatch):
    """The example's modules, which import each other by their bare names."""
    monkeypatch.syspath_prepend(str(PROJECT))
    names = ("shards", "inference")
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    import inference
    import shards

    yield type("project", (), {"shards": shards, "inference": inference})
    for name in names:
        sys.modules.pop(name, None)
