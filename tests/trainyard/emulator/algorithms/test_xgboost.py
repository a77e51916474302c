"""AWS's XGBoost algorithm without a script: in training jobs, and its parts alone."""

import io
import os
import pickle
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import botocore.exceptions
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import xgboost
from hypothesis import given
from hypothesis import strategies as st

from tests.trainyard.emulator.harness import Cloud, channel, cloud, training
from trainyard.emulator.algorithms.image.sagemaker_xgboost_container import training as in_image
from trainyard.emulator.algorithms.xgboost import channel_data as data
from trainyard.emulator.algorithms.xgboost import facts, train
from trainyard.emulator.algorithms.xgboost.hyperparameters import UserError, convert_hyperparameters
from trainyard.emulator.sagemaker.jobs import training_job
from trainyard.emulator.sagemaker.jobs.container_images import PACKAGES

pytestmark = pytest.mark.long

IMAGE = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:{}"
PYTORCH = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.6.0-cpu-py312"
FIRST = "811284229777.dkr.ecr.us-east-1.amazonaws.com/xgboost:latest"
NEW, OLD = (1, 7), (1, 0)
ROWS = 120


def table(seed: int, rows: int = ROWS) -> np.ndarray:
    """Return a label, 2 x0 + x1, and four features."""
    features = np.random.default_rng(seed).random((rows, 4))
    return np.column_stack([features @ [2, 1, 0, 0], features])


def as_csv(values: np.ndarray) -> str:
    return "\n".join(",".join(f"{value:.6f}" for value in row) for row in values) + "\n"


def as_libsvm(values: np.ndarray) -> str:
    lines = (
        " ".join([f"{row[0]:.6f}", *(f"{i}:{v:.6f}" for i, v in enumerate(row[1:]) if v)])
        for row in values
    )
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory):
    with cloud(tmp_path_factory.mktemp("aws")) as running:
        running.put("csv/train/a.csv", as_csv(table(1)))
        running.put("csv/validation/a.csv", as_csv(table(2, 60)))
        running.put("svm/train/a.svm", as_libsvm(table(1)))
        yield running


def request(image: str = IMAGE.format("1.7-1"), **more: Any) -> dict:
    channels = [
        channel(name, f"s3://bkt/csv/{name}/") | {"ContentType": "text/csv; label_size=1"}
        for name in ("train", "validation")
    ]
    values = {"num_round": "5", "objective": "reg:squarederror"}
    asked = training("") | {"HyperParameters": values, "InputDataConfig": channels, **more}
    asked["AlgorithmSpecification"] = {"TrainingImage": image, "TrainingInputMode": "File"}
    return asked


def run(aws: Cloud, name: str, image: str = IMAGE.format("1.7-1"), **more: Any) -> dict:
    return aws.train(name, "", **request(image, **more))


def model_of(aws: Cloud, name: str) -> bytes:
    archive = io.BytesIO(aws.get(f"models/{name}/output/model.tar.gz"))
    with tarfile.open(fileobj=archive) as tar:
        [member] = tar.getmembers()
        assert member.name == facts.MODEL
        return tar.extractfile(member).read()


def load_booster(model: bytes, tmp_path: Path) -> xgboost.Booster:
    path = tmp_path / "model"
    path.write_bytes(model)
    return xgboost.Booster(model_file=path)


def test_it_trains_and_says_its_metrics_as_aws_reads_them(aws: Cloud, tmp_path: Path) -> None:
    checkpoints = {"CheckpointConfig": {"S3Uri": "s3://bkt/checkpoints"}}
    done = run(aws, "plain", **checkpoints)
    assert done["TrainingJobStatus"] == "Completed", done.get("FailureReason")
    lines = aws.log("Training", "plain")
    rounds = [line for line in lines if line.startswith("[") and "#011" in line]
    assert len(rounds) == 5
    assert rounds[-1].startswith("[4]#011train-rmse:")
    found = {m["MetricName"]: m["Value"] for m in done["FinalMetricDataList"]}
    assert found.keys() == {"train:rmse", "validation:rmse"}
    names = {d["Name"] for d in done["AlgorithmSpecification"]["MetricDefinitions"]}
    assert {"train:mae", "validation:aucpr", "validation:f1"} <= names
    booster = load_booster(model_of(aws, "plain"), tmp_path)
    predicted = booster.predict(xgboost.DMatrix(table(2, 60)[:, 1:]))
    rmse = float(np.sqrt(np.mean((predicted - table(2, 60)[:, 0]) ** 2)))
    assert rmse == pytest.approx(found["validation:rmse"], abs=1e-4)
    assert found["validation:rmse"] < 0.5 * table(2, 60)[:, 0].std()
    run(aws, "goes-on", HyperParameters={"num_round": "7"}, **checkpoints)
    lines = aws.log("Training", "goes-on")
    assert [line.split("#")[0] for line in lines if "#011" in line] == ["[5]", "[6]"]


