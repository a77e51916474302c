"""Check the recipe of a training script, and describe its evaluation to the gate.

There is no workload package. Instead, the evaluation script scores each example, and the recipe
says which metrics these scores are.
"""

from pydantic import BaseModel, ConfigDict

from steps.evaluate.config import EvaluateConfig
from steps.gate.config import GateConfig
from steps.train.config import TrainStepConfig
from training.workloads import WorkloadSpec

NAME = "script"
"""Name that is used instead of a workload's."""
SPLITS = {"train": ("train", "validation"), "evaluate": ("train", "test")}
"""The channels, by section, that contain splits from the shard step."""


class NoSettings(BaseModel):
    """No settings: a script has arguments instead."""

    model_config = ConfigDict(extra="forbid")


def build_evaluation_spec(evaluate: EvaluateConfig) -> WorkloadSpec:
    """Return the description of a script's evaluation for the gate; its first metric is the primary
    one.
    """
    return WorkloadSpec(
        config=NoSettings,
        metrics=evaluate.metrics,
        primary_metric=next(iter(evaluate.metrics), ""),
        baselines=evaluate.baselines,
        baselines_scored=True,
        slices=lambda config: evaluate.slices,
    )


def check_script_fields(
    train: TrainStepConfig,
    evaluate: EvaluateConfig,
    inference: str | None,
    data: bool,
    transform: bool,
) -> None:
    """Check that all fields that a script needs are given, or, with train.loop, none of them.

    Args:
        inference: the inference script, or None.
        data, transform: whether the recipe has that section.

    Raises:
        ValueError: a field is missing, or not allowed; names the field.
    """
    if train.loop is not None:
        if not data:
            raise ValueError("data: is missing; train.loop needs it")
        _refuse_script_fields(evaluate, inference)
        return
    if transform:
        raise ValueError(
            "transform: scores records with a workload, which only train.loop has; remove it, and "
            "run a Batch Transform job with the registered package"
        )
    if evaluate.script is None:
        raise ValueError(
            "evaluate.script: is missing; name the script that scores each example of the test "
            "data, since the gate compares models by the scores"
        )
    if not data:
        _check_without_data(train, evaluate)
    if not evaluate.metrics:
        raise ValueError(
            "evaluate.metrics: is missing; say which values are better, as in {accuracy: higher, "
            "log_loss: lower}: the first is the primary metric"
        )
    for section, sources in (("train", train.sources), ("evaluate", evaluate.channels)):
        if data and (twice := sorted({*SPLITS[section]} & {*sources})):
            raise ValueError(
                f"{section}.channels: {', '.join(twice)}: the shards of the data section have that "
                "name; choose another"
            )


def check_gate(gate: GateConfig, evaluate: EvaluateConfig, inference: str | None) -> None:
    """Check that the gate requires only what a script provides, and that no metric is named like a
    check.

    Raises:
        ValueError: names the field.
    """
    for metric in evaluate.metrics:
        if clashes := sorted({f"max_{metric}", f"min_{metric}"} & {*GateConfig.model_fields}):
            raise ValueError(
                f"evaluate.metrics.{metric}: gate.{clashes[0]} is a separate check; choose another "
                "name for the metric"
            )
    if gate.max_latency_p95_ms is not None and not (evaluate.request and inference):
        missing = "evaluate.request" if inference else "inference.script"
        raise ValueError(
            f"gate.max_latency_p95_ms: needs {missing}: without it, a script has no known "
            "request; set inference.script and evaluate.request, or remove it"
        )
    if evaluate.request and not inference:
        raise ValueError(
            "evaluate.request: is answered by the inference script; set inference.script, or "
            "remove it"
        )


def _check_without_data(train: TrainStepConfig, evaluate: EvaluateConfig) -> None:
    """Check a script's recipe without data section: it needs test data of its own."""
    if not {*evaluate.channels} - {"train"}:
        raise ValueError(
            "evaluate.channels: is missing; without a data section, set the location of the test "
            "data, as in {test: s3://bucket/prefix}"
        )
    if train.fsx:
        raise ValueError(
            "train.fsx: mounts the shards, and without a data section there are none; mount your "
            "own data with train.file_systems"
        )


def _refuse_script_fields(evaluate: EvaluateConfig, inference: str | None) -> None:
    """Raise ValueError if a field is given that only a training script has."""
    for field, value in (
        ("evaluate.script", evaluate.script),
        ("evaluate.channels", evaluate.channels),
        ("evaluate.metrics", evaluate.metrics),
        ("evaluate.baselines", evaluate.baselines),
        ("evaluate.request", evaluate.request),
        ("evaluate.arguments", evaluate.arguments),
        ("inference.script", inference),
    ):
        if value:
            raise ValueError(
                f"{field}: applies only to a training script; remove it, or set train.script "
                "instead of train.loop"
            )
