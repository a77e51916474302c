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
    "train:samples_per_second": "samples_per_second",
    "train:units_per_second": "units_per_second",
    "train:data_stall": "data_stall",
    "validation:loss": "validation_loss",
}

METRICS: tuple[tuple[str, str], ...] = tuple(
    (name, rf"(?:^|\s){key}={NUMBER}") for name, key in NAMES.items()
)
"""SageMaker's MetricDefinitions as (name, regular expression): one group, the value."""


def metric_line(metrics: Mapping[str, float]) -> str:
    """``key=value`` pairs with spaces between; six significant digits, integers whole."""
    return " ".join(f"{key}={value:.6g}" for key, value in metrics.items())