def test_libsvm_without_a_content_type_and_a_pickle_of_the_first_images(aws: Cloud) -> None:
    values = {"num_round": "3", "objective": "reg:linear", "silent": "0"}
    channels = [channel("train", "s3://bkt/svm/train")]
    done = run(aws, "old", FIRST, HyperParameters=values, InputDataConfig=channels)
    assert done["TrainingJobStatus"] == "Completed", done.get("FailureReason")
    assert "Train matrix has 120 rows and 4 columns" in "\n".join(aws.log("Training", "old"))
    assert pickle.loads(model_of(aws, "old")).num_boosted_rounds() == 3


def test_early_stopping_keeps_the_best_round(aws: Cloud, tmp_path: Path) -> None:
    values = {
        **{"num_round": "200", "early_stopping_rounds": "2", "eval_metric": "rmse,mae"},
        **{"eta": "1", "max_depth": "8", "_tuning_objective_metric": "validation:rmse"},
    }
    done = run(aws, "early", HyperParameters=values)
    rounds = [line for line in aws.log("Training", "early") if "#011" in line]
    assert 2 < len(rounds) < 200
    assert load_booster(model_of(aws, "early"), tmp_path).num_boosted_rounds() == len(rounds) - 2
    names = {m["MetricName"] for m in done["FinalMetricDataList"]}
    assert names == {"train:rmse", "validation:rmse", "train:mae", "validation:mae"}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, "Missing required hyperparameter: num_round"),
        ({"num_round": "2", "objective": "binary:logistic"},
         r"\[.*base_score must be in \(0,1\) .*"),
    ],
)  # fmt: skip
def test_what_the_algorithm_refuses_fails_the_job_in_its_words(
    aws: Cloud, values: dict[str, str], expected: str
) -> None:
    done = run(aws, f"bad-{len(values)}", HyperParameters=values)
    assert done["TrainingJobStatus"] == "Failed"
    kind = "sagemaker_algorithm_toolkit.exceptions.UserError"
    pattern = f"AlgorithmError: framework error: \n{kind}: {expected}, exit code: 1"
    assert re.fullmatch(pattern, done["FailureReason"]), done["FailureReason"]


