"""The flights recipe on the emulator, small: tables in two formats become a registered model."""

import io
import json
import re
import tarfile

import numpy as np
import pandas as pd
import pytest

from pipelines.corpora.nycflights13 import encode_month, find_data_folder, join_tables
from steps.shard.record_hashes import compute_split
from tests.conftest import process
from tests.trainyard.emulator.standin import make_client
from trainyard.common.safe_unpack import unpack_tar

pytestmark = pytest.mark.slow

BUCKET = "trainyard-laptop"
BROKEN = "has 2 fields, the header has 27"
SMALL = [
    "train.instance_count=1",
    "workload.config.hidden=[32]",
    "shard.validation_share=0.2",
    "shard.test_share=0.2",
    "train.loop.max_steps=40",
    "train.loop.warmup_steps=5",
    "train.loop.global_batch=256",
    "train.loop.micro_batch=128",
    "train.loop.validation_samples=500",
    "gate={max_log_loss: 1.0}",
    "transform={input: s3://trainyard-laptop/new, keep: [flight], max_bad_share: 0.05,"
    " instance_count: 2}",
]


@pytest.fixture(scope="module")
def flights() -> pd.DataFrame:
    """4,000 flights of the whole year."""
    folder = find_data_folder()
    names = ("flights.csv.zip", "weather.csv", "planes.csv")
    flights, weather, planes = (pd.read_csv(folder / name) for name in names)
    arrived = flights[flights["arr_delay"].notna()].sample(4000, random_state=0)
    return join_tables(arrived, weather, planes)


@pytest.fixture(scope="module")
def s3(emulator):
    return make_client(emulator, "s3")


@pytest.fixture(scope="module")
def ran(flights, emulator, s3, tmp_path_factory):
    """Uploaded, upserted, started, watched to the end."""
    s3.create_bucket(Bucket=BUCKET)
    for month, rows in flights.groupby("month"):
        name, content = encode_month(month, rows)
        s3.put_object(Bucket=BUCKET, Key=f"raw/nycflights13/{name}", Body=content)
    for start in (0, 50):
        text = flights[start : start + 50].drop(columns=["arr_delay", "date"]).to_csv(index=False)
        s3.put_object(Bucket=BUCKET, Key=f"new/{start}.csv", Body=f"{text}a,line\n".encode())
    settings = [word for setting in SMALL for word in ("--set", setting)]
    given = ["--recipe", "recipes/flights.yaml", *settings, "--start", "--wait"]
    return process(emulator, tmp_path_factory.mktemp("home"), "upsert", *given)


@pytest.fixture(scope="module")
def outputs(ran, s3) -> dict[str, bytes]:
    """Everything that the run left in S3, by key below the run, which registered a model."""
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "model-package/trainyard-flights/1" in ran.stdout
    execution = re.search(r"execution/(\w+)", ran.stdout)[1]
    prefix = f"trainyard/trainyard-flights/runs/{execution}/"
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
    keys = [item["Key"] for page in pages for item in page["Contents"]]
    return {
        key.removeprefix(prefix): s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()
        for key in keys
    }


def test_every_flight_is_in_one_split_with_its_whole_day(outputs, flights):
    expected = flights["date"].map(
        {d: compute_split(d, 0.2, 0.2) for d in flights["date"].unique()}
    )
    for split in ("train", "validation", "test"):
        name = re.compile(rf"{split}/manifest-algo-\d.json$")
        [manifest] = [json.loads(body) for key, body in outputs.items() if name.search(key)]
        assert sum(manifest["shards"]["samples"]) == (expected == split).sum()


def test_the_model_knows_the_means_of_the_training_days_and_no_others(outputs, flights):
    [archive] = [body for key, body in outputs.items() if key.endswith("model.tar.gz")]
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        features = json.load(tar.extractfile("features.json"))
    days = flights["date"].map(lambda date: compute_split(date, 0.2, 0.2))
    train = flights[days == "train"]
    for name, number in features["numbers"].items():
        column = train[name].astype(np.float32).astype(float)
        assert number["mean"] == pytest.approx(column.mean(), rel=1e-6), name
        assert number["standard_deviation"] == pytest.approx(column.std(), rel=1e-6), name
    common = train["dest"].value_counts()
    assert set(features["categories"]["dest"]["values"]) == set(common[common >= 10].index)


def test_the_evaluation_compares_with_all_baselines(outputs):
    [body] = [body for key, body in outputs.items() if key.endswith("evaluation.json")]
    evaluation = json.loads(body)
    assert set(evaluation["baselines"]) == {"boosted_trees", "logistic_regression", "base_rate"}
    for metric in ("log_loss", "auc", "accuracy", "brier"):
        assert evaluation["metrics"][metric]["standard_error"] > 0
        assert all(metric in values for values in evaluation["baselines"].values())
    base_rate = evaluation["baselines"]["base_rate"]
    assert evaluation["baselines"]["logistic_regression"]["log_loss"] < base_rate["log_loss"]
    assert evaluation["metrics"]["auc"]["value"] > 0.6


def test_new_flights_are_scored_as_an_endpoint_of_the_model_would(outputs, flights, tmp_path):
    """The label and the day are not known yet; each of two instances scores one of two files."""
    from training.export.inference import load_served_model

    [archive] = [body for key, body in outputs.items() if key.endswith("model.tar.gz")]
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        unpack_tar(tar, tmp_path)
    served = load_served_model(tmp_path)
    found = {key: body for key, body in outputs.items() if key.startswith("transform/")}
    for start in (0, 50):
        lines = [json.loads(x) for x in found[f"transform/scores/{start}.csv.jsonl"].splitlines()]
        kept = [line["kept"]["flight"] for line in lines]
        assert kept == flights["flight"][start : start + 50].astype(str).tolist()
        for line in lines[:5]:
            assert line["answer"] == served.answer({"record": line["input"]})
    summaries = [json.loads(body) for key, body in found.items() if "summary" in key]
    assert [(one["records"], one["scored"]) for one in summaries] == [(51, 50)] * 2
    bad = [json.loads(body) for key, body in found.items() if re.search(r"quarantine/\w+\.j", key)]
    assert [(one["line"], one["reason"]) for one in bad] == [(52, BROKEN)] * 2
