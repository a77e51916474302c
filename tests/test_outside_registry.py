"""Somebody's scikit-learn model, Approved in their group, takes part in our gate and is succeeded.

Their group holds packages of their own making; the flights recipe registers in it.
"""

import io
import json
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import joblib
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier

from tests.conftest import clean_environment
from tests.test_flights import BUCKET, SMALL, flights, s3  # noqa: F401 (fixtures)
from tests.trainyard.emulator.standin import make_client

pytestmark = pytest.mark.sweep

GROUP = "their-flights"
NUMBERS = ["hour", "departure_minute", "distance", "wind_gust", "precip", "visib"]
SCRIPT = f"""
import io, os, joblib, pandas as pd
def model_fn(model_dir):
    return joblib.load(os.path.join(model_dir, "model.joblib"))
def input_fn(body, content_type):
    return pd.read_csv(io.StringIO(body), names={NUMBERS})
def predict_fn(rows, model):
    return model.predict_proba(rows)
"""


@pytest.fixture(scope="module")
def theirs(flights: pd.DataFrame):  # noqa: F811
    rows = flights[NUMBERS].astype(float)
    return HistGradientBoostingClassifier(max_iter=15).fit(rows, flights["arr_delay"] > 15)


@pytest.fixture(scope="module")
def package(emulator, s3, flights, theirs) -> str:  # noqa: F811
    """ARN of their Approved package."""
    from pipelines.corpora.nycflights13 import month_object

    s3.create_bucket(Bucket=BUCKET)
    for month, rows in flights.groupby("month"):
        name, content = month_object(month, rows)
        s3.put_object(Bucket=BUCKET, Key=f"raw/nycflights13/{name}", Body=content)
    model, archive = io.BytesIO(), io.BytesIO()
    joblib.dump(theirs, model)
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        member = tarfile.TarInfo("model.joblib")
        member.size = len(model.getvalue())
        tar.addfile(member, io.BytesIO(model.getvalue()))
    s3.put_object(Bucket=BUCKET, Key="theirs/model.tar.gz", Body=archive.getvalue())
    sagemaker = client(emulator)
    sagemaker.create_model_package_group(ModelPackageGroupName=GROUP)
    image = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-scikit-learn:1.2-1-cpu-py3"
    return sagemaker.create_model_package(
        ModelPackageGroupName=GROUP,
        ModelApprovalStatus="Approved",
        CustomerMetadataProperties={"owner": "data-science"},
        InferenceSpecification={
            "Containers": [{"Image": image, "ModelDataUrl": f"s3://{BUCKET}/theirs/model.tar.gz"}],
            "SupportedContentTypes": ["text/csv"],
            "SupportedResponseMIMETypes": ["text/csv"],
        },
    )["ModelPackageArn"]


def client(emulator):
    return make_client(emulator, "sagemaker")


def verb(emulator, home: Path, name: str, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", f"pipelines.{name}", *words],
        env=clean_environment() | emulator.env | {"HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def settings(champion: str) -> list[str]:
    given = [
        *SMALL[:-1],
        f"register.model_package_group={GROUP}",
        "gate={max_log_loss: 1.0, non_inferiority: {log_loss: 0.2}}",
        f"champion={champion}",
    ]
    return ["--recipe", "recipes/flights.yaml", *(w for one in given for w in ("--set", one))]


def test_their_model_is_the_champion_by_table_and_by_script(
    emulator, s3, flights, theirs, package, tmp_path  # noqa: F811
):  # fmt: skip
    rows = flights.assign(probability=theirs.predict_proba(flights[NUMBERS].astype(float))[:, 1])
    rows.to_csv(tmp_path / "theirs.csv", index=False)
    (tmp_path / "inference.py").write_text(SCRIPT)
    named = f"model_package: '{package}'"
    ways = {
        "scores": f"{{{named}, scores: '{tmp_path}/theirs.csv'}}",
        "script": f"{{{named}, script: '{tmp_path}/inference.py', columns: [{','.join(NUMBERS)}]}}",
    }
    found = {}
    for kind, champion in ways.items():
        said = verb(emulator, tmp_path, "upsert", *settings(champion), "--start", "--wait")
        assert f"champion {package}" in said
        execution = re.search(r"execution/(\w+)", said)[1]
        key = f"trainyard/trainyard-flights/runs/{execution}/gate/gate/provenance.json"
        record = json.loads(s3.get_object(Bucket=BUCKET, Key=key)["Body"].read())
        assert record["champion"] == package and record["champion_scored_by"]["kind"] == kind
        key = key.replace("gate/gate/provenance", "evaluate/evaluation/evaluation")
        found[kind] = json.loads(s3.get_object(Bucket=BUCKET, Key=key)["Body"].read())
    first, second = (one["champion"]["metrics"]["log_loss"]["value"] for one in found.values())
    assert first == pytest.approx(second, rel=1e-6)
    arn = f"{package.removesuffix('/1')}/3"
    assert arn in said
    assert "scores" in verb(emulator, tmp_path, "verify", arn)
    said = verb(emulator, tmp_path, "approve", arn, "--reason", "small")
    assert f"compared with {package}" in said and f"champion: {arn}" in said
