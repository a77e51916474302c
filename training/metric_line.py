"""The metric line that a training job prints, and how SageMaker reads it. No torch here.

step=120 loss=2.3456 learning_rate=0.003 grad_norm=0.812 samples_per_second=41.2 ...
step=200 validation_loss=2.1234
"""

from collections.abc import Mapping

NUMBER = r"([-+]?[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)"
NAMES = {
    "train:step": "step",
    "train:loss": "loss",
    "train:learning_rate": "learning_rate",
    "train:grad_norm": "grad_norm",
    # of all ranks together; a unit is what the loss is a mean over: a token, a row
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
    # the slowest rank's own work over the median of the ranks (training/stragglers.py); of several
    "train:straggler_ratio": "straggler_ratio",
    # share of rank 0's time in which it waited for the loader
    "train:data_stall": "data_stall",
    # model FLOPs utilisation: operations of a unit × units a second / (ranks × a device's peak);
    # not on a CPU, nor on a device that training/devices.py does not know
    "train:mfu": "mfu",
    # megabytes at most so far, of the rank with most: tensors on a CUDA device, else resident
    "train:memory_mb": "memory_mb",
    "validation:loss": "validation_loss",
}
"""SageMaker's name → the line's."""

METRICS: tuple[tuple[str, str], ...] = tuple(
    (name, rf"(?:^|\s){key}={NUMBER}") for name, key in NAMES.items()
)
"""SageMaker's MetricDefinitions as (name, regular expression): one group, the value. At most 40."""


def metric_line(metrics: Mapping[str, float]) -> str:
    """``key=value`` pairs with spaces between; six significant digits, integers whole."""
    return " ".join(
        f"{key}={value}" if isinstance(value, int) else f"{key}={value:.6g}"
        for key, value in metrics.items()
    )
