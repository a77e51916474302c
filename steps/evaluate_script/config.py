"""The evaluate step's settings where a script of the user's own says what each example scores."""

import re
from typing import Any, Literal

from pydantic import Field, JsonValue, field_validator

from steps.config import Section
from steps.train.train_script import checked_channels

Leaks = Literal["examples", "groups"]

PACKAGES = ("numpy", "pyarrow")
"""What the job beside the script needs beyond Python."""
METRIC = r"[A-Za-z][A-Za-z0-9_]{0,62}"
"""A name that ``gate.max_<metric>``, a pipeline parameter and customer metadata can hold."""
COLUMNS = ("example", "group", "probability", "label")
INPUTS = ("model", "champion", "script", "code")
"""Inputs of the job that are no channels."""


class EvaluationScript(Section):
    """The evaluation script of a training script: docs/scripts.md is its contract."""

    script: str | None = None
    """With train.script: an evaluation script of your own (.py), relative to the recipe, that
    writes what the model in $SM_MODEL_DIR scores for each example into $SM_OUTPUT_DATA_DIR."""

    source: str | None = None
    """The folder that travels with it, relative to the recipe, if it is not the script's own."""

    source_mb: float = Field(default=20, gt=0)
    """How large that folder may be, in MB, and a file of it a quarter of that."""

    requirements: str | None = None
    """Requirements file, relative to the recipe, which pip installs before the script starts; else
    the folder's own requirements.txt, if it has one."""

    arguments: dict[str, JsonValue] = Field(default_factory=dict, max_length=100)
    """``floor: 0.01`` gives the script ``--floor 0.01``."""

    channels: dict[str, str] = Field(default_factory=dict, max_length=6)
    """Name → S3 prefix: the script finds its objects in the folder $SM_CHANNEL_<NAME>. Where the
    recipe has a data section, the shards are its channels train and test besides. Nothing is tested
    on the channel train."""

    metrics: dict[str, Literal["lower", "higher"]] = Field(default_factory=dict, max_length=20)
    """Metric that the script gives → which values are better; the first one is the primary."""

    baselines: tuple[str, ...] = ()
    """What the script scores on the same rows beside the model, as baseline.<name>.jsonl: the gate
    says how far the model is from each, and ``gate.below_baseline`` may name one."""

    request: str | None = None
    """A sample request, relative to the recipe, a file in the folder that travels: for
    ``gate.max_latency_p95_ms`` the inference script answers it, as ``register.content_types[0]``
    and ``register.response_types[0]``."""

    @field_validator("script")
    @classmethod
    def _is_python(cls, given: str | None) -> str | None:
        if given is not None and not given.endswith(".py"):
            raise ValueError(f"{given!r} must end in .py")
        return given

    @field_validator("channels")
    @classmethod
    def _are_channels(cls, given: dict[str, str]) -> dict[str, str]:
        if taken := sorted({*given} & {*INPUTS}):
            raise ValueError(f"{taken[0]!r} is the job's own input; choose another name")
        return checked_channels(given)

    @field_validator("metrics")
    @classmethod
    def _are_metrics(cls, given: dict[str, Any]) -> dict[str, Any]:
        for name in given:
            if not re.fullmatch(METRIC, name) or name in COLUMNS:
                raise ValueError(
                    f"{name!r} is no name of a metric: letters, digits and _ up to 63, the first a "
                    f"letter, and not {', '.join(COLUMNS)}, which are columns of their own"
                )
        return given
