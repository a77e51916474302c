"""What the gate's job is told: a recipe's demands as arguments.

Without the SDK: an approval makes them again from the recipe in a model's record.
"""

from collections.abc import Mapping
from typing import Any

from steps.gate.config import GateConfig

SETTINGS = (
    *("confidence", "power", "min_groups", "min_slice_examples", "min_slice_groups"),
    *("cold_start", "max_group_influence"),
)
"""Fields of the recipe's section that every gate which reads scores is told, but for None."""


def arguments(
    config: GateConfig,
    *,
    primary_metric: str,
    directions: Mapping[str, str],
    thresholds: Mapping[str, Any],
    champion: Any,
    look: Any,
) -> list[Any]:
    """The job's arguments in their order; a pipeline's variables may stand among them.

    Args:
        directions: metric → ``lower`` or ``higher``, which values are better.
        thresholds: of ``config.thresholds`` each, what stands in its place.
        champion: ARN of the model package to compare with, ``none`` or ``unresolved``.
        look: the number of this comparison in the ledger (``pipelines.approval.ledger``), 0 for
            unknown; told to a gate that compares.
    """
    return [
        *("--primary_metric", primary_metric, "--direction", directions[primary_metric]),
        *(word for name in config.thresholds for word in ("--threshold", name, thresholds[name])),
        *_baseline(config),
        *_absolute(config),
        *_comparisons(config, directions, champion, look),
    ]


def _baseline(config: GateConfig) -> list[str]:
    if not config.below_baseline:
        return []
    margin = str(config.baseline_margin)
    return ["--below_baseline", config.below_baseline, "--baseline_margin", margin]


def _absolute(config: GateConfig) -> list[str]:
    return [word for name, value in config.absolute.items() for word in (f"--{name}", str(value))]


def _comparisons(
    config: GateConfig, directions: Mapping[str, str], champion: Any, look: Any
) -> list[Any]:
    """Each its own short argument: the service takes 100 of 256 characters each."""
    if not config.reads_scores:
        return []
    found: list[Any] = []
    for kind, margins in config.comparisons.items():
        for metric, margin in margins.items():
            found += [f"--{kind}", metric, directions[metric], str(margin)]
    for name in SETTINGS:
        if (value := getattr(config, name)) is not None:
            found += [f"--{name}", str(value)]
    found += ["--champion", champion]
    return [*found, "--look", look] if config.comparisons else found
