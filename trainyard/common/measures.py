"""The list of all metrics: their names for Prometheus, and their counterparts in CloudWatch.

It is used by the emulator's /metrics, the dashboards for Grafana and CloudWatch, and the alarms.
Names follow prometheus.io/docs/practices/naming: one prefix, base units, ``_total`` for counters,
ratios from 0 to 1. No label has a value per execution or job, which would create too many series.

    prometheus.io/docs/instrumenting/exposition_formats, version 0.0.4
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

PIPELINES = "AWS/Sagemaker/ModelBuildingPipeline"
ENDPOINTS = "AWS/SageMaker"
TRAINING = "/aws/sagemaker/TrainingJobs"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Kind = Literal["counter", "gauge", "summary"]
Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Source:
    """A metric's counterpart in CloudWatch."""

    namespace: str
    name: str
    scale: float = 1.0
    """Number by which CloudWatch's value is multiplied to get the measure's unit."""

    labels: Labels = field(default_factory=dict)
    """Labels whose values follow from the metric's name in CloudWatch."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A family of metrics with the same name."""

    name: str
    kind: Kind
    says: str
    sources: tuple[Source, ...]
    dimensions: Labels = field(default_factory=dict)
    """Dimension in CloudWatch to label."""

    @property
    def series(self) -> tuple[str, ...]:
        """Return the names of the samples: for a summary, those of its sum and its count."""
        ends = ("_sum", "_count") if self.kind == "summary" else ("",)
        return tuple(f"{self.name}{end}" for end in ends)


@dataclass(frozen=True, slots=True)
class Sample:
    """A value of one series at one time. In a summary, ``value`` is the sum of ``count`` values."""

    labels: Labels
    value: float
    count: float = 0.0


_PIPELINE = {"PipelineName": "pipeline"}
_STEP = _PIPELINE | {"StepName": "step"}
_ENDPOINT = {"EndpointName": "endpoint", "VariantName": "variant"}
_OUTCOMES = ("Started", "Succeeded", "Failed", "Stopped")


def _make_outcome_sources(word: str) -> tuple[Source, ...]:
    """Return a source for each outcome of ``word``, which is ``Execution`` or ``Step``."""
    return tuple(
        Source(PIPELINES, f"{word}{outcome}", labels={"outcome": outcome.lower()})
        for outcome in _OUTCOMES
    )


OF_SERVICE = (
    Measure("trainyard_executions_total", "counter", "Executions, by outcome",
            _make_outcome_sources("Execution"), _PIPELINE),
    Measure("trainyard_execution_duration_seconds", "summary", "How long executions took",
            (Source(PIPELINES, "ExecutionDuration", 1e-3),), _PIPELINE),
    Measure("trainyard_steps_total", "counter", "Steps, by outcome",
            _make_outcome_sources("Step"), _STEP),
    Measure("trainyard_step_duration_seconds", "summary", "How long steps took",
            (Source(PIPELINES, "StepDuration", 1e-3),), _STEP),
    Measure("trainyard_endpoint_invocations_total", "counter", "Requests to endpoints",
            (Source(ENDPOINTS, "Invocations"),), _ENDPOINT),
    Measure("trainyard_endpoint_invocations_per_instance_total", "counter",
            "Requests per instance of the variant",
            (Source(ENDPOINTS, "InvocationsPerInstance"),), _ENDPOINT),
    Measure("trainyard_endpoint_errors_total", "counter", "Requests that were not answered",
            (Source(ENDPOINTS, "Invocation4XXErrors", labels={"class": "4xx"}),
             Source(ENDPOINTS, "Invocation5XXErrors", labels={"class": "5xx"})), _ENDPOINT),
    Measure("trainyard_endpoint_latency_seconds", "summary", "How long containers took to answer",
            (Source(ENDPOINTS, "ModelLatency", 1e-6),), _ENDPOINT),
    Measure("trainyard_endpoint_overhead_seconds", "summary", "Time that the service itself added",
            (Source(ENDPOINTS, "OverheadLatency", 1e-6),), _ENDPOINT),
)  # fmt: skip
"""Measures of pipelines and endpoints. The emulator serves them; on AWS they are in CloudWatch."""


