"""examples/tensorflow: TF_CONFIG on one to three nodes, and with TensorFlow two workers that agree.

TensorFlow is in no lock. TRAINYARD_TENSORFLOW names a Python that has it (extra tensorflow).
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from sagemaker.train import container_drivers

from tests.conftest import CHECKOUT, clean_environment
from tests.training.worlds import free_port
from trainyard.emulator.containers import relocated_imports

pytestmark = pytest.mark.long

PROJECT = CHECKOUT / "examples/tensorflow"
DRIVERS = Path(container_drivers.__file__).parent
PYTHON = os.environ.get("TRAINYARD_TENSORFLOW", sys.executable)


def driven(tmp_path: Path, hosts: list[str], host: str, script: str) -> subprocess.CompletedProcess:
    """What the driver's process does on a node, as ``script_driver.py`` runs it."""
    (tmp_path / "entry.py").write_text(script)
    place = {
        "SM_HOSTS": json.dumps(hosts),
        "SM_CURRENT_HOST": host,
        "SM_ENTRY_SCRIPT": "entry.py",
        "SM_HPS": '{"epochs": 3}',
        "PYTHONPATH": f"{relocate_opt_ml(tmp_path)}:{DRIVERS}",
    }
    return subprocess.run(
        [sys.executable, PROJECT / "driver.py"], cwd=tmp_path, env=clean_environment() | place,
        capture_output=True, text=True, timeout=250, check=False,
    )  # fmt: skip


def relocate_opt_ml(folder: Path) -> Path:
    """Let AWS's modules take ``ml`` of that folder for /opt/ml, which this machine may have."""
    (folder / "ml/output").mkdir(parents=True, exist_ok=True)
    packages = folder / "home/layer/lib/python/site-packages"
    packages.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(relocated_imports.__file__, packages / "sitecustomize.py")
    return packages


@pytest.mark.parametrize("nodes", [1, 3])
def test_every_node_is_told_all_workers_and_which_one_it_is(tmp_path: Path, nodes: int):
    hosts = [f"algo-{number}" for number in range(1, nodes + 1)]
    said = "import os, sys; print('TOLD', os.environ['TF_CONFIG']); print('ARGS', sys.argv[1:])"
    for index, host in enumerate(hosts):
        done = driven(tmp_path, hosts, host, said)
        assert done.returncode == 0, done.stdout + done.stderr
        told = next(line for line in done.stdout.splitlines() if "TOLD" in line)
        assert json.loads(told.partition("TOLD ")[2]) == {
            "cluster": {"worker": [f"{one}:{8890 + at}" for at, one in enumerate(hosts)]},
            "task": {"type": "worker", "index": index},
        }
        assert "ARGS ['--epochs', '3']" in done.stdout
    done = driven(tmp_path, ["algo-1"], "algo-1", "raise SystemExit(7)")
    assert done.returncode == 7, done.stderr
    assert "failed with exit code 7" in done.stdout
    assert "returned non-zero exit status 7" in (tmp_path / "ml/output/failure").read_text()


@pytest.fixture(scope="module")
def tensorflow() -> None:
    looked = [PYTHON, "-c", "import importlib.util as u; print(u.find_spec('tensorflow') is None)"]
    if "True" in subprocess.run(looked, capture_output=True, text=True, check=True).stdout:
        pytest.skip("TensorFlow is not installed: TRAINYARD_TENSORFLOW names a Python that has it")


def workers(script: str, folder: Path, **more: str) -> list[str]:
    """What two workers on this machine printed."""
    places = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    started = []
    for index in range(2):
        told = {"cluster": {"worker": places}, "task": {"type": "worker", "index": index}}
        here = {"TF_CONFIG": json.dumps(told), "SM_MODEL_DIR": str(folder),
                "CUDA_VISIBLE_DEVICES": "-1"} | more  # fmt: skip
        started.append(subprocess.Popen(
            [PYTHON, script], cwd=PROJECT, env=clean_environment() | here, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ))  # fmt: skip
    return [process.communicate(timeout=200)[0] for process in started]


@pytest.mark.parametrize("script", ["train.py", "train_keras.py"])
def test_both_workers_end_with_the_same_line(tmp_path: Path, tensorflow, script: str):
    said = workers(script, tmp_path)
    ends = [text.partition(f"worker {n} of 2: ")[2].split() for n, text in enumerate(said)]
    assert ends[0][:2] == ends[1][:2] and len(ends[0]) >= 2, said
    line = json.loads((tmp_path / "line.json").read_text())
    assert line["slope"] == pytest.approx(3, abs=0.1)
    assert line["offset"] == pytest.approx(-1, abs=0.1)


def test_keras_3_does_not_fit_under_the_strategy(tmp_path: Path, tensorflow):
    """When it does, the example and the documents say so no longer."""
    said = workers("train_keras.py", tmp_path, TF_USE_LEGACY_KERAS="0")
    assert all("PerReplica" in text for text in said)
