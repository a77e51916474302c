"""Every replaced default handler, against a table of the answers of AWS's containers.

Each container's server is one real process; the rows are requests to it.

The sources, with the paths that decide each part:

- ``xgboost …``: aws/sagemaker-xgboost-container, src/sagemaker_xgboost_container,
  algorithm_mode/serve.py and serve_utils.py, data_utils.py (``get_content_type``); 3.0-5 at the
  main branch, 1.0-1 at the tag v1.0-1.
- ``xgboost script``: serving.py and encoder.py of the same, and aws/sagemaker-containers,
  src/sagemaker_containers: _transformer.py, _worker.py, _encoders.py.
- ``sklearn``: aws/sagemaker-scikit-learn-container, src/sagemaker_sklearn_container/serving.py, and
  aws/sagemaker-containers as above.
- ``pytorch``: aws/sagemaker-pytorch-inference-toolkit, default_pytorch_inference_handler.py, which
  is installed, and so is aws/sagemaker-inference-toolkit (transformer.py, decoder.py, encoder.py).
"""

import http.client
import io
import json
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xgboost

from trainyard.emulator.sagemaker.endpoints.model_containers import SCRIPTS
from trainyard.emulator.sagemaker.endpoints.serving_instance import _Connection

pytestmark = pytest.mark.long

SECONDS = 240  # for a process to start, on a loaded machine
SKLEARN_SCRIPT = """
from sagemaker_containers.beta.framework import (
    content_types, encoders, env, modules, transformer, worker)
from sklearn.utils import check_array
class Model:
    def predict(self, data):
        return check_array(data, dtype=None)
def model_fn(folder):
    return Model()
"""
XGBOOST_SCRIPT = """
import numpy as np
class Model:
    def predict(self, matrix, validate_features):
        found = matrix.get_data().tocoo()
        rows = np.full((matrix.num_row(), matrix.num_col()), np.nan)
        rows[found.row, found.col] = found.data
        return rows
def model_fn(folder):
    return Model()
"""
IMAGE = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-{}"


NAN = float("nan")
PAGE = "rror: "  # the name of an exception, and its message
"""Answer of flask to an exception."""
UNSUPPORTED = "is not supported by this framework"
CSV, JSON, NPY = "text/csv", "application/json", "application/x-npy"
TEXT = "text/csv; charset=utf-8"


def npy(values: Any, dtype: str = "float64") -> bytes:
    file = io.BytesIO()
    np.save(file, np.array(values, dtype))
    return file.getvalue()


