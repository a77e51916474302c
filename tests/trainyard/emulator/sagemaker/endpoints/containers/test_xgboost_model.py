"""Servers of AWS's XGBoost and scikit-learn images: their answers alone, and two endpoints."""

import importlib
import os
import pickle
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import xgboost
from sklearn.linear_model import LinearRegression

from tests.trainyard.emulator.harness import ROLE, Cloud
from tests.trainyard.emulator.sagemaker.builders import archive, wait_for_transform
from tests.trainyard.emulator.sagemaker.endpoints.test_endpoints import config, in_service, invoke
from trainyard.emulator.sagemaker.endpoints.model_containers import SCRIPTS

pytestmark = pytest.mark.long

X = np.random.default_rng(0).random((60, 3))
Y = X @ [1, 2, 0]
XGBOOST = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:{}"
SKLEARN = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-scikit-learn:1.2-1-cpu-py3"
TWO = "0.1,0.2,0.3\n0.9,,0.3\n"
ONE_MORE = "1:0.1 2:0.2 3:0.3"
"""A row of libsvm whose columns count from one."""


@pytest.fixture(scope="module")
def booster() -> xgboost.Booster:
    return xgboost.train({}, xgboost.DMatrix(X, label=Y), 3)


@pytest.fixture
def served_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setenv("SAGEMAKER_BASE_DIR", str(tmp_path))
    monkeypatch.setenv("TRAINYARD_IMAGE", XGBOOST.format("1.7-1"))
    monkeypatch.syspath_prepend(SCRIPTS)
    (tmp_path / "model").mkdir()
    yield importlib.import_module("xgboost_model")
    for name in ("xgboost_model", "script_mode", "http_front"):
        sys.modules.pop(name, None)


def answer(
    served: ModuleType, booster: xgboost.Booster, body: str, kind: str, pickled: bool = False
):
    """Return status and text of the answer of the image's server to a body of that kind."""
    folder, tag = Path(served.http_front.MODEL), os.environ["TRAINYARD_IMAGE"]
    data = pickle.dumps(booster) if pickled else booster.save_raw()
    (folder / "xgboost-model").write_bytes(data)
    found = served.make_request_handler(served.Model(folder, tag), tag)(
        body.encode(), {"Content-Type": kind}
    )
    return found[0], found[1].decode()


