"""Metrics that the emulator records about its own work, under AWS's names.

Namespaces, names, dimensions and units are those of the developer guide, "Metrics for monitoring
Amazon SageMaker AI with Amazon CloudWatch".
"""

import time

from trainyard.emulator.services.cloudwatch.metric_store import Metric, Metrics, Point
from trainyard.language.statuses import ENDED

ENDPOINTS = "AWS/SageMaker"
TRAINING = "/aws/sagemaker/TrainingJobs"
PIPELINES = "AWS/Sagemaker/ModelBuildingPipeline"
MICROSECOND, MILLISECOND = 1e-6, 1e-3
_ENDINGS = {"Failed": "Failed", "Succeeded": "Succeeded", "Stopped": "Stopped"}


def invocation(
    metrics: Metrics,
    names: tuple[str, str, str],
    status: int,
    times: tuple[float, float],
    count: int,
) -> None:
    """Record one InvokeEndpoint.

    ``names``: endpoint, variant, and the configuration that served it, so that an alarm can examine
    a single fleet. ``status``: status of the container's answer. ``times``: seconds that the
    container took, and the additional seconds. ``count``: the variant's instances.
    """
    now, (model, overhead) = time.time(), times
    found = {
        "Invocations": (1.0, "None"),
        "InvocationsPerInstance": (1.0 / count, "None"),
        "Invocation4XXErrors": (float(400 <= status < 500), "None"),
        "Invocation5XXErrors": (float(status >= 500), "None"),
        "InvocationModelErrors": (float(status >= 300), "None"),
        "ModelLatency": (model / MICROSECOND, "Microseconds"),
        "OverheadLatency": (max(0.0, overhead) / MICROSECOND, "Microseconds"),
    }
    both = {"EndpointName": names[0], "VariantName": names[1]}
    metrics.put(
        (Metric.of(ENDPOINTS, name, dimensions), Point.of(value, unit, now))
        for dimensions in (both, both | {"EndpointConfigName": names[2]})
        for name, (value, unit) in found.items()
    )


def training(metrics: Metrics, job: str, values: list[tuple[str, float]]) -> None:
    """Record the values that MetricDefinitions found in a line of a training job's log."""
    dimensions = {"TrainingJobName": job}
    metrics.put((Metric.of(TRAINING, name, dimensions), Point.of(value)) for name, value in values)


def execution(metrics: Metrics, record: dict, step: str | None) -> None:
    """Record a change of an execution's status, or of the status of its step ``step``."""
    dimensions = {"PipelineName": record["pipeline"]}
    if step is None:
        answer = record["answer"]
        status, began = answer["PipelineExecutionStatus"], answer["CreationTime"]
        word, ended = "Execution", status in ENDED
    else:
        found = record["steps"][step]
        dimensions["StepName"] = step
        status, began = found["StepStatus"], found["StartTime"]
        word, ended = "Step", "EndTime" in found
    points = {}
    if status == "Executing":
        points[f"{word}Started"] = Point.of(1, "Count")
    if ended:
        points[f"{word}Duration"] = Point.of((time.time() - began) / MILLISECOND, "Milliseconds")
    if status in _ENDINGS:
        points[f"{word}{_ENDINGS[status]}"] = Point.of(1, "Count")
    metrics.put((Metric.of(PIPELINES, name, dimensions), point) for name, point in points.items())
