"""A champion of another pipeline in the definition: its table, checked at once; its script."""

import json
from pathlib import Path

import boto3
import pandas as pd
import pytest

from pipelines.definition import build
from pipelines.recipe.aws_account import resolve
from pipelines.recipe.read_recipe import load
from pipelines.registry.champion import champion_parameters
from steps.evaluate.job import parse
from tests.conftest import CHECKOUT
from tests.training.workloads.tabular.tables import SETTINGS, table
from trainyard.common.errors import DefinitionError, ServiceError

ARN = "arn:aws:sagemaker:us-east-1:123456789012:model-package/theirs/7"
TABULAR = [
    f"workload={{name: tabular, config: {json.dumps(SETTINGS)}}}",
    "evaluate={slices: []}",
    "shard.unique=[]",
    "gate={max_log_loss: 1.0, non_inferiority: {log_loss: 0.01}}",
]


def compiled(home: Path, given: str, recipe: str = "recipes/flights.yaml", sets=TABULAR):
    found = load(CHECKOUT / recipe, [*sets, f"champion={{model_package: '{ARN}', {given}}}"])
    return build(found, resolve(found.aws), commit="0" * 40, source=None, home=home)


def evaluate_of(pipeline) -> dict:
    steps = json.loads(pipeline.body)["Steps"]
    return next(step for step in steps if step["Name"] == "Evaluate")["Arguments"]


def options_of(given: dict):
    """What the job understands of its arguments."""
    words = given["AppSpecification"]["ContainerArguments"]
    return parse([word if isinstance(word, str) else "none" for word in words])


def scored() -> pd.DataFrame:
    return table(50).assign(probability=[(n % 9) / 10 for n in range(50)])


def test_a_table_beside_the_recipe_travels_with_the_code(tmp_path):
    scored().to_csv(tmp_path / "theirs.csv", index=False)
    pipeline = compiled(tmp_path, "scores: theirs.csv")
    given = evaluate_of(pipeline)
    uris = {one["InputName"]: one["S3Input"]["S3Uri"] for one in given["ProcessingInputs"]}
    [asset] = [one for one in pipeline.assets if one.uri == uris["champion_scores"]]
    assert list(asset.files) == ["theirs.csv"]
    assert options_of(given).outside == ARN and options_of(given).outside_script is None


def test_a_script_travels_with_its_folder_and_its_requirements(tmp_path):
    (tmp_path / "theirs").mkdir()
    for name, text in (("inference.py", "pass"), ("requirements.txt", "xgboost\n")):
        (tmp_path / "theirs" / name).write_text(text)
    given = evaluate_of(compiled(tmp_path, "script: theirs/inference.py, columns: [weight, size]"))
    options = options_of(given)
    assert (options.outside_script, options.outside_type) == ("inference.py", "text/csv")
    assert options.outside_columns == ["weight", "size"]
    assert given["Environment"]["SCRIPT_REQUIREMENTS"] == "requirements.txt"
    assert "script" in {one["InputName"] for one in given["ProcessingInputs"]}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (scored().assign(probability=2), "champion.scores: theirs.csv: row 1: column probability"),
        (scored().drop(columns="size"), "champion.scores: .*size"),
        (pd.concat([scored(), scored().assign(probability=0.95)]), "are equal in every column"),
    ],
)
def test_a_wrong_table_is_named_before_anything_is_uploaded(tmp_path, rows, said):
    rows.to_csv(tmp_path / "theirs.csv", index=False)
    with pytest.raises(DefinitionError, match=said):
        compiled(tmp_path, "scores: theirs.csv")


def test_a_table_that_is_missing_or_of_another_kind_is_named(tmp_path):
    with pytest.raises(DefinitionError, match="champion.scores: .*theirs.csv is not a file"):
        compiled(tmp_path, "scores: theirs.csv")
    (tmp_path / "theirs.xlsx").write_bytes(b"x")
    with pytest.raises(DefinitionError, match="raw data of this suffix cannot be read"):
        compiled(tmp_path, "scores: theirs.xlsx")


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"example": 1, "accuracy": 1}], "has no column log_loss"),
        ([{"example": 1, "log_loss": 1}] * 2, "both are 1; one row per example"),
        ([{"example": 1, "log_loss": None}], "line 1: column log_loss: is None"),
    ],
)
def test_the_rows_of_a_script_are_checked_likewise(tmp_path, rows, said):
    file = tmp_path / "theirs.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    recipe = "tests/somebodys/recipe.yaml"
    with pytest.raises(DefinitionError, match=f"champion.scores: .*{said}"):
        compiled((CHECKOUT / recipe).parent, f"scores: '{file}'", recipe, [])


@pytest.mark.long
def test_a_table_in_s3_must_be_there_when_a_run_starts(emulator, monkeypatch, tmp_path):
    for name, value in emulator.env.items():
        monkeypatch.setenv(name, value)
    sagemaker, s3 = (boto3.client(n, region_name="us-east-1") for n in ("sagemaker", "s3"))
    pipeline = json.loads(compiled(tmp_path, "scores: 's3://theirs/scores.parquet'").body)
    s3.create_bucket(Bucket="theirs")
    with pytest.raises(ServiceError, match="champion.scores: s3://theirs/scores.parquet is not th"):
        champion_parameters(sagemaker, pipeline, {}, ARN)
    s3.put_object(Bucket="theirs", Key="scores.parquet", Body=b"x")
    assert champion_parameters(sagemaker, pipeline, {}, ARN) == {"ChampionArn": ARN}