def test_the_first_images_put_all_into_one_line_and_a_transform_one_a_line(
    served_module: ModuleType, booster: xgboost.Booster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINYARD_IMAGE", XGBOOST.format("1.2-1"))
    assert answer(served_module, booster, TWO, "csv")[1].count(",") == 1
    monkeypatch.setenv("TRAINYARD_IMAGE", XGBOOST.format("1.2-2"))
    assert answer(served_module, booster, TWO, "csv")[1].count("\n") == 2
    monkeypatch.setenv("SAGEMAKER_BATCH", "true")
    assert answer(served_module, booster, TWO, "csv")[1].count("\n") == 2


def test_libsvm_that_counts_from_one_has_a_column_more_before_3_0(
    served_module, booster, monkeypatch
):
    """XGBoost 1.0 ignores the additional column, as its handlers.py shows."""
    monkeypatch.setenv("TRAINYARD_IMAGE", XGBOOST.format("1.2-1"))
    for pickled in (False, True):
        status, said = answer(served_module, booster, ONE_MORE, "text/libsvm", pickled)
        assert (status, "Unable to evaluate payload provided" in said) == (400, True), said
    status, said = answer(served_module, booster, "0.1", "text/csv", pickled=True)
    assert (status, "Feature size of csv inference data 1 is not" in said) == (400, True)
    monkeypatch.setenv("TRAINYARD_IMAGE", XGBOOST.format("3.0-5"))
    new = answer(served_module, booster, ONE_MORE, "text/libsvm")
    assert new == answer(served_module, booster, "0:0.1 1:0.2 2:0.3", "text/libsvm")
    assert new[0] == 200


def test_scripts_of_images_before_3_0_read_libsvm_by_xgboosts_parser(
    served_module: ModuleType,
) -> None:
    matrix = served_module.encoder.decode(b"1:1 0:2 2:3\n0 1:4\n", "text/libsvm; charset=utf-8")
    assert (matrix.num_row(), matrix.num_col()) == (2, 3)
    assert matrix.get_data().toarray().tolist() == [[2, 0, 3], [0, 4, 0]]


def test_several_boosters_are_refused(served_module: ModuleType) -> None:
    folder = Path(served_module.http_front.MODEL)
    for name in ("xgboost-model-0", "xgboost-model-1"):
        (folder / name).write_bytes(b"")
    with pytest.raises(ValueError, match="an ensemble .* is not supported here"):
        served_module.Model(folder, XGBOOST.format("3.0-5"))


def test_a_binary_model_that_this_xgboost_does_not_read_is_named(served_module: ModuleType) -> None:
    path = Path(served_module.http_front.MODEL) / "xgboost-model"
    path.write_bytes(b"binf" + bytes(range(256)))
    with pytest.raises(ValueError, match="pip install 'xgboost-cpu<3.1'"):
        served_module._load_booster(path)


@pytest.mark.slow
def test_endpoints_of_the_algorithm_and_of_a_sklearn_model_whose_code_is_in_s3(aws: Cloud, booster):
    rows = np.array([[0.1, 0.2, 0.3], [0.9, 0.1, 0.3]])
    linear = LinearRegression().fit(X, Y)
    script = "import pickle\ndef model_fn(d): return pickle.load(open(d + '/xgboost-model', 'rb'))"
    code = aws.put("code/sourcedir.tar.gz", archive({"serve_it.py": script}))
    own_code = {"SAGEMAKER_PROGRAM": "serve_it.py", "SAGEMAKER_SUBMIT_DIRECTORY": code}
    expected = {
        "trees": booster.predict(xgboost.DMatrix(rows)).tolist(),
        "linear": linear.predict(rows).tolist(),
    }
    for name, image, saved, environment in (
        ("trees", XGBOOST.format("1.7-1"), bytes(booster.save_raw()), {}),
        ("linear", SKLEARN, pickle.dumps(linear), own_code),
    ):
        data = aws.put(f"{name}/model.tar.gz", archive({"xgboost-model": saved}))
        container = {"Image": image, "ModelDataUrl": data, "Environment": environment}
        aws.sm.create_model(ModelName=name, PrimaryContainer=container, ExecutionRoleArn=ROLE)
        config(aws, name, {name: 1.0})
        aws.sm.create_endpoint(EndpointName=name, EndpointConfigName=name)
    body, csv = "0.1,0.2,0.3\n0.9,0.1,0.3", {"ContentType": "text/csv", "Accept": "text/csv"}
    for name, predicted in expected.items():
        in_service(aws, name)
        lines = invoke(aws, name, body, **csv)[0].split()
        assert [float(line) for line in lines] == pytest.approx(predicted, rel=1e-6)


@pytest.mark.slow
def test_a_transform_of_libsvm_that_counts_from_one_is_too_wide_from_xgboost_1_2_on(aws, booster):
    """As AWS's example transforms AWS's own batch file, which XGBoost 1.0 reads."""
    data = aws.put("batch/model.tar.gz", archive({"xgboost-model": pickle.dumps(booster)}))
    source = {"S3DataType": "S3Prefix", "S3Uri": aws.put("batch/in/rows", ONE_MORE)}
    container = {"Image": XGBOOST.format("1.2-1"), "ModelDataUrl": data}
    aws.sm.create_model(ModelName="wide", PrimaryContainer=container, ExecutionRoleArn=ROLE)
    aws.sm.create_transform_job(
        TransformJobName="wide",
        ModelName="wide",
        TransformInput={"DataSource": {"S3DataSource": source}},
        TransformOutput={"S3OutputPath": "s3://bkt/batch/out"},
        TransformResources={"InstanceType": "ml.m5.large", "InstanceCount": 1},
    )
    done = wait_for_transform(aws, "wide")
    assert done["TransformJobStatus"] == "Failed"
    reason = done["FailureReason"]
    assert "(3 vs. 4) : Number of columns does not match number of features" in reason
    assert "Stack trace" not in reason and ".so" not in reason
