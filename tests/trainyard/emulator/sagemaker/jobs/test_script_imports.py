"""Images that this machine's Python replaces, and what a job's script imports, wherever it lies."""

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.trainyard.emulator.harness import Cloud, s3_input
from tests.trainyard.emulator.sagemaker.builders import archive
from trainyard.emulator.containers.node import OWN_PYTHON, Node
from trainyard.emulator.sagemaker.jobs.container_images import (
    VARIABLE,
    build_package_environment,
    explain_unusable_image,
)
from trainyard.emulator.sagemaker.jobs.failure_reason import (
    Script,
    find_scripts,
    format_version_notice,
)

ECR = "683313688378.dkr.ecr.us-east-1.amazonaws.com"
IMAGE = f"{ECR}/sagemaker-scikit-learn:1.2-1-cpu-py3"
SCRIPT = "import json, numpy as np\nfrom helper import one\nprint('loaded', np.ones(1))\n"
DRIVERS = "/opt/ml/input/data/sm_drivers"


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
    path = node.to_host_path("/opt/ml/processing/input/code/sourcedir.tar.gz")
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
        (node.to_host_path(folder) / Path(name).name).write_text(text)


@pytest.mark.parametrize("way", [script_processor, sdk_driver, framework_processor, toolkit])
def test_the_script_is_found_whoever_starts_it(tmp_path: Path, way) -> None:
    node = Node("algo-1", tmp_path)
    way(node)
    assert find_scripts(node, lambda uri: tmp_path / uri.rpartition("/")[2]) == [
        Script("train.py", frozenset({"numpy", "pandas"}))
    ]


def test_an_archive_that_is_not_one_or_not_there_is_left_to_the_job(tmp_path: Path) -> None:
    node = Node("algo-1", tmp_path)
    toolkit(node)
    assert find_scripts(node, lambda uri: tmp_path / "none") == []
    (tmp_path / "code.tar.gz").write_bytes(b"text")
    assert find_scripts(node, lambda uri: tmp_path / "code.tar.gz") == []


def test_what_differs_is_one_line_and_what_the_job_installs_is_left_out() -> None:
    line = format_version_notice(OWN_PYTHON, IMAGE, {"numpy", "pandas", "json"})
    assert line.startswith(
        "This Python stands in for sagemaker-scikit-learn 1.2-1: "
        f"numpy {version('numpy')} (there 1.24.1), pandas {version('pandas')} (there 1.1.3), "
        "Python 3."
    )
    installed = "pandas==2.0\n# numpy"
    assert "pandas" not in format_version_notice(OWN_PYTHON, IMAGE, {"numpy", "pandas"}, installed)
    assert format_version_notice(OWN_PYTHON, "own/image:1", {"numpy"}) == ""
    assert format_version_notice(OWN_PYTHON, IMAGE, set()) == ""


@pytest.mark.slow
def test_the_jobs_log_names_it(aws: Cloud) -> None:
    code = aws.put("code/job.py", "import numpy\nprint(numpy.__version__)")
    image = {
        "ImageUri": IMAGE,
        "ContainerEntrypoint": ["python3", "/opt/ml/processing/code/job.py"],
    }
    aws.process("older", "", AppSpecification=image, ProcessingInputs=[s3_input("code", code)])
    [notice] = [line for line in aws.all_lines("Processing", "older") if "stands in" in line]
    printed = version("numpy")
    assert aws.log("Processing", "older") == [printed]
    assert f"numpy {printed} (there 1.24.1)" in notice


# images that this machine's Python replaces

AWS = "763104351884.dkr.ecr.us-east-1.amazonaws.com"


@pytest.mark.parametrize(
    "image",
    [
        f"{AWS}/pytorch-training:2.6.0-gpu-py312-cu126-ubuntu22.04-sagemaker",
        f"{AWS}/pytorch-training@sha256:abc",
        f"{AWS}/pytorch-inference:2.6.0-cpu-py312",
        f"{AWS}/huggingface-pytorch-training:2.5.1-transformers4.49.0-gpu-py311",
        f"{ECR}/smdistributed-modelparallel:2.4.1-gpu-py311",
        f"{ECR}/sagemaker-scikit-learn:1.2-1-cpu-py3",
        f"{ECR}/sagemaker-xgboost:1.7-1",
        "811284229777.dkr.ecr.us-east-1.amazonaws.com/xgboost:1",
        f"{ECR}/sagemaker-base-python-310:1.0",
    ],
)
def test_aws_images_with_python_are_known(image: str) -> None:
    assert explain_unusable_image(image) is None


@pytest.mark.parametrize(
    "image", ["python:3.11", f"{AWS}/tensorflow-training:2.16", "me/pytorch-x", f"{AWS}/xgboost:1"]
)
def test_others_are_refused_until_they_are_mapped(image: str, monkeypatch) -> None:
    assert repr(image) in explain_unusable_image(image) and VARIABLE in explain_unusable_image(
        image
    )
    monkeypatch.setenv(VARIABLE, f"other/*, {image[:6]}*")
    assert explain_unusable_image(image) is None


def test_awss_other_algorithms_are_refused_by_their_names(monkeypatch) -> None:
    image = "382416733822.dkr.ecr.us-east-1.amazonaws.com/linear-learner:1"
    assert "AWS's algorithm linear-learner" in explain_unusable_image(
        image
    ) and VARIABLE not in explain_unusable_image(image)
    assert VARIABLE in explain_unusable_image("example.com/knn:1")
    monkeypatch.setenv(VARIABLE, "*/linear-learner:1")
    assert explain_unusable_image(image) is None


@pytest.mark.long
def test_scripts_of_scikit_learn_import_what_awss_examples_do() -> None:
    script = (
        "from sagemaker_containers.beta.framework import "
        "content_types, encoders, env, modules, transformer, worker\n"
        "print(encoders.decode('1,2.5', content_types.CSV).tolist(), "
        "worker.Response('x', mimetype='text/csv').content_type)\n"
        "env.TrainingEnv()\n"
    )
    environment = os.environ | build_package_environment(
        f"{ECR}/sagemaker-scikit-learn:1.2-1-cpu-py3", {}
    )
    command = [sys.executable, "-c", script]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.stdout == "[1.0, 2.5] text/csv; charset=utf-8\n", ended.stderr
    assert "framework.env.TrainingEnv is not provided outside AWS's image" in ended.stderr
    assert build_package_environment(f"{AWS}/pytorch-training:2.8", {}) == {}
