"""Frames of what really ran: each row's values and dtypes, by the service alone."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas
import pytest

from tests.trainyard.emulator.harness import Cloud, fail_step, process_step, train_step
from trainyard import runs
from trainyard.common.errors import ServiceError, TrainyardError
from trainyard.emulator.client_environment import applied
from trainyard.plan.prices import load

TIME = "datetime64[ns, UTC]"
PARAMETERS = [
    {"Name": "Epochs", "Type": "Integer", "DefaultValue": 2},
    {"Name": "Rate", "Type": "Float", "DefaultValue": 0.5},
    {"Name": "Warm", "Type": "Boolean", "DefaultValue": True},
    {"Name": "Team", "Type": "String", "DefaultValue": "7"},
]
MEASURED = [{"Name": "loss", "Regex": r"loss=(\S+)"}]
LOG = "echo step=1 loss=0.5; echo step=2 loss=nan; echo step=3 loss=0.25"
REPORT = {"accuracy": {"value": 0.75}, "name": "a", "ok": True, "by class": [1, 0.5]}
CACHED = {"CacheConfig": {"Enabled": True, "ExpireAfter": "P1D"}}


@pytest.fixture(scope="module")
def cloud(emulator, state: Path) -> Iterator[Cloud]:
    with applied(emulator.env):
        yield Cloud(emulator, state)


@pytest.fixture(scope="module")
def ran(cloud: Cloud) -> list[str]:
    """Two executions, of which the second takes all from the first; and one that failed."""
    assert (runs.frame().empty, runs.frame().dtypes["started"]) == (True, TIME)  # before any is
    train = train_step("Train", LOG, **CACHED)
    train["Arguments"]["AlgorithmSpecification"]["MetricDefinitions"] = MEASURED
    evaluate = process_step(
        "Evaluate",
        f"echo '{json.dumps(REPORT)}' > /opt/ml/processing/report/report.json",
        outputs={"report": "s3://bkt/report"},
        PropertyFiles=[
            {"PropertyFileName": "Report", "OutputName": "report", "FilePath": "report.json"}
        ],
        **CACHED,
    )
    cloud.create("Framed", [train, evaluate, _register()], Parameters=PARAMETERS)
    other = [{"Name": "Epochs", "Type": "String", "DefaultValue": "few"}]
    cloud.create("Broken", [fail_step("Give-up", "no data today")], Parameters=other)
    arns = []
    for name, given in (
        ("Framed", {}),
        ("Framed", {"Rate": "0.25", "Warm": "false"}),
        ("Broken", {}),
    ):
        arns.append(cloud.start(name, given))
        cloud.ended(arns[-1])
    return arns


def _register() -> dict:
    image = {"Image": "i", "ModelDataUrl": {"Get": "Steps.Train.ModelArtifacts.S3ModelArtifacts"}}
    arguments = {
        "ModelPackageGroupName": "framed",
        "CustomerMetadataProperties": {"auc": "0.875", "commit": "12e45678"},
        "ModelMetrics": {
            "ModelQuality": {
                "Statistics": {
                    "ContentType": "application/json",
                    "S3Uri": "s3://bkt/report/report.json",
                }
            }
        },
        "InferenceSpecification": {
            "Containers": [image],
            "SupportedContentTypes": ["application/json"],
            "SupportedResponseMIMETypes": ["application/json"],
        },
    }
    return {
        "Name": "Register",
        "Type": "RegisterModel",
        "Arguments": arguments,
        "DependsOn": ["Evaluate"],
    }


def test_a_frame_has_a_row_for_each_execution_with_typed_parameters(cloud: Cloud, ran: list[str]):
    found = runs.frame("Framed")
    assert list(found.execution) == [ran[1], ran[0]]  # the newest first
    assert set(found.pipeline) == {"Framed"} and set(found.status) == {"Succeeded"}
    assert found.dtypes[["started", "ended"]].eq(TIME).all()
    assert (found.seconds == (found.ended - found.started).dt.total_seconds()).all()
    given = found.filter(like="parameters.").iloc[0]
    assert given.to_dict() == {
        "parameters.Epochs": 2,
        "parameters.Rate": 0.25,
        "parameters.Warm": False,
        "parameters.Team": "7",
    }
    kinds = {"Epochs": "Int64", "Rate": "float64", "Warm": "boolean", "Team": "string"}
    assert {name: str(found.dtypes[f"parameters.{name}"]) for name in kinds} == kinds


def test_all_pipelines_share_a_frame_and_a_parameter_of_two_types_is_text(ran: list[str]):
    found = runs.frame().set_index("execution")
    assert list(found.index) == ran[::-1]
    failed = found.loc[ran[2]]
    assert (failed.pipeline, failed.status) == ("Broken", "Failed")
    assert failed.reason.endswith("Give-up: no data today")
    assert list(found["parameters.Epochs"]) == ["few", "2", "2"]
    assert pandas.isna(failed["parameters.Rate"]) and found["parameters.Rate"].dtype == "float64"


def test_a_step_costs_what_its_machine_does_and_nothing_from_the_cache(ran: list[str]):
    found = runs.steps("Framed").set_index(["execution", "step"])
    first, again = found.loc[ran[0]], found.loc[ran[1]]
    assert first.type.to_dict() == {
        "Train": "Training",
        "Evaluate": "Processing",
        "Register": "RegisterModel",
    }
    machine = load("us-east-1").hourly("training", "ml.m5.large")
    assert machine and 0 < first.usd["Train"] < machine.usd * 60 / 3600
    assert (first.usd["Register"], again.usd["Train"]) == (0, 0)
    assert list(again.cached[["Train", "Evaluate"]]) == [True, True]
    assert first.attempts.eq(1).all() and first.job.notna()["Train"]
    broken = runs.steps(ran[2])
    assert list(broken.reason) == ["no data today"] and broken.job.isna().all()


def test_metrics_are_the_latest_values_and_the_series_all_of_them(ran: list[str]):
    (last,) = runs.metrics([ran[0]]).itertuples()
    assert (last.step, last.metric, last.value, last.source) == (
        "Train",
        "loss",
        0.25,
        "last values",
    )
    series = runs.metrics(runs.frame("Framed").execution, series=True)
    assert set(series.source) == {"log"} and series.dtypes["time"] == TIME
    mine = series[series.execution == ran[0]]
    assert list(mine.training_step) == [1, 2, 3]
    assert mine.value.isna().tolist() == [False, True, False]


def test_scores_are_numbers_of_property_files_and_of_packages(cloud: Cloud, ran: list[str]):
    found = runs.scores(ran[0])
    report = found[found.source == "Report"].set_index("score").value
    assert report.to_dict() == {"accuracy.value": 0.75, "by class.0": 1, "by class.1": 0.5}
    package = found[found.step == "Register"]
    assert package.source.str.contains(":model-package/framed/").all()
    assert package.set_index("score").value.to_dict() == {"auc": 0.875, "accuracy": 0.75}


def test_what_has_nothing_in_it_has_the_same_columns(ran: list[str]):
    for read, some in ((runs.metrics, ran[0]), (runs.scores, ran[0]), (runs.steps, ran[0])):
        assert read([]).dtypes.equals(read(some).dtypes)
    assert runs.metrics(ran[2]).empty
    with pytest.raises(ServiceError, match="Missing"):
        runs.frame("Missing")


def test_pandas_is_loaded_by_frames_alone_and_missed_in_words(monkeypatch: pytest.MonkeyPatch):
    code = (
        "import sys, trainyard.runs.live_watch, trainyard.runs.data_frames; "
        "print('pandas' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout == "False\n"
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(TrainyardError, match=r"pip install pandas"):
        runs.frame()
