"""Every replaced default handler, against the table of answers of AWS's containers.

Each container's server is one real process; the rows are requests to it.
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

import numpy as np
import pytest
import torch
import xgboost

from tests.trainyard.emulator.sagemaker.endpoints.containers.handlers import ROWS, Row
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
    names = {row.container: f"c{number}" for number, row in enumerate(ROWS)}
    folders = {name: tmp_path_factory.mktemp(short) for name, short in names.items()}
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


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_default_handler_answers_as_awss(
    row: Row, servers: dict[str, Path], booster: xgboost.Booster
) -> None:
    headers = {"Content_Type": row.content_type, "Accept": row.accept}
    given = {name: value for name, value in headers.items() if value is not None}
    found = ask(servers[row.container], "POST", "/invocations", row.body, **given)
    data = found.read()
    assert found.status == row.status, data
    if row.status != 200:
        assert row.answer in data.decode()
        return
    assert found.headers["Content-Type"] == row.sent
    array = read_array(data, row.sent if "json" not in row.sent else "application/json")
    expected = np.array(row.answer)
    if row.container in ("xgboost 3.0-5", "xgboost 1.0-1"):
        array, expected = array.ravel(), booster.predict(xgboost.DMatrix(expected))
        one_line = row.container == "xgboost 1.0-1"
        assert data.count(b"\n") == (0 if one_line or "json" in row.sent else len(expected))
    if row.container == "sklearn" and row.sent == "application/x-npy":
        assert array.dtype == expected.dtype
    np.testing.assert_allclose(array, expected, rtol=1e-6)
