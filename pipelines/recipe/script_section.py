"""A training script of one's own in a recipe: whether all of it is there, and what the gate sees.

It is no workload package: its evaluation script says what each example scores, and the recipe says
which metrics those are.
"""

from pydantic import BaseModel, ConfigDict

from steps.evaluate.config import EvaluateConfig
from steps.gate.config import GateConfig
from steps.train.config import TrainStepConfig
from training.workloads import WorkloadSpec

NAME = "script"
"""Stands where a workload's name would."""
SPLITS = {"train": ("train", "validation"), "evaluate": ("train", "test")}
"""Section → its channels where the shard step makes them."""


class NoSettings(BaseModel):
    """A script has arguments instead."""

    model_config = ConfigDict(extra="forbid")


def spec_of(evaluate: EvaluateConfig) -> WorkloadSpec:
    """What the gate knows of a script's evaluation; the first metric is the primary."""
    return WorkloadSpec(
        config=NoSettings,
        metrics=evaluate.metrics,
        primary_metric=next(iter(evaluate.metrics)),
        baselines=evaluate.baselines,
        baselines_scored=True,
        slices=lambda config: evaluate.slices,
    )


def check(
    train: TrainStepConfig, evaluate: EvaluateConfig, inference: str | None, data: bool
) -> None:
    """What belongs to a script is whole, or not there at all.

    Args:
        inference: the inference script.
        data: whether the recipe has a data section.

    Raises:
        ValueError: something is missing, or is there and must not; names the field.
    """
    if train.script is None:
        if not data:
            raise ValueError("data: is missing; only a train.script can do without it")
        _refuse_a_scripts(evaluate, inference)
        return
    if evaluate.script is None:
        raise ValueError(
            "evaluate.script: is missing; name the script that says what each example of the test "
            "data scores, since the gate compares models by it"
        )
    if not data and not {*evaluate.channels} - {"train"}:
        raise ValueError(
            "evaluate.channels: is missing; without a data section say where the test data lie, as "
            "in {test: s3://bucket/prefix}"
        )
    if not evaluate.metrics:
        raise ValueError(
            "evaluate.metrics: is missing; say which values are better, as in {accuracy: higher, "
            "log_loss: lower}: the first is the primary metric"
        )
    for section, given in (("train", train.channels), ("evaluate", evaluate.channels)):
        if data and (twice := sorted({*SPLITS[section]} & {*given})):
            raise ValueError(
                f"{section}.channels: {', '.join(twice)}: the shards of the data section have that "
                "name; choose another"
            )


def check_gate(gate: GateConfig, evaluate: EvaluateConfig, inference: str | None) -> None:
    """The gate asks for nothing that a script does not tell, and no metric is named as a check.

    Raises:
        ValueError: names the field.
    """
    for metric in evaluate.metrics:
        if taken := sorted({f"max_{metric}", f"min_{metric}"} & {*GateConfig.model_fields}):
            raise ValueError(
                f"evaluate.metrics.{metric}: gate.{taken[0]} is a check of its own; choose another "
                "name for the metric"
            )
    if gate.max_latency_p95_ms is not None and not (evaluate.request and inference):
        missing = "evaluate.request" if inference else "inference.script"
        raise ValueError(
            f"gate.max_latency_p95_ms: needs {missing}: of a script, nobody knows else what a "
            "request is; set inference.script and evaluate.request, or remove it"
        )
    if evaluate.request and not inference:
        raise ValueError(
            "evaluate.request: is answered by the inference script; set inference.script, or "
            "remove it"
        )


def _refuse_a_scripts(evaluate: EvaluateConfig, inference: str | None) -> None:
    for field, given in (
        ("evaluate.script", evaluate.script),
        ("evaluate.channels", evaluate.channels),
        ("evaluate.metrics", evaluate.metrics),
        ("evaluate.baselines", evaluate.baselines),
        ("evaluate.request", evaluate.request),
        ("evaluate.arguments", evaluate.arguments),
        ("inference.script", inference),
    ):
        if given:
            raise ValueError(
                f"{field}: is for a training script; remove it, or set train.script instead of "
                "train.loop"
            )