ONE, TWO = [[1, 2, 3]], [[1, 2, 3], [4, NAN, 6]]
NOT_ACCEPTED = (
    "Accept type image/png is not supported. Please use supported accept types: "
    "['application/json', 'application/jsonlines', 'application/x-recordio-protobuf', 'text/csv']."
)
NOT_CSV, NOT_LIBSVM = "ensure data is in csv format", "ensure data is in libsvm format"
XGBOOST = [
    # CSV
    (CSV, None, "1,2,3\n4,,6\n", 200, TWO, TEXT),
    ("csv", None, "1,2,3", 200, ONE, TEXT),
    ("TEXT/CSV; charset=utf-8", None, "1,2,3", 200, ONE, TEXT),
    ("text/csv; label_size=1", None, "1,2,3", 200, ONE, TEXT),
    ("text/csv; label_size=0", None, "1,2,3", 415, "label_size must be equal to 1"),
    (CSV, None, "1\t2\t3\r\n4\t5\t6\r\n", 200, [[1, 2, 3], [4, 5, 6]], TEXT),
    (CSV, None, "a,b,c\n1,2,3", 415, NOT_CSV),
    (CSV, None, "1,2,3\n4,5", 415, NOT_CSV),
    (CSV, None, "1,2,3\n\n4,5,6", 415, NOT_CSV),
    (CSV, None, b"\xff,2,3", 415, NOT_CSV),
    (CSV, None, " \n", 415, NOT_CSV),
    (CSV, None, "", 204, ""),
    (CSV, None, "1,2", 200, [[1, 2, NAN]], TEXT),  # no pickle: XGBoost takes fewer columns
    (CSV, None, "1,2,3,4", 400, "Unable to evaluate payload provided"),
    # libsvm
    ("text/libsvm", None, "0:1 2:3", 200, [[1, NAN, 3]], TEXT),
    ("text/x-libsvm", None, "5 1:1 3:3\n7 2:2", 200, [[1, NAN, 3], [NAN, 2, NAN]], TEXT),
    (None, None, "0:1 1:2 2:3", 200, ONE, TEXT),
    (None, None, "1,2,3", 415, NOT_LIBSVM),
    ("text/libsvm", None, "0:1 1:a", 415, NOT_LIBSVM),
    ("text/libsvm", None, "0:1 3:4", 400, "Unable to evaluate payload provided"),
    # other types
    ("", None, "0:1", 415, "is not an accepted ContentType"),
    (
        *(JSON, None, "[[1, 2, 3]]", 415),
        "application/json is not an accepted ContentType: csv, libsvm, parquet, recordio-protobuf, "
        "text/csv, text/libsvm, text/x-libsvm, application/x-parquet, "
        "application/x-recordio-protobuf.",
    ),
    ("application/x-www-form-urlencoded", None, "1,2,3", 204, ""),
    ("application/x-parquet", None, "PAR1", 415, "application/x-parquet is not supported."),
    ("application/x-recordio-protobuf", None, "x", 415, "application/x-recordio-protobuf"),
    # answers
    (CSV, "*/*", "1,2,3", 200, ONE, TEXT),
    (CSV, JSON, "1,2,3\n4,,6", 200, TWO, JSON),
    (CSV, "Application/JSON", "1,2,3", 200, ONE, JSON),
    (CSV, "application/json;q=0.9", "1,2,3", 200, ONE, JSON),
    (CSV, "application/jsonlines", "1,2,3", 500, PAGE),
    (CSV, "image/png", "1,2,3", 406, NOT_ACCEPTED),
    (CSV, "text/csv, application/json", "1,2,3", 406, "Accept type text/csv, application/json"),
    (CSV, "image/png", "1,2,3,4", 400, "Unable to evaluate payload provided"),
    (CSV, None, b"1,2,3\n" * (1 << 20) + b"1,2,3", 413, "larger than MAX_CONTENT_LENGTH"),
]
OLD = [
    (CSV, None, "1,2,3\n4,,6\n", 200, TWO, TEXT),
    (CSV, "image/png", "1,2,3", 200, ONE, TEXT),
    (CSV, None, "1,2", 200, [[1, 2, NAN]], TEXT),
    (
        *(CSV, None, "1", 400),
        "Unable to evaluate payload provided: Feature size of csv inference data 1 is not "
        "consistent with feature size of trained model 3.",
    ),
    (CSV, None, "1,2,3,4", 400, "Feature size of csv inference data 4 is not consistent"),
    ("text/libsvm", None, "1:1 2:2 3:3", 200, [[NAN, 1, 2]], TEXT),  # 3 is one feature more
    ("text/libsvm", None, "0:1", 200, [[1, NAN, NAN]], TEXT),
    (
        *("text/libsvm", None, "4:1", 400),
        "Feature size of libsvm inference data 5 is larger than feature size of trained model 3.",
    ),
]
XGBOOST_ROWS = [
    (CSV, None, "1,2,3\n4,,6", 200, TWO, JSON),
    (CSV, None, "1,2,3\n", 500, PAGE),  # the last line is empty
    ("text/csv; charset=utf-8", CSV, "1,2,3", 200, ONE, TEXT),
    ("TEXT/CSV", None, "1,2,3", 500, PAGE),
    ("text/libsvm", None, "5 1:1 3:3", 200, [[1, 0, 3]], JSON),
    ("text/x-libsvm", NPY, "0:1 2:3\n\n1:2", 200, [[1, 0, 3], [0, 0, 0], [0, 2, 0]], NPY),
    (None, None, "[[1, 2, 3]]", 500, PAGE),  # without a type it is JSON
    ("application/x-recordio-protobuf", None, "x", 500, PAGE),
    (CSV, "*/*", "1,2,3", 200, ONE, JSON),
    (CSV, "application/json;q=0.9", "1,2,3", 500, PAGE),
]
SKLEARN = [
    (CSV, NPY, "1,2.5\n3,4\n", 200, np.float32([[1, 2.5], [3, 4]]), NPY),
    (CSV, CSV, "1,2.5\n3,4", 200, np.float32([[1, 2.5], [3, 4]]), TEXT),
    (CSV, None, '"1","2"\n3,4', 200, np.float32([[1, 2], [3, 4]]), JSON),
    (CSV, None, "1,2\r\n3,4\r\n", 200, np.float32([[1, 2], [3, 4]]), JSON),
    (CSV, None, "1,2,3", 500, PAGE),  # one row is a vector, which scikit-learn refuses
    (CSV, None, "a,b\n1,2", 500, PAGE),
    (CSV, None, "1,2\n3", 500, PAGE),
    (CSV, None, '"1,2\n3,4', 500, PAGE),
    ("TEXT/CSV", None, "1,2\n3,4", 500, PAGE),
    (JSON, NPY, "[[1, 2.5], [3, 4]]", 200, np.float32([[1, 2.5], [3, 4]]), NPY),
    (None, None, "[[1, 2]]", 200, np.float32([[1, 2]]), JSON),
    (JSON, None, '{"instances": [[1, 2]]}', 500, PAGE),
    (JSON, None, "[[1, null]]", 500, PAGE),
    (NPY, NPY, npy([[1, 2]], "int16"), 200, np.int16([[1, 2]]), NPY),
    (NPY, NPY, npy([[1, 2]]), 200, np.float64([[1, 2]]), NPY),
    (NPY, None, "x", 500, PAGE),
    ("text/libsvm", None, "0:1", 500, PAGE),
    (JSON, "*/*", "[[1, 2]]", 200, np.float32([[1, 2]]), JSON),
    (JSON, "Text/CSV", "[[1, 2]]", 500, PAGE),
    (JSON, "image/png", "[[1, 2]]", 500, PAGE),
]
PYTORCH = [
    (JSON, None, "[[1, 2.5], [3, 4]]", 200, [[1, 2.5], [3, 4]], JSON),
    (JSON, CSV, "[[1, 2.5], [3, 4]]", 200, [[1, 2.5], [3, 4]], CSV),
    (CSV, None, "1,2.5\n3,4.5\n", 500, "numpy.void"),  # the toolkit's genfromtxt types by column
    (CSV, NPY, "1,\n3,4", 200, [[1, -1], [3, 4]], NPY),  # and a gap among whole numbers is -1
    (NPY, NPY, npy([[1, 2]], "int16"), 200, [[1, 2]], NPY),
    (JSON, "image/png, application/json", "[[1, 2]]", 200, [[1, 2]], "image/png, application/json"),
    (JSON, "*/*", "[[1, 2]]", 200, [[1, 2]], JSON),
    (JSON, None, "[[1, 2", 500, "JSONDecodeError"),
    (JSON, None, '{"inputs": [1]}', 500, "Traceback"),
    ("text/csv; charset=utf-8", None, "1,2", 500, UNSUPPORTED),
    (None, None, "[[1, 2]]", 500, UNSUPPORTED),
    (JSON, "application/json;q=0.9", "[[1, 2]]", 500, UNSUPPORTED),
]
TABLES = {
    "xgboost 3.0-5": XGBOOST,
    "xgboost 1.0-1": OLD,
    "xgboost script": XGBOOST_ROWS,
    "sklearn": SKLEARN,
    "pytorch": PYTORCH,
}
ROWS = [(name, *row) for name, rows in TABLES.items() for row in rows]
"""Container, content type, accept, body, status; then a part of a refusal's text, or the array that
the model gets and the content type of its prediction.
"""


