"""Images that this machine's Python replaces."""

import os
import subprocess
import sys

import pytest

from trainyard.emulator.sagemaker.jobs.container_images import VARIABLE, own_packages, refusal

pytestmark = pytest.mark.long

ECR = "763104351884.dkr.ecr.us-east-1.amazonaws.com"


@pytest.mark.parametrize(
    "image",
    [
        f"{ECR}/pytorch-training:2.6.0-gpu-py312-cu126-ubuntu22.04-sagemaker",
        f"{ECR}/pytorch-training@sha256:abc",
        f"{ECR}/pytorch-inference:2.6.0-cpu-py312",
        f"{ECR}/huggingface-pytorch-training:2.5.1-transformers4.49.0-gpu-py311",
        "658645717510.dkr.ecr.us-east-1.amazonaws.com/smdistributed-modelparallel:2.4.1-gpu-py311",
        "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-scikit-learn:1.2-1-cpu-py3",
        "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1",
        "811284229777.dkr.ecr.us-east-1.amazonaws.com/xgboost:1",
        "236514542706.dkr.ecr.us-east-1.amazonaws.com/sagemaker-base-python-310:1.0",
    ],
)
def test_aws_images_with_python_are_known(image: str) -> None:
    assert refusal(image) is None


@pytest.mark.parametrize(
    "image", ["python:3.11", f"{ECR}/tensorflow-training:2.16", "me/pytorch-x", f"{ECR}/xgboost:1"]
)
def test_others_are_refused_until_they_are_mapped(image: str, monkeypatch) -> None:
    assert repr(image) in refusal(image)
    assert VARIABLE in refusal(image)
    monkeypatch.setenv(VARIABLE, f"other/*, {image[:6]}*")
    assert refusal(image) is None


def test_awss_other_algorithms_are_refused_by_their_names(monkeypatch) -> None:
    image = "382416733822.dkr.ecr.us-east-1.amazonaws.com/linear-learner:1"
    assert "AWS's algorithm linear-learner" in refusal(image) and VARIABLE not in refusal(image)
    assert VARIABLE in refusal("example.com/knn:1")
    monkeypatch.setenv(VARIABLE, "*/linear-learner:1")
    assert refusal(image) is None


def test_scripts_of_scikit_learn_import_what_awss_examples_do() -> None:
    image = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-scikit-learn:1.2-1-cpu-py3"
    script = (
        "from sagemaker_containers.beta.framework import "
        "content_types, encoders, env, modules, transformer, worker\n"
        "print(encoders.decode('1,2.5', content_types.CSV).tolist(), "
        "worker.Response('x', mimetype='text/csv').content_type)\n"
        "env.TrainingEnv()\n"
    )
    environment = {**os.environ, **own_packages(image, {})}
    command = [sys.executable, "-c", script]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.stdout == "[1.0, 2.5] text/csv; charset=utf-8\n", ended.stderr
    assert "framework.env.TrainingEnv is not provided outside AWS's image" in ended.stderr
    assert (
        own_packages("763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8", {}) == {}
    )