@pytest.mark.parametrize(
    ("channels", "expected"),
    [
        ({"train": {}, "test": {}}, "Extraneous channel found: test"),
        ({"validation": {}}, "Missing required channel: train"),
    ],
)
def test_channels_that_the_algorithm_does_not_take(channels: dict, expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        train._check_channels(channels)


def test_what_is_not_done_here_is_refused_before_the_job_starts(aws: Cloud) -> None:
    recordio = channel("train", "s3://bkt/csv") | {"ContentType": "application/x-recordio-protobuf"}
    two = request()["ResourceConfig"] | {"InstanceCount": 2}
    for more, expected in (
        ({"InputDataConfig": [recordio]}, "recordio-protobuf is not read here"),
        ({"HyperParameters": {"num_round": "1", "_kfold": "5"}}, "cross validation"),
        ({"ResourceConfig": two}, "one instance here"),
    ):
        with pytest.raises(botocore.exceptions.ClientError, match=expected):
            aws.sm.create_training_job(TrainingJobName="refused", **request(**more))


def stand_in(aws: Cloud, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Let a script stand for the toolkit's command, in each job's /opt/ml."""

    def write(job: str, host: str, folder: Path) -> None:
        (folder / "train").write_text(script)
        (folder / "train").chmod(0o755)

    monkeypatch.setattr(training_job, "find_toolkit", lambda python: Path("/opt/ml/train"))
    monkeypatch.setattr(aws.endpoint.app.aws, "on_stage", write)


@pytest.mark.parametrize(("image", "name"), [(IMAGE.format("1.7-1"), "xgboost"),
                                             (PYTORCH, "pytorch")])  # fmt: skip
def test_a_script_is_run_by_the_toolkit_of_the_image(aws, monkeypatch, image: str, name: str):
    stand_in(aws, monkeypatch, "#!/bin/sh\necho module=$SAGEMAKER_TRAINING_MODULE\n")
    values = {"sagemaker_program": "train.py", "num_round": "x"}
    done = run(aws, f"script-{name}", image, HyperParameters=values)
    assert done["TrainingJobStatus"] == "Completed"
    expected = [f"module=sagemaker_{name}_container.training:main"]
    assert aws.log("Training", f"script-{name}") == expected


def test_a_script_reads_its_data_by_the_images_own_package(aws: Cloud, monkeypatch):
    script = f"""#!{sys.executable}
from sagemaker_xgboost_container.data_utils import get_dmatrix
for form in ("csv", "libsvm"):
    rows = get_dmatrix(f"/opt/ml/input/data/{{form}}", form)
    print(rows.num_row(), rows.num_col(), f"{{rows.get_label()[0]:.4f}}")
"""
    stand_in(aws, monkeypatch, script)
    places = {"csv": "s3://bkt/csv/train/", "libsvm": "s3://bkt/svm/train/"}
    more = {"InputDataConfig": [channel(form, place) for form, place in places.items()]}
    done = run(aws, "reads", HyperParameters={"sagemaker_program": "train.py"}, **more)
    assert done["TrainingJobStatus"] == "Completed", done.get("FailureReason")
    assert aws.log("Training", "reads") == [f"{ROWS} 4 {table(1)[0, 0]:.4f}"] * 2


def test_a_script_runs_its_training_on_all_hosts_that_have_data() -> None:
    """Train like AWS's own examples (abalone.py of amazon-sagemaker-examples)."""
    code = """
from sagemaker_containers import entry_point
from sagemaker_xgboost_container import distributed
entry_point._wait_hostname_resolution()
def train(rounds, is_master):
    print("trains, master", is_master)
for has_data in (True, False):
    distributed.rabit_run(
        exec_fun=train, args={"rounds": 3}, include_in_training=has_data, hosts=["algo-1"],
        current_host="algo-1", update_rabit_args=True,
    )
"""
    environment = os.environ | {"PYTHONPATH": str(PACKAGES)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines()[-1] == "trains, master True"
    assert "UserError" in done.stderr


def test_a_script_of_an_xgboost_image_may_be_named_as_a_module(monkeypatch: pytest.MonkeyPatch):
    ran = []
    job = SimpleNamespace(
        user_entry_point="abalone", module_dir="s3://b/s.tar.gz",
        to_cmd_args=lambda: ["--eta", "1"], to_env_vars=dict,
    )  # fmt: skip
    toolkit = ModuleType("sagemaker_training")
    toolkit.entry_point = SimpleNamespace(run=lambda *arguments: ran.append(arguments))
    toolkit.environment = SimpleNamespace(Environment=lambda: job)
    monkeypatch.setitem(sys.modules, "sagemaker_training", toolkit)
    in_image.main()
    assert ran == [("s3://b/s.tar.gz", "abalone.py", ["--eta", "1"], {})]


# hyperparameters


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"eta": "2"}, r"Hyperparameter eta: 2.0 is not in \[0, 1\]"),
        ({"subsample": "0"}, r"Hyperparameter subsample: 0.0 is not in \(0, 1\]"),
        ({"max_depth": "5.5"}, r"Hyperparameter max_depth: could not parse value \(caused by Val"),
        ({"silent": "0"}, "Extraneous hyperparameter found: silent"),
        ({"depth": "5"}, "Extraneous hyperparameter found: depth"),
        ({"objective": "mine"}, r"Hyperparameter objective: mine is not in \['aft"),
        ({"objective": "multi:softmax"}, "Require input for parameter 'num_class'"),
        ({"eval_metric": "auc"}, "Metric 'auc' can only be applied for classification"),
        ({"eval_metric": "rmse,mean"}, "Hyperparameter eval_metric: value"),
        ({"eval_metric": "auc@3"}, "Metric 'auc@3' is not supported"),
        ({"eval_metric": "error@x"}, "expects float input"),
        ({"monotone_constraints": "(1,0)"}, "monotone_constraints can be used only when"),
        ({"monotone_constraints": "1"}, "monotone_constraints: value 1 not in range"),
        ({"interaction_constraints": "[1]"}, "interaction_constraints: value .1. not in range"),
        ({"updater": "mine"}, "updater: value .*mine.* not in range"),
    ],
)
def test_hyperparameters_out_of_range(given: dict[str, str], expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        convert_hyperparameters({"num_round": "1"} | given, NEW)


def test_hyperparameters_are_typed_and_go_by_their_own_names() -> None:
    given = {"num_round": "10", "learning_rate": "0.2", "eval_metric": "rmse,error@0.7"}
    expected = {"num_round": 10, "eta": 0.2, "eval_metric": ["rmse", "error@0.7"], "silent": 0}
    assert convert_hyperparameters(given | {"silent": "0"}, OLD) == expected


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (IMAGE.format("1.0-1-cpu-py3"), (1, 0)),
        (IMAGE.format("0.90-2"), (0, 90)),
        (IMAGE.format("3.0-5"), (3, 0)),
        (FIRST, (0, 72)),
        ("x/sagemaker-xgboost@sha256:ab", (99, 0)),
    ],
)
def test_an_images_version(image: str, expected: tuple[int, int]) -> None:
    assert facts.parse_version(image) == expected