@pytest.fixture(scope="module")
def booster() -> xgboost.Booster:
    rows = np.random.default_rng(0).integers(0, 8, (200, 3)).astype(float)
    label = rows @ [1, 10, 100]
    return xgboost.train({"max_depth": 6, "eta": 1}, xgboost.DMatrix(rows, label=label), 5)


def start(folder: Path, script: str, image: str, program: str = "") -> subprocess.Popen:
    (folder / "model/code").mkdir(parents=True, exist_ok=True)
    own = {"SAGEMAKER_BASE_DIR": str(folder), "TRAINYARD_IMAGE": image}
    if program:
        (folder / "model/code/served.py").write_text(program)
        own["SAGEMAKER_PROGRAM"] = "served.py"
    environment = {**os.environ, **own}
    command = [sys.executable, str(SCRIPTS / script), str(folder / "s")]
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=folder)


@pytest.fixture(scope="module")
def servers(
    tmp_path_factory: pytest.TempPathFactory, booster: xgboost.Booster
) -> Iterator[dict[str, Path]]:
    """Sockets of all containers, whose processes start in parallel."""
    folders = {name: tmp_path_factory.mktemp(f"c{n}") for n, name in enumerate(TABLES)}
    for name, data in {
        "xgboost 3.0-5": bytes(booster.save_raw()),
        "xgboost 1.0-1": pickle.dumps(booster),
    }.items():
        (folders[name] / "model").mkdir()
        (folders[name] / "model/xgboost-model").write_bytes(data)
    (folders["pytorch"] / "model").mkdir()
    torch.jit.script(torch.nn.Identity()).save(folders["pytorch"] / "model/model.pt")
    xgboost_image, sklearn = IMAGE.format("xgboost:"), IMAGE.format("scikit-learn:1.2-1-cpu-py3")
    settings = {
        "xgboost 3.0-5": ("xgboost_model.py", f"{xgboost_image}3.0-5"),
        "xgboost 1.0-1": ("xgboost_model.py", f"{xgboost_image}1.0-1-cpu-py3"),
        "xgboost script": ("xgboost_model.py", f"{xgboost_image}3.0-5", XGBOOST_SCRIPT),
        "sklearn": ("sklearn_model.py", sklearn, SKLEARN_SCRIPT),
        "pytorch": ("pytorch_model.py", "pytorch-inference:2.6.0-cpu-py312"),
    }
    processes = {name: start(folders[name], *how) for name, how in settings.items()}
    try:
        for name, process in processes.items():
            wait(folders[name], process)
        yield {name: folder / "s" for name, folder in folders.items()}
    finally:
        for process in processes.values():
            process.kill()
            process.wait()


