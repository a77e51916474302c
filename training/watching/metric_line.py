"""The metric line that a training job prints, and how SageMaker reads it. No torch here.

step=120 loss=2.3456 learning_rate=0.003 grad_norm=0.812 samples_per_second=41.2 ...
step=200 validation_loss=2.1234

If several ranks do the same work, each one's own seconds in a step follow in the line, as
own_seconds.rank0=0.12 own_seconds.rank1=0.14 ...: these are not metrics of CloudWatch, which allows
at most 40.
"""

from collections.abc import Mapping

from training.watching.rules import RULES

NUMBER = r"([-+]?[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)"
NAMES = {
    "train:step": "step",
    "train:loss": "loss",
    "train:learning_rate": "learning_rate",
    "train:grad_norm": "grad_norm",
    # with float16: the factor by which the loss was scaled, and the number of steps so far that
    # were skipped because their gradient overflowed; such a step has no grad_norm
    # (training/strategies/precision.py)
    "train:loss_scale": "loss_scale",
    "train:skipped_steps": "skipped_steps",
    # of all ranks together; a unit is what the loss is averaged over: a token, a row
    "train:samples_per_second": "samples_per_second",
    "train:units_per_second": "units_per_second",
    "train:units_per_second_per_rank": "units_per_second_per_rank",
    # of an optimizer step, mean over the steps since the last line and over the ranks
    "train:step_seconds": "step_seconds",
    "train:data_seconds": "data_seconds",
    "train:forward_backward_seconds": "forward_backward_seconds",
    "train:communication_seconds": "communication_seconds",
    "train:optimizer_seconds": "optimizer_seconds",
    "train:checkpoint_seconds": "checkpoint_seconds",
    # the slowest rank's own work divided by the median of the ranks (step_progress.py), and that
    # rank; only if several ranks do the same work
    "train:straggler_ratio": "straggler_ratio",
    "train:straggler_rank": "straggler_rank",
    # share of rank 0's time that it waited for the loader
    "train:data_stall": "data_stall",
    # model FLOPs utilisation: operations per unit × units per second / (ranks × a device's peak);
    # not on a CPU, nor on a device that training/watching/step_progress.py does not know
    "train:mfu": "mfu",
    # peak so far in megabytes, of the rank with most: tensors on a CUDA device, otherwise resident
    # memory
    "train:memory_mb": "memory_mb",
    # ‖update‖ / ‖weights‖ in the last step, median of the matrices (measure_updates in
    # training/watching/step_progress.py)
    "train:update_ratio": "update_ratio",
    # steps since the last complete checkpoint, and saves that failed since then
    "train:unsaved_steps": "unsaved_steps",
    "train:checkpoint_failures": "checkpoint_failures",
    "validation:loss": "validation_loss",
    # the value of a rule's finding, in the line in which it reports (training/watching)
    **{f"watch:{rule}": f"watch.{rule}" for rule in RULES},
}
"""Mapping of SageMaker's name of a metric to its name in the line."""

METRICS: tuple[tuple[str, str], ...] = tuple(
    (name, rf"(?:^|\s){key}={NUMBER}") for name, key in NAMES.items()
)
"""SageMaker's MetricDefinitions: (name, regular expression with the value as its group).
SageMaker allows at most 40.
"""


def format_metric_line(metrics: Mapping[str, float]) -> str:
    """Return ``key=value`` pairs separated by spaces; floats with six significant digits,
    integers whole.
    """
    return " ".join(
        f"{key}={value}" if isinstance(value, int) else f"{key}={value:.6g}"
        for key, value in metrics.items()
    )
