"""Invented results of training jobs."""

from typing import Any

from trainyard.emulator.sagemaker.tuning.tuning_results import Result


def result(
    number: int,
    objective: float | None = None,
    status: str = "Completed",
    minimize: bool = True,
    tuning: str = "t",
    **more: Any,
) -> Result:
    """Return the training job that ended as number ``number``."""
    metrics = [] if objective is None else [{"MetricName": "loss", "Value": objective}]
    record = {
        "TrainingJobName": f"{tuning}-{number:03}",
        "TrainingJobArn": f"arn:aws:sagemaker:us-east-1:1:training-job/{tuning}-{number:03}",
        "TrainingJobStatus": status,
        "CreationTime": float(number),
        "TrainingEndTime": float(number),
        "FinalMetricDataList": metrics,
        "HyperParameters": {"x": str(number), "fixed": "1", "_tuning_objective_metric": "loss"},
        **more,
    }
    return Result(tuning, "", record, frozenset({"x"}), minimize)
