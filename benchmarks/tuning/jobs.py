"""Three tunings of 20 trials as real jobs: SageMaker's XGBoost on scikit-learn's diabetes data."""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import numpy as np
from sklearn.datasets import load_diabetes

from trainyard.emulator.server import serve

IMAGE = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1"
ROLE = "arn:aws:iam::123456789012:role/tuning"
STRATEGIES = ("Random", "Bayesian", "Hyperband")
TRIALS, PARALLEL, ROUNDS = 20, 2, 60
STATIC = {
    "num_round": str(ROUNDS),
    "objective": "reg:squarederror",
    "num_parallel_tree": "40",  # a round takes long enough to be stopped between two
}
RANGES = {
    "IntegerParameterRanges": [{"Name": "max_depth", "MinValue": "1", "MaxValue": "10"}],
    "ContinuousParameterRanges": [
        {"Name": "eta", "MinValue": "0.005", "MaxValue": "1", "ScalingType": "Logarithmic"},
        {"Name": "subsample", "MinValue": "0.3", "MaxValue": "1"},
        {"Name": "min_child_weight", "MinValue": "0.5", "MaxValue": "50"},
    ],
}


@dataclass(frozen=True, slots=True)
class Tuned:
    strategy: str
    status: str
    best: float
    """validation:rmse of the best job."""

    counters: dict[str, int]
    """TrainingJobStatusCounters."""

    seconds: float
    rounds: int
    """Boosting rounds that all jobs trained together."""


def tunings() -> list[Tuned]:
    """Each strategy once, on an emulator of its own."""
    with tempfile.TemporaryDirectory() as folder, serve(Path(folder)) as endpoint:
        session = boto3.Session(
            endpoint.env["AWS_ACCESS_KEY_ID"],
            endpoint.env["AWS_SECRET_ACCESS_KEY"],
            region_name="us-east-1",
        )
        clients = {
            name: session.client(name, endpoint_url=endpoint.url)
            for name in ("s3", "sagemaker", "logs")
        }
        _upload(clients["s3"])
        return [_tuned(clients, strategy) for strategy in STRATEGIES]


def _upload(s3: Any) -> None:
    """Half to train with and half to validate, the label first."""
    data = load_diabetes()
    rows = np.column_stack([data.target, data.data])
    np.random.default_rng(0).shuffle(rows)
    s3.create_bucket(Bucket="tuning")
    for name, part in (("train", rows[: len(rows) // 2]), ("validation", rows[len(rows) // 2 :])):
        body = "\n".join(",".join(f"{value:.6g}" for value in row) for row in part)
        s3.put_object(Bucket="tuning", Key=f"{name}/data.csv", Body=body.encode())


def _tuned(clients: dict[str, Any], strategy: str) -> Tuned:
    name, sagemaker, began = f"bench-{strategy}", clients["sagemaker"], time.monotonic()
    sagemaker.create_hyper_parameter_tuning_job(
        HyperParameterTuningJobName=name, **_request(strategy)
    )
    while True:
        found = sagemaker.describe_hyper_parameter_tuning_job(HyperParameterTuningJobName=name)
        if found["HyperParameterTuningJobStatus"] in ("Completed", "Failed", "Stopped"):
            break
        time.sleep(0.5)
    best = found["BestTrainingJob"]["FinalHyperParameterTuningJobObjectiveMetric"]["Value"]
    return Tuned(
        strategy,
        found["HyperParameterTuningJobStatus"],
        best,
        found["TrainingJobStatusCounters"],
        time.monotonic() - began,
        _rounds(clients["logs"], name),
    )


def _rounds(logs: Any, name: str) -> int:
    """The lines with a validation error in the logs of all its jobs."""
    group, lines = "/aws/sagemaker/TrainingJobs", 0
    pages = logs.get_paginator("filter_log_events").paginate(
        logGroupName=group, logStreamNamePrefix=f"{name}-"
    )
    for page in pages:
        lines += sum("validation-rmse:" in event["message"] for event in page["events"])
    return lines


def _request(strategy: str) -> dict[str, Any]:
    config = {
        "Strategy": strategy,
        "HyperParameterTuningJobObjective": {"Type": "Minimize", "MetricName": "validation:rmse"},
        "ResourceLimits": {
            "MaxNumberOfTrainingJobs": TRIALS,
            "MaxParallelTrainingJobs": PARALLEL,
        },
        "ParameterRanges": RANGES,
        "RandomSeed": 1,
    }
    if strategy == "Hyperband":
        resources = {"MinResource": 5, "MaxResource": ROUNDS}
        config["StrategyConfig"] = {"HyperbandStrategyConfig": resources}
    source = {"S3DataType": "S3Prefix", "S3DataDistributionType": "FullyReplicated"}
    channels = [
        {
            "ChannelName": channel,
            "ContentType": "text/csv",
            "DataSource": {"S3DataSource": {**source, "S3Uri": f"s3://tuning/{channel}/"}},
        }
        for channel in ("train", "validation")
    ]
    definition = {
        "AlgorithmSpecification": {"TrainingImage": IMAGE, "TrainingInputMode": "File"},
        "StaticHyperParameters": STATIC,
        "RoleArn": ROLE,
        "InputDataConfig": channels,
        "OutputDataConfig": {"S3OutputPath": "s3://tuning/models"},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
        "StoppingCondition": {"MaxRuntimeInSeconds": 600},
    }
    return {"HyperParameterTuningJobConfig": config, "TrainingJobDefinition": definition}
