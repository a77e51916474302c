"""What a job's script imports, wherever it lies, beside what AWS publishes of its image."""

import io
import json
import tarfile
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.trainyard.emulator.harness import Cloud, cloud, processing, s3_input
from trainyard.emulator.containers.node import OWN_PYTHON, Node
from trainyard.emulator.sagemaker.jobs.failure_reason import Script, scripts, version_notice

ECR = "683313688378.dkr.ecr.us-east-1.amazonaws.com"
IMAGE = f"{ECR}/sagemaker-scikit-learn:1.2-1-cpu-py3"
SCRIPT = "import json, numpy as np\nfrom helper import one\nprint('loaded', np.ones(1))\n"
DRIVERS = "/opt/ml/input/data/sm_drivers"


def archive(files: dict[str, str]) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as tar:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    return data.getvalue()


CODE = {"src/train.py": SCRIPT, "src/helper.py": "import pandas\none = 1\n"}


def script_processor(node: Node) -> None:
    node.command = ["python3", "/opt/ml/processing/input/code/train.py", "--x"]
    place(node, "/opt/ml/processing/input/code", CODE)


def sdk_driver(node: Node) -> None:
    node.command = ["/bin/bash", "-c", f"{DRIVERS}/scripts/sm_train.sh"]
    place(node, DRIVERS, {"sourcecode.json": json.dumps({"entry_script": "train.py"})})
    place(node, "/opt/ml/input/data/code", CODE)


def framework_processor(node: Node) -> None:
    node.command = ["/bin/bash", "/opt/ml/processing/input/entrypoint/runproc.sh"]
    shell = 'cd /opt/ml/processing/input/code/\ntar -xzf sourcedir.tar.gz\npython3 train.py "$@"\n'
    place(node, "/opt/ml/processing/input/entrypoint", {"runproc.sh": shell})
    place(node, "/opt/ml/processing/input/code", {})
    path = node.inside("/opt/ml/processing/input/code/sourcedir.tar.gz")
    path.write_bytes(archive({Path(name).name: text for name, text in CODE.items()}))


def toolkit(node: Node) -> None:
    node.command = ["train"]
    given = {
        "sagemaker_program": json.dumps("src/train.py"),
        "sagemaker_submit_directory": json.dumps("s3://bkt/code.tar.gz"),
    }
    place(node, "/opt/ml/input/config", {"hyperparameters.json": json.dumps(given)})
    (node.root / "code.tar.gz").write_bytes(archive(CODE))


def place(node: Node, folder: str, files: dict[str, str]) -> None:
    node.make_directories(folder)
    for name, text in files.items():
        (node.inside(folder) / Path(name).name).write_text(text)


@pytest.mark.parametrize("way", [script_processor, sdk_driver, framework_processor, toolkit])
def test_the_script_is_found_whoever_starts_it(tmp_path: Path, way) -> None:
    node = Node("algo-1", tmp_path)
    way(node)
    assert scripts(node, lambda uri: tmp_path / uri.rpartition("/")[2]) == [
        Script("train.py", frozenset({"numpy", "pandas"}))
    ]


def test_an_archive_that_is_not_one_or_not_there_is_left_to_the_job(tmp_path: Path) -> None:
    node = Node("algo-1", tmp_path)
    toolkit(node)
    assert scripts(node, lambda uri: tmp_path / "none") == []
    (tmp_path / "code.tar.gz").write_bytes(b"text")
    assert scripts(node, lambda uri: tmp_path / "code.tar.gz") == []


def test_what_differs_is_one_line_and_what_the_job_installs_is_left_out() -> None:
    line = version_notice(OWN_PYTHON, IMAGE, {"numpy", "pandas", "json"})
    numpy, pandas = version("numpy"), version("pandas")
    assert line.startswith(
        "This Python stands in for sagemaker-scikit-learn 1.2-1: "
        f"numpy {numpy} (there 1.24.1), pandas {pandas} (there 1.1.3), Python 3."
    )
    assert "pandas" not in version_notice(
        OWN_PYTHON, IMAGE, {"numpy", "pandas"}, "pandas==2.0\n# numpy"
    )
    assert version_notice(OWN_PYTHON, "own/image:1", {"numpy"}) == ""
    assert version_notice(OWN_PYTHON, IMAGE, set()) == ""


@pytest.mark.slow
def test_the_jobs_log_names_it(tmp_path: Path) -> None:
    with cloud(tmp_path) as aws:
        code = aws.put("code/job.py", "import numpy\nprint(numpy.__version__)")
        request = processing("") | {"ProcessingInputs": [s3_input("code", code)]}
        request["AppSpecification"] = {
            "ImageUri": IMAGE,
            "ContainerEntrypoint": ["python3", "/opt/ml/processing/code/job.py"],
        }
        aws.process("older", "", **request)
        notice, printed = said(aws, "older")
    assert printed == version("numpy")
    assert f"numpy {printed} (there 1.24.1)" in notice


def said(aws: Cloud, job: str) -> list[str]:
    """Return the job's log without what this machine's kernel says."""
    lines = aws.all_lines("Processing", job)
    return [line for line in lines if "stands in" in line or not line.startswith("[emulator]")]
