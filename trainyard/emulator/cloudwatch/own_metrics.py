"""Metrics that the emulator records about its own work, under AWS's names.

Namespaces, names, dimensions and units are those of the developer guide, "Metrics for monitoring
Amazon SageMaker AI with Amazon CloudWatch".
"""

import time

from trainyard.emulator.cloudwatch.metric_store import Metric, Metrics, Point
from trainyard.language.definition_document import END_STATUSES

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

    ``names``: endpoint, variant, and the configuration that served it. ``status``: status of the
    container's answer. ``times``: seconds that the container took, and the additional seconds.
    ``count``: the variant's instances.
    """
    now, (model, overhead) = time.time(), times
    values = {
        "Invocations": (1.0, "None"),
        "InvocationsPerInstance": (1.0 / count, "None"),
        "Invocation4XXErrors": (float(400 <= status < 500), "None"),
        "Invocation5XXErrors": (float(status >= 500), "None"),
        "InvocationModelErrors": (float(status >= 300), "None"),
        "ModelLatency": (model / MICROSECOND, "Microseconds"),
        "OverheadLatency": (max(0.0, overhead) / MICROSECOND, "Microseconds"),
    }
    # Also by configuration, so that an alarm can examine a single fleet.
    variant = {"EndpointName": names[0], "VariantName": names[1]}
    metrics.put(
        (Metric.from_dimensions(ENDPOINTS, name, dimensions), Point.from_value(value, unit, now))
        for dimensions in (variant, variant | {"EndpointConfigName": names[2]})
        for name, (value, unit) in values.items()
    )


def training(metrics: Metrics, job: str, values: list[tuple[str, float]]) -> None:
    """Record the values that MetricDefinitions found in a line of a training job's log."""
    dimensions = {"TrainingJobName": job}
    metrics.put(
        (Metric.from_dimensions(TRAINING, name, dimensions), Point.from_value(value))
        for name, value in values
    )


def execution(metrics: Metrics, record: dict, step: str | None) -> None:
    """Record a change of an execution's status, or of the status of its step ``step``."""
    dimensions = {"PipelineName": record["pipeline"]}
    if step is None:
        answer = record["answer"]
        status, began = answer["PipelineExecutionStatus"], answer["CreationTime"]
        word, has_ended = "Execution", status in END_STATUSES
    else:
        step_record = record["steps"][step]
        dimensions["StepName"] = step
        status, began = step_record["StepStatus"], step_record["StartTime"]
        word, has_ended = "Step", "EndTime" in step_record
    points = {}
    if status == "Executing":
        points[f"{word}Started"] = Point.from_value(1, "Count")
    if has_ended:
        points[f"{word}Duration"] = Point.from_value(
            (time.time() - began) / MILLISECOND, "Milliseconds"
        )
    if status in _ENDINGS:
        points[f"{word}{_ENDINGS[status]}"] = Point.from_value(1, "Count")
    metrics.put(
        (Metric.from_dimensions(PIPELINES, name, dimensions), point)
        for name, point in points.items()
    )
