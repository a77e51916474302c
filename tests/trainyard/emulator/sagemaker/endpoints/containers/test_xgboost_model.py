"""Servers of AWS's XGBoost and scikit-learn images: their answers alone, and two endpoints."""

import importlib
import io
import os
import pickle
import sys
import tarfile
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import xgboost
from sklearn.linear_model import LinearRegression

from tests.trainyard.emulator.harness import ROLE, Cloud, cloud, until
from tests.trainyard.emulator.standin import make_client
from trainyard.emulator.sagemaker.endpoints.model_containers import SCRIPTS

pytestmark = pytest.mark.long

X = np.random.default_rng(0).random((60, 3))
Y = X @ [1, 2, 0]
XGBOOST = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:{}"
SKLEARN = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-scikit-learn:1.2-1-cpu-py3"
TWO = "0.1,0.2,0.3\n0.9,,0.3\n"
TWO_ROWS = np.array([[0.1, 0.2, 0.3], [0.9, np.nan, 0.3]])


def trained(objective: str, label: np.ndarray, **more: object) -> xgboost.Booster:
    return xgboost.train({"objective": objective, **more}, xgboost.DMatrix(X, label=label), 3)


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setenv("SAGEMAKER_BASE_DIR", str(tmp_path))
    monkeypatch.setenv("TRAINYARD_IMAGE", XGBOOST.format("1.7-1"))
    monkeypatch.syspath_prepend(SCRIPTS)
    (tmp_path / "model").mkdir()
    yield importlib.import_module("xgboost_model")
    for name in ("xgboost_model", "script_mode", "http_front"):
        sys.modules.pop(name, None)


def answer(served: ModuleType, booster: xgboost.Booster | bytes, body: str, **headers: str):
    folder, image = Path(served.http_front.MODEL), os.environ["TRAINYARD_IMAGE"]
    data = booster if isinstance(booster, bytes) else booster.save_raw()
    (folder / "xgboost-model").write_bytes(data)
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    found = served.answerer(served.Model(folder, image), image)(body.encode(), given)
    status, data, kind = found
    return status, data.decode(), kind


def test_the_first_images_put_all_into_one_line_and_a_transform_one_a_line(
    served: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    booster = trained("reg:squarederror", Y)
    monkeypatch.setenv("TRAINYARD_IMAGE", XGBOOST.format("1.2-1"))
    assert answer(served, booster, TWO, Content_Type="csv")[1].count(",") == 1
    monkeypatch.setenv("TRAINYARD_IMAGE", XGBOOST.format("1.2-2"))
    assert answer(served, booster, TWO, Content_Type="csv")[1].count("\n") == 2
    monkeypatch.setenv("SAGEMAKER_BATCH", "true")
    assert answer(served, booster, TWO, Content_Type="csv")[1].count("\n") == 2


def test_libsvm_that_counts_from_one_has_a_column_more_before_3_0(
    served: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    booster = trained("reg:squarederror", Y)
    old = answer(served, booster, "1:0.1 2:0.2 3:0.3", Content_Type="text/libsvm")
    assert (old[0], "Unable to evaluate payload provided" in old[1]) == (400, True), old
    monkeypatch.setenv("TRAINYARD_IMAGE", XGBOOST.format("3.0-5"))
    new = answer(served, booster, "1:0.1 2:0.2 3:0.3", Content_Type="text/libsvm")
    assert new == answer(served, booster, "0:0.1 1:0.2 2:0.3", Content_Type="text/libsvm")
    assert new[0] == 200


@pytest.mark.parametrize(("tag", "status"), [("1.0-1-cpu-py3", 200), ("1.2-1", 400)])
def test_a_column_more_is_ignored_by_xgboost_1_0_alone(
    served: ModuleType, monkeypatch: pytest.MonkeyPatch, tag: str, status: int
) -> None:
    monkeypatch.setenv("TRAINYARD_IMAGE", XGBOOST.format(tag))
    booster = pickle.dumps(trained("reg:squarederror", Y))
    assert answer(served, booster, "1:1 2:2 3:3", Content_Type="text/libsvm")[0] == status
    few = answer(served, booster, "0.1", Content_Type="text/csv")
    assert (few[0], "Feature size of csv inference data 1 is not" in few[1]) == (400, True)


def test_scripts_of_images_before_3_0_read_libsvm_by_xgboosts_parser(served: ModuleType) -> None:
    matrix = served.encoder.decode(b"1:1 0:2 2:3\n0 1:4\n", "text/libsvm; charset=utf-8")
    assert (matrix.num_row(), matrix.num_col()) == (2, 3)
    assert matrix.get_data().toarray().tolist() == [[2, 0, 3], [0, 4, 0]]


def test_several_boosters_are_refused(served: ModuleType) -> None:
    folder = Path(served.http_front.MODEL)
    for name in ("xgboost-model-0", "xgboost-model-1"):
        (folder / name).write_bytes(b"")
    with pytest.raises(ValueError, match="an ensemble .* is not supported here"):
        served.Model(folder, XGBOOST.format("3.0-5"))


def test_a_binary_model_that_this_xgboost_does_not_read_is_named(served: ModuleType) -> None:
    path = Path(served.http_front.MODEL) / "xgboost-model"
    path.write_bytes(b"binf" + bytes(range(256)))
    with pytest.raises(ValueError, match="pip install 'xgboost-cpu<3.1'"):
        served._load(path)


# as endpoints


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory):
    with cloud(tmp_path_factory.mktemp("aws")) as running:
        yield running


def archive(files: dict[str, bytes]) -> bytes:
    found = io.BytesIO()
    with tarfile.open(fileobj=found, mode="w:gz") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return found.getvalue()


def deploy(aws: Cloud, name: str, image: str, model: bytes, environment: dict[str, str]) -> None:
    data = aws.put(f"{name}/model.tar.gz", archive({"xgboost-model": model}))
    container = {"Image": image, "ModelDataUrl": data, "Environment": environment}
    aws.sm.create_model(ModelName=name, PrimaryContainer=container, ExecutionRoleArn=ROLE)
    variant = {"VariantName": "a", "ModelName": name, "InstanceType": "ml.m5.large"}
    variant["InitialInstanceCount"] = 1
    aws.sm.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])
    aws.sm.create_endpoint(EndpointName=name, EndpointConfigName=name)