def _make_measure(
    name: str, says: str, *keys: str, scale: float = 1.0, metric: str = ""
) -> Measure:
    """Return a measure whose values are from the metric lines of a training job.

    With several keys, each key's name is a label ``part``.
    """
    sources = tuple(
        Source(TRAINING, metric or f"train:{key}", scale,
               {"part": key.removesuffix("_seconds")} if len(keys) > 1 else {})
        for key in keys
    )  # fmt: skip
    return Measure(f"trainyard_train_{name}", "gauge", says, sources)


PARTS = ("data", "forward_backward", "communication", "optimizer", "checkpoint")
RULES = (
    *("checkpoint_failing", "cost_beyond_plan", "data_bottleneck"),
    *("loss_not_falling", "stalled_rank"),
)
OF_TRAINING = (
    _make_measure("step", "Completed optimizer steps", "step"),
    _make_measure("loss", "Loss of the last logged step", "loss"),
    _make_measure("validation_loss", "Loss on the validation split", "validation_loss",
           metric="validation:loss"),
    _make_measure("learning_rate", "Learning rate", "learning_rate"),
    _make_measure("gradient_norm", "L2 norm of the gradient before clipping", "grad_norm"),
    _make_measure("loss_scale", "Factor by which a float16 loss is multiplied", "loss_scale"),
    _make_measure("skipped_steps", "Steps skipped because float16 overflowed", "skipped_steps"),
    _make_measure("samples_per_second", "Samples per second, all ranks", "samples_per_second"),
    _make_measure("units_per_second", "Tokens or rows per second, all ranks", "units_per_second"),
    _make_measure("rank_units_per_second", "Tokens or rows per second and rank",
           "units_per_second_per_rank"),
    _make_measure("step_seconds", "Seconds of a step", "step_seconds"),
    _make_measure("part_seconds", "Seconds of a step that go into each part",
           *(f"{part}_seconds" for part in PARTS)),
    _make_measure("straggler_ratio", "Slowest rank's own work over the median", "straggler_ratio"),
    _make_measure("straggler_rank", "Number of the slowest rank", "straggler_rank"),
    _make_measure("data_stall_ratio", "Share of the time spent waiting for data", "data_stall"),
    _make_measure("flops_utilisation_ratio", "Model FLOPs utilisation", "mfu"),
    _make_measure("memory_bytes", "Maximum memory of a rank so far", "memory_mb", scale=1e6),
    _make_measure("update_ratio", "Update over weights, median of the matrices", "update_ratio"),
    _make_measure("unsaved_steps", "Steps since the last checkpoint", "unsaved_steps"),
    _make_measure("checkpoint_failures", "Saves that failed since the last complete checkpoint",
           "checkpoint_failures"),
    Measure("trainyard_train_watch_findings_total", "counter", "Findings of each watch rule",
            tuple(Source(TRAINING, f"watch:{rule}", 1.0, {"rule": rule})
                  for rule in RULES)),
)  # fmt: skip
"""Measures of a training job. They are only in CloudWatch, because a job cannot be queried."""

ALL = (*OF_SERVICE, *OF_TRAINING)


def render_metrics(series: Iterable[tuple[Measure, Sequence[Sample]]]) -> str:
    """Return the body of a /metrics response."""
    return "".join(
        line + "\n" for measure, samples in series for line in _format_measure(measure, samples)
    )


def _format_measure(measure: Measure, samples: Sequence[Sample]) -> Iterator[str]:
    """Return the lines of one measure, in Prometheus' text format."""
    if not samples:
        return
    yield f"# HELP {measure.name} {measure.says}."
    yield f"# TYPE {measure.name} {measure.kind}"
    for sample in samples:
        labels = []
        for name, value in sample.labels.items():
            escaped = value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
            labels.append(f'{name}="{escaped}"')
        label_text = f"{{{','.join(labels)}}}" if labels else ""
        values = (sample.value, sample.count)[: len(measure.series)]
        for series, number in zip(measure.series, values, strict=True):
            yield f"{series}{label_text} {_format_number(number)}"


def _format_number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(float(value))
