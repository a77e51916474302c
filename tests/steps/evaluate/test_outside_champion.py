"""A champion that another pipeline made, in scikit-learn: scored by its table, or by its script."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from steps.evaluate import job as evaluate_job
from steps.evaluate.evaluation_document import Evaluation
from steps.evaluate.outside_champion import requests_for
from steps.gate import job as gate_job
from tests.documents import keys_that_differ
from tests.steps.evaluate.test_job import archive
from tests.steps.test_jobs import shard, train
from tests.training.workloads.tabular.tables import SETTINGS, table

pytestmark = pytest.mark.long

ARN = "arn:aws:sagemaker:us-east-1:123456789012:model-package/theirs/7"
COLUMNS = ["colour", "weight"]
SCRIPT = """
import io, joblib, pandas as pd

def model_fn(model_dir):
    return joblib.load(f"{model_dir}/model.joblib")

def input_fn(body, content_type):
    assert content_type == "text/csv"
    return pd.read_csv(io.StringIO(body), names=["colour", "weight"])

def predict_fn(rows, model):
    print("what a script prints is its own matter")
    return model.predict_proba(rows)
"""


def frame() -> pd.DataFrame:
    return table(1500).assign(key=np.arange(1500), day=[f"day {n % 90}" for n in range(1500)])


def records(count: int) -> list[dict]:
    return json.loads(frame().to_json(orient="records"))


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Path:
    """Create the job's processing/input: a small trained model, and their package's archive."""
    root = tmp_path_factory.mktemp("outside")
    workload = {"name": "tabular", "config": SETTINGS | {"group": "day"}, "records": records}
    shard(root, workload)
    train(root, workload)
    folder = root / "processing/input"
    for split in ("train", "test"):
        shutil.copytree(root / split, folder / split)
    archive(folder / "model", root / "train-job/model")
    encoder = make_column_transformer((OneHotEncoder(), ["colour"]), remainder="passthrough")
    rows = frame()
    theirs = make_pipeline(encoder, LogisticRegression(C=1e-3))
    theirs.fit(rows[COLUMNS], rows["delay"] > 15)
    (root / "theirs").mkdir()
    joblib.dump(theirs, root / "theirs/model.joblib")
    archive(folder / "champion", root / "theirs")
    return folder


def scored(inputs: Path) -> pd.DataFrame:
    """Their table: all raw records, of which the test split is a part."""
    theirs = joblib.load(inputs.parents[1] / "theirs/model.joblib")
    rows = frame()
    return rows.assign(probability=theirs.predict_proba(rows[COLUMNS])[:, 1])


def run(inputs: Path, root: Path, *words: str, give: Callable[[Path], None]) -> None:
    shutil.copytree(inputs, root / "processing/input")
    give(root / "processing/input")
    evaluate_job.main(["--champion", ARN, "--outside", ARN, *words, "--root", str(root)])


def evaluation(root: Path) -> dict:
    return json.loads((root / "processing/output/evaluation/evaluation.json").read_bytes())


def their_table(rows: pd.DataFrame, name: str = "theirs.parquet") -> Callable[[Path], None]:
    def give(folder: Path) -> None:
        (folder / "champion_scores").mkdir()
        path = folder / "champion_scores" / name
        if name.endswith(".csv"):
            rows.to_csv(path, index=False)
        else:
            rows.to_parquet(path)

    return give


def their_script(text: str = SCRIPT) -> Callable[[Path], None]:
    def give(folder: Path) -> None:
        (folder / "script").mkdir()
        (folder / "script/inference.py").write_text(text)

    return give


ASKED = ("--outside_script", "inference.py", "--outside_type", "text/csv", "--outside_columns")


def test_a_table_and_the_script_give_the_same_scores_and_the_gate_compares(inputs, tmp_path):
    by_table, by_script = tmp_path / "table", tmp_path / "script"
    run(inputs, by_table, give=their_table(scored(inputs), "theirs.csv"))
    run(inputs, by_script, *ASKED, *COLUMNS, give=their_script())
    tables = [
        pq.read_table(root / "processing/output/scores/champion.parquet")
        for root in (by_table, by_script)
    ]
    for name in ("log_loss.sum", "probability", "example", "group"):
        assert np.allclose(*(table[name].to_numpy() for table in tables), atol=1e-6), name
    found = evaluation(by_table)
    assert not keys_that_differ(found, Evaluation)
    assert found["champion"]["scored_by"]["kind"] == "scores" and not found["champion"]["artifact"]
    label, probability = (tables[0][name].to_numpy() for name in ("label", "probability"))
    expected = log_loss(label, probability)
    assert found["champion"]["metrics"]["log_loss"]["value"] == pytest.approx(expected)
    said = evaluation(by_script)["champion"]
    assert said["scored_by"]["name"] == "inference.py" and len(said["artifact"]["sha256"]) == 64
    verdict = judged(by_table)
    assert verdict["champion"] == ARN
    assert verdict["verdict"] == "pass" and "the champion's 0." in verdict["reason"]
    record = json.loads((by_table / "gate/processing/output/gate/provenance.json").read_bytes())
    assert record["champion_scored_by"]["name"] == "theirs.csv"


@pytest.mark.parametrize(
    ("content_type", "bodies"),
    [
        ("text/csv", [(2, "1.5,red\n,blau\n")]),
        ("application/jsonlines", [(2, '{"b": 1.5, "a": "red"}\n{"b": null, "a": "blau"}\n')]),
        ("application/json", [(1, '{"b": 1.5, "a": "red"}'), (1, '{"b": null, "a": "blau"}')]),
    ],
)
def test_a_request_has_the_columns_in_the_recipes_order(content_type, bodies):
    records = [{"a": "red", "b": 1.5, "c": 0.0}, {"a": "blau", "b": None, "c": 1.0}]
    found = requests_for(records, content_type, ["b", "a"])
    assert [(one["rows"], one["body"]) for one in found] == bodies


def judged(root: Path) -> dict:
    inputs, outputs = root / "gate/processing/input", root / "processing/output"
    inputs.mkdir(parents=True)
    for name in ("evaluation", "scores"):
        (inputs / name).symlink_to(outputs / name)
    gate_job.main([
        "--primary_metric", "log_loss", "--direction", "lower", "--non_inferiority", "log_loss",
        "lower", "0.01", "--champion", ARN, "--look", "1", "--root", str(root / "gate"),
    ])  # fmt: skip
    return json.loads((root / "gate/processing/output/gate/gate.json").read_bytes())


def refusal(inputs: Path, root: Path, *words: str, give: Callable[[Path], None]) -> str:
    with pytest.raises(SystemExit):
        run(inputs, root, *words, give=give)
    assert not (root / "processing/output").exists()
    return (root / "output/message").read_text()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda rows: rows[:700], r"theirs.parquet: lacks \d+ of the \d+ test rows, the first {"),
        (lambda rows: rows.assign(weight=rows.weight + 1), r"score the raw data that data.input"),
        (lambda rows: rows.drop(columns="probability"), "probability"),
        (lambda rows: rows.rename(columns={"delay": "late"}), "delay"),
        (lambda rows: rows.assign(probability=1.5), "row 1: column probability: is 1.5; expected"),
        (lambda rows: rows.assign(probability=None), "column probability: is nan; expected"),
        (lambda rows: rows.assign(probability=rows.probability.round()), "so these are classes"),
        (
            lambda rows: pd.concat([rows, rows[3:4].assign(probability=0.123)]),
            "rows 4 and 1501 are equal in every column of the workload, and have probabilities",
        ),
        (lambda rows: rows[:0], "theirs.parquet: holds no record"),
    ],
    ids=["missing", "other", "column", "label", "range", "null", "classes", "twice", "empty"],
)
def test_a_table_that_is_not_of_the_test_split_ends_the_job(inputs, tmp_path, change, said):
    message = refusal(inputs, tmp_path / "job", give=their_table(change(scored(inputs))))
    assert re.search(said, message), message


def test_another_champion_is_scored_as_ever(inputs, tmp_path):
    def ours(folder: Path) -> None:
        shutil.copy(folder / "model/model.tar.gz", folder / "champion")

    root = tmp_path / "job"
    run(inputs, root, "--champion", ARN.replace("/7", "/8"), give=ours)
    found = evaluation(root)
    assert found["champion"]["metrics"] == found["metrics"]
    assert "scored_by" not in found["champion"]