def asked(aws: Cloud, name: str) -> list[float]:
    describe = lambda: aws.sm.describe_endpoint(EndpointName=name)  # noqa: E731
    done = until(lambda: d if (d := describe())["EndpointStatus"] != "Creating" else None)
    assert done["EndpointStatus"] == "InService", done
    runtime = make_client(aws.endpoint, "sagemaker-runtime")
    body = "0.1,0.2,0.3\n0.9,0.1,0.3"
    found = runtime.invoke_endpoint(
        EndpointName=name, Body=body, ContentType="text/csv", Accept="text/csv"
    )
    return [float(line) for line in found["Body"].read().split()]


@pytest.mark.slow
def test_endpoints_of_the_algorithm_and_of_a_sklearn_model_whose_code_is_in_s3(aws: Cloud) -> None:
    rows = np.array([[0.1, 0.2, 0.3], [0.9, 0.1, 0.3]])
    booster, linear = trained("reg:squarederror", Y), LinearRegression().fit(X, Y)
    script = "import pickle\ndef model_fn(d): return pickle.load(open(d + '/xgboost-model', 'rb'))"
    code = aws.put("code/sourcedir.tar.gz", archive({"serve_it.py": script.encode()}))
    environment = {"SAGEMAKER_PROGRAM": "serve_it.py", "SAGEMAKER_SUBMIT_DIRECTORY": code}
    deploy(aws, "trees", XGBOOST.format("1.7-1"), bytes(booster.save_raw()), {})
    deploy(aws, "linear", SKLEARN, pickle.dumps(linear), environment)
    expected = booster.predict(xgboost.DMatrix(rows)).tolist()
    assert asked(aws, "trees") == pytest.approx(expected, rel=1e-6)
    assert asked(aws, "linear") == pytest.approx(linear.predict(rows).tolist(), rel=1e-6)


@pytest.mark.slow
def test_a_transform_of_libsvm_that_counts_from_one_and_one_that_is_too_wide(aws: Cloud) -> None:
    """AWS's example trains XGBoost 1.0 on ten features and transforms AWS's own batch file."""
    rows = np.random.default_rng(0).random((60, 10))
    booster = xgboost.train({}, xgboost.DMatrix(rows, label=rows[:, 0]), 3)
    data = aws.put("batch/model.tar.gz", archive({"xgboost-model": pickle.dumps(booster)}))
    line = " ".join(f"{number}:{value}" for number, value in enumerate(rows[0], start=1))
    for name, tag in (("fits", "1.0-1-cpu-py3"), ("wide", "1.2-1")):
        container = {"Image": XGBOOST.format(tag), "ModelDataUrl": data}
        aws.sm.create_model(ModelName=name, PrimaryContainer=container, ExecutionRoleArn=ROLE)
        source = {"S3DataType": "S3Prefix", "S3Uri": aws.put("batch/in/rows", line.encode())}
        aws.sm.create_transform_job(
            TransformJobName=name,
            ModelName=name,
            TransformInput={"DataSource": {"S3DataSource": source}},
            TransformOutput={"S3OutputPath": f"{data.rpartition('/')[0]}/out/{name}"},
            TransformResources={"InstanceType": "ml.m5.large", "InstanceCount": 1},
        )
    fits, wide = (
        until(lambda name=name: ended if (ended := described(aws, name)) else None)
        for name in ("fits", "wide")
    )
    assert fits["TransformJobStatus"] == "Completed", fits
    assert wide["TransformJobStatus"] == "Failed"
    reason = wide["FailureReason"]
    assert "(10 vs. 11) : Number of columns does not match number of features" in reason
    assert "Stack trace" not in reason
    assert ".so" not in reason


def described(aws: Cloud, name: str) -> dict | None:
    found = aws.sm.describe_transform_job(TransformJobName=name)
    return None if found["TransformJobStatus"] == "InProgress" else found
