"""The evaluate step's settings: of a workload, or of a user's script that scores each example."""

import re
from typing import Any, Literal

from pydantic import Field, JsonValue, field_validator

from steps.config import ProcessingCompute, S3Uri, Section
from steps.evaluate.settings import EvaluateSettings
from steps.train.train_script import check_channels

Leaks = Literal["examples", "groups"]

PACKAGES = ("numpy", "pyarrow")
"""Packages that the job needs in addition to the script's."""
METRIC = r"[A-Za-z][A-Za-z0-9_]{0,62}"
"""Pattern of a metric's name, which must fit into ``gate.max_<metric>``, a pipeline parameter and
customer metadata.
"""
COLUMNS = ("example", "group", "probability", "label")  # names that no metric may have
INPUTS = ("model", "champion", "script", "code")
"""Inputs of the job that are not channels."""


class EvaluationScript(Section):
    """Evaluation script of a training script; docs/scripts.md is its contract."""

    script: str | None = None
    """Without train.loop: an evaluation script of your own (.py), relative to the recipe. It scores
    each example with the model in $SM_MODEL_DIR, and writes the scores to $SM_OUTPUT_DATA_DIR.
    """

    source: str | None = None
    """Folder that is sent with the script, relative to the recipe; default: the script's folder."""

    source_mb: float = Field(default=20, gt=0)
    """Maximum size of that folder in MB; one file may have a quarter of it."""

    requirements: str | None = None
    """Requirements file, relative to the recipe, which pip installs before the script starts;
    default: the folder's own requirements.txt, if it has one.
    """

    arguments: dict[str, JsonValue] = Field(default_factory=dict, max_length=100)
    """Arguments of the script: ``floor: 0.01`` gives it ``--floor 0.01``."""

    channels: dict[str, S3Uri] = Field(default_factory=dict, max_length=6)
    """Mapping of name to S3 prefix: the script finds its objects in the folder $SM_CHANNEL_<NAME>.
    If the recipe has a data section, the shards are additional channels train and test. The model
    is not tested on the channel train.
    """

    metrics: dict[str, Literal["lower", "higher"]] = Field(default_factory=dict, max_length=20)
    """Metrics that the script reports, each with the direction in which values are better; the
    first one is the primary metric.
    """

    baselines: tuple[str, ...] = ()
    """Baselines that the script scores on the same rows as the model, in baseline.<name>.jsonl;
    ``gate.below_baseline`` may name one."""

    request: str | None = None
    """Sample request, relative to the recipe: a file in the folder that is sent. For
    ``gate.max_latency_p95_ms``, the inference script responds to it, with the types
    ``register.content_types[0]`` and ``register.response_types[0]``.
    """

    @field_validator("script")
    @classmethod
    def _check_script(cls, script: str | None) -> str | None:
        if script is not None and not script.endswith(".py"):
            raise ValueError(f"{script!r} must end in .py")
        return script

    @field_validator("channels")
    @classmethod
    def _check_channels(cls, channels: dict[str, str]) -> dict[str, str]:
        if own_inputs := sorted({*channels} & {*INPUTS}):
            raise ValueError(f"{own_inputs[0]!r} is the job's own input; choose another name")
        return check_channels(channels)

    @field_validator("metrics")
    @classmethod
    def _check_metrics(cls, metrics: dict[str, Any]) -> dict[str, Any]:
        for name in metrics:
            if not re.fullmatch(METRIC, name) or name in COLUMNS:
                raise ValueError(
                    f"{name!r} is not a metric's name; expected up to 63 letters, digits and _, "
                    f"the first a letter, and not {', '.join(COLUMNS)}, which are columns of "
                    "their own"
                )
        return metrics


class EvaluateConfig(EvaluateSettings, EvaluationScript, ProcessingCompute):
    """Evaluation of the trained model, and the baselines, on the held-out test split."""
