"""An emulator whose images run a script from the environment, and its tuning jobs."""

import contextlib
import functools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.trainyard.emulator.harness import IMAGE, ROLE, Cloud, wait
from trainyard.emulator.sagemaker.sagemaker_api import SageMaker
from trainyard.emulator.server import serve_emulator

TRAIN = """#!/bin/bash
# The image's own entry point; hp NAME is a hyperparameter.
hp() { sed -n 's/.*"'$1'": "\\([^"]*\\)".*/\\1/p' /opt/ml/input/config/hyperparameters.json; }
eval "$SCRIPT"
"""
ENDED = ("Completed", "Failed", "Stopped")
INTEGER = {"Name": "x", "MinValue": "1", "MaxValue": "9"}
RANGES = {"IntegerParameterRanges": [INTEGER]}
PRINT = 'echo "loss=$(hp x);" && echo model > /opt/ml/model/m'


@contextlib.contextmanager
def tuning_cloud(state: Path, folder: Path, stop_grace: float = 1.0) -> Iterator[Cloud]:
    """Start an emulator. ``folder``: for the interpreter that replaces images, and its
    ``train``. ``stop_grace``: seconds from SIGTERM to SIGKILL for a stopped job.
    """
    folder.mkdir(parents=True, exist_ok=True)
    python, train = folder / "python3", folder / "train"
    if not python.exists():
        python.symlink_to(sys.executable)
        train.write_text(TRAIN)
        train.chmod(0o755)
    make = functools.partial(SageMaker, python=python, stop_grace=stop_grace)
    with serve_emulator(state, make_sagemaker=make) as endpoint:
        yield Cloud(endpoint, state)


def definition(script: str = PRINT, **more: Any) -> dict[str, Any]:
    """Return a training definition that minimises what ``script`` prints as ``loss=…;``."""
    return {
        "AlgorithmSpecification": {
            "TrainingImage": IMAGE,
            "TrainingInputMode": "File",
            "MetricDefinitions": [{"Name": "loss", "Regex": "loss=([0-9.-]+);"}],
        },
        "RoleArn": ROLE,
        "OutputDataConfig": {"S3OutputPath": "s3://bkt/models"},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
        "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
        "Environment": {"SCRIPT": script},
        **more,
    }


def config(strategy: str = "Random", jobs: int | None = 3, **more: Any) -> dict[str, Any]:
    """Return a HyperParameterTuningJobConfig."""
    limits = {"MaxParallelTrainingJobs": 2, "MaxNumberOfTrainingJobs": jobs}
    return {
        "Strategy": strategy,
        "HyperParameterTuningJobObjective": {"Type": "Minimize", "MetricName": "loss"},
        "ResourceLimits": {key: value for key, value in limits.items() if value},
        "ParameterRanges": RANGES,
        "RandomSeed": 7,
        **more,
    }


def request(search: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """Return CreateHyperParameterTuningJob's request without a name."""
    found = {"HyperParameterTuningJobConfig": search or config(), **more}
    if "TrainingJobDefinitions" not in found:
        found.setdefault("TrainingJobDefinition", definition())
    return found


def tune(cloud: Cloud, name: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Run a tuning job to its end; return its description."""
    cloud.sm.create_hyper_parameter_tuning_job(HyperParameterTuningJobName=name, **asked)
    return wait_for_tuning(cloud, name)


def wait_for_tuning(cloud: Cloud, name: str) -> dict[str, Any]:
    describe = functools.partial(
        cloud.sm.describe_hyper_parameter_tuning_job, HyperParameterTuningJobName=name
    )
    return wait(describe, "HyperParameterTuningJobStatus", ENDED)


def list_tuning_trainings(cloud: Cloud, name: str, **more: Any) -> list[dict[str, Any]]:
    """Return ListTrainingJobsForHyperParameterTuningJob's summaries."""
    return cloud.sm.list_training_jobs_for_hyper_parameter_tuning_job(
        HyperParameterTuningJobName=name, MaxResults=100, **more
    )["TrainingJobSummaries"]


def step(name: str, asked: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"Name": name, "Type": "Tuning", "Arguments": asked or request(), **more}