# data


@given(st.integers(1, 6), st.integers(2, 5), st.randoms())
def test_csv_and_libsvm_give_what_was_written(rows: int, columns: int, random: Any) -> None:
    values = np.array(
        [[random.choice([0, 1.5, -2, 1e-3]) for _ in range(columns)] for _ in range(rows)]
    )
    values[:, -1] = 1  # libsvm does not name a last column of zeros
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "a").write_text(as_csv(values))
        written = data.read_channel(place, facts.CSV, has_weights=False)
        (place / "a").write_text(as_libsvm(values))
        sparse = data.read_channel(place, facts.LIBSVM, has_weights=False)
    for found in (written, sparse):
        dense = found.features if found is written else found.features.toarray()
        np.testing.assert_array_equal(dense, values[:, 1:].astype(np.float32))
        np.testing.assert_array_equal(found.label, values[:, 0].astype(np.float32))


def read_text(folder: Path, text: str, form: str = facts.CSV, weighted: bool = False) -> data.Rows:
    (folder / "a").write_text(text)
    return data.read_channel(folder, form, weighted)


def test_empty_cells_and_words_are_missing_and_a_second_column_can_be_weights(tmp_path, capsys):
    rows = read_text(tmp_path, "1,0.5,,x\n0,2,3,4\n", weighted=True)
    np.testing.assert_array_equal(rows.features, [[np.nan, np.nan], [3, 4]])
    assert (rows.label.tolist(), rows.weight.tolist()) == ([1, 0], [0.5, 2])
    assert "cells that are empty or not numbers count as missing" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "form", "expected"),
    [
        ("rings,sex\n1,2\n", facts.CSV, "row 1 has no number as its label"),
        ("1,2\n1,2,3\n", facts.CSV, "Line #2 .got 3 columns instead of 2"),
        ("1 0:2 x\n", facts.LIBSVM, "Line 1 '1 0:2 x...' of file 'a' is not 'LIBSVM' format"),
        ("a,b\n", facts.PARQUET, "Failed to load parquet data"),
    ],
)
def test_files_that_cannot_be_read_are_named(tmp_path, text: str, form: str, expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        read_text(tmp_path, text, form)


def test_libsvm_with_weights_and_parquet(tmp_path: Path) -> None:
    weighted = read_text(tmp_path, "1:0.5 0:2\n0 3:1\n", facts.LIBSVM)
    assert (weighted.features.shape, weighted.weight.tolist()) == ((2, 4), [0.5, 1])
    table = pyarrow.table({"label": [1, 0], "x": [0.5, 2.5]})
    pyarrow.parquet.write_table(table, tmp_path / "a")
    rows = data.read_channel(tmp_path, facts.PARQUET, has_weights=False)
    assert (rows.features.tolist(), rows.label.tolist()) == ([[0.5], [2.5]], [1, 0])


def test_markers_and_hidden_files_are_no_data(tmp_path: Path) -> None:
    (tmp_path / "_SUCCESS").write_text("x")
    (tmp_path / ".a").write_text("x")
    assert data.read_channel(tmp_path, facts.CSV, has_weights=False) is None