def wait(folder: Path, process: subprocess.Popen) -> None:
    end = time.monotonic() + SECONDS
    while process.poll() is None and time.monotonic() < end:
        try:
            if ask(folder / "s", "GET", "/ping").status == 200:
                return
        except OSError:
            time.sleep(0.05)
    raise AssertionError((folder / "log").read_text())


def ask(
    socket: Path, method: str, path: str, body: bytes = b"", **headers: str
) -> http.client.HTTPResponse:
    connection = _Connection(str(socket), SECONDS)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body, named)
    return connection.getresponse()


def read_array(data: bytes, content_type: str) -> np.ndarray:
    if content_type == "application/x-npy":
        return np.load(io.BytesIO(data))
    if content_type.startswith("text/csv"):
        return np.loadtxt(io.BytesIO(data), delimiter=",", ndmin=2)
    found = json.loads(data)
    if isinstance(found, dict):
        found = [score["score"] for score in found["predictions"]]
    return np.array(found)


@pytest.mark.parametrize("row", ROWS, ids=[f"{row[0]}-{number}" for number, row in enumerate(ROWS)])
def test_a_default_handler_answers_as_awss(row: tuple, servers: dict[str, Path], booster) -> None:
    container, kind, accept, body, status, answer, *sent = row
    headers = {"Content_Type": kind, "Accept": accept}
    given = {name: value for name, value in headers.items() if value is not None}
    data = body.encode() if isinstance(body, str) else body
    found = ask(servers[container], "POST", "/invocations", data, **given)
    data = found.read()
    assert found.status == status, (row, data)
    if status != 200:
        assert answer in data.decode(), row
        return
    assert [found.headers["Content-Type"]] == sent
    is_json = "json" in sent[0]
    array, expected = read_array(data, JSON if is_json else sent[0]), np.array(answer)
    if container in ("xgboost 3.0-5", "xgboost 1.0-1"):
        array, expected = array.ravel(), booster.predict(xgboost.DMatrix(expected))
        one_line = container == "xgboost 1.0-1"
        assert data.count(b"\n") == (0 if one_line or is_json else len(expected))
    if container == "sklearn" and sent == [NPY]:
        assert array.dtype == expected.dtype
    np.testing.assert_allclose(array, expected, rtol=1e-6)
