"""The train step's settings where the training is a script of one's own, run as it is."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import Field, JsonValue, field_validator

from steps.config import Section

S3_PREFIX = r"^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/\S*)?$"
CHANNEL_NAME = r"^[A-Za-z0-9._-]{1,64}$"
"""ChannelName of the API reference, Channel."""

METRIC_NAME, LONGEST_REGEX, MOST_METRICS = r"^.{1,255}$", 500, 40
"""MetricDefinition and AlgorithmSpecification.MetricDefinitions of the API reference."""

TAKEN = ("code", "sm_drivers")
"""Channels that carry the script itself and AWS's drivers."""

MOST_ARGUMENTS, LONGEST_NAME, LONGEST_VALUE = 100, 256, 2500
"""HyperParameters of the API reference, CreateTrainingJob."""


@dataclass(frozen=True)
class Project:
    """A folder that travels, and what in it is named."""

    files: Mapping[str, bytes] = field(repr=False)
    """Name with forward slashes → content."""

    script: str
    """Name of the script in it."""

    requirements: str | None = None
    """Name of the requirements file in it; None where there is nothing to install."""

    driver: str | None = None
    inference: str | None = None
    request: str | None = None
    """Name of the sample request in it."""


class ScriptSettings(Section):
    """A training script, what it is given, and what starts its processes."""

    script: str | None = None
    """A training script of your own (.py, or .sh with launcher none), relative to the recipe: it
    runs unchanged, and its whole folder travels with it. Instead of ``loop``."""

    source: str | None = None
    """The folder that travels, relative to the recipe, if it is not the script's own: one that
    holds it. A file .trainyardignore in it, in .gitignore's syntax, says what stays at home."""

    source_mb: float = Field(default=20, gt=0)
    """How large that folder may be, in MB, and a file of it a quarter of that: more is taken for
    data or weights, which belong into a channel."""

    requirements: str | None = None
    """Requirements file, relative to the recipe, which pip installs before the script starts; else
    the folder's own requirements.txt, if it has one."""

    arguments: dict[str, JsonValue] = Field(default_factory=dict, max_length=MOST_ARGUMENTS)
    """Hyperparameters of the job: ``epochs: 3`` gives the script ``--epochs 3``."""

    channels: dict[str, str] = Field(default_factory=dict, max_length=18)
    """Name → S3 prefix: the script finds its objects in the folder $SM_CHANNEL_<NAME>. Where the
    recipe has a data section, the shards are its channels train and validation besides."""

    metrics: dict[str, str] = Field(default_factory=dict, max_length=MOST_METRICS)
    """Name → regular expression with one group, by which SageMaker reads the metric's value off the
    lines that the script prints."""

    launcher: Literal["torchrun", "mpi", "none", "own"] = "torchrun"
    """What starts the processes of a node: torchrun; mpirun; for a script
    besides none, which runs it once a node, and own, for which see ``driver``."""

    driver: str | None = None
    """With launcher own: the Python file in the travelling folder, relative to the recipe, that
    runs once a node and starts the script's processes."""

    @field_validator("arguments")
    @classmethod
    def _are_hyperparameters(cls, given: dict[str, Any]) -> dict[str, Any]:
        for name, value in given.items():
            if not re.fullmatch(r"\S{1,256}", name) or name.startswith("-"):
                raise ValueError(f"{name!r} is no name of an argument; write epochs for --epochs")
            if value is None:
                raise ValueError(f"{name} is null; leave it out, or give it a value")
            if len(hyperparameter(value)) > LONGEST_VALUE:
                raise ValueError(
                    f"{name} has more than {LONGEST_VALUE} characters, the most that a "
                    "hyperparameter may have; put it into a file of the folder"
                )
        return given

    @field_validator("channels")
    @classmethod
    def _are_channels(cls, given: dict[str, str]) -> dict[str, str]:
        return checked_channels(given)

    @field_validator("metrics")
    @classmethod
    def _are_expressions(cls, given: dict[str, str]) -> dict[str, str]:
        for name, regex in given.items():
            if not re.fullmatch(METRIC_NAME, name) or not regex or len(regex) > LONGEST_REGEX:
                raise ValueError(
                    f"{name}: a metric's name has 1 to 255 characters, and its expression 1 to "
                    f"{LONGEST_REGEX}"
                )
            try:
                groups = re.compile(regex).groups
            except re.error as error:
                raise ValueError(f"{name}: {regex!r} is no regular expression: {error}") from None
            if groups != 1:
                raise ValueError(
                    f"{name}: {regex!r} has {groups} groups; SageMaker takes the value from the "
                    r"one and only group, as in 'loss=(\S+)'; write (?:…) for the others"
                )
        return given


def checked_channels(given: dict[str, str]) -> dict[str, str]:
    """The channels of a job. Raises: ValueError: a name or a URI is none; names it."""
    for name, uri in given.items():
        if not re.fullmatch(CHANNEL_NAME, name) or name in TAKEN:
            raise ValueError(
                f"{name!r} is no name of a channel: letters, digits and ._- up to 64, and not "
                f"{' or '.join(TAKEN)}, which carry the script"
            )
        if not re.fullmatch(S3_PREFIX, uri):
            raise ValueError(f"{name}: {uri!r} is no S3 prefix such as s3://bucket/prefix")
    return given


def hyperparameter(value: Any) -> str:
    """A value as the service takes it, and as AWS's drivers read it back: text, or JSON."""
    return value if isinstance(value, str) else json.dumps(value)
