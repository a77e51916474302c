"""Settings of the train step for a user's training script."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from pydantic import Field, JsonValue, field_validator, model_validator

from steps.config import S3Uri, Section

# File systems that a training job mounts, as a channel or instead of the shards in S3.


class FsxLustre(Section):
    """An FSx for Lustre file system whose data repository association mirrors the S3 prefix."""

    file_system_id: str = Field(pattern=r"^fs-[0-9a-f]{8,}$", examples=["fs-0123456789abcdef0"])
    """Id of the file system; it must be reachable from ``aws.vpc``."""

    directory_path: str = Field(pattern=r"^/\S+[^/]$", examples=["/fsx/corpus"])
    """The folder (``/<mount name>/...``) that is associated with ``s3://<bucket>/<prefix>``."""


class FileSystem(FsxLustre):
    """A folder of a file system, which is mounted read-only."""

    type: Literal["FSxLustre", "EFS"]
    """Kind of the file system."""

    directory_path: str = Field(pattern=r"^/\S*$", examples=["/fsx/corpus"])
    """The folder: of FSx for Lustre ``/<mount name>/...``, of EFS any, ``/`` included."""

    @model_validator(mode="after")
    def _check_mount_name(self) -> Self:
        if self.type == "FSxLustre" and not self.directory_path.strip("/"):
            raise ValueError(
                f"directory_path: is {self.directory_path!r}; a path on FSx for Lustre begins with "
                "the mount name, as in /fsx/corpus: aws fsx describe-file-systems shows it"
            )
        return self

    def __str__(self) -> str:
        return f"{self.file_system_id}:{self.directory_path}"


CHANNEL_NAME = r"^[A-Za-z0-9._-]{1,64}$"
"""Pattern of a ChannelName (API reference, Channel)."""

METRIC_NAME, LONGEST_REGEX, MOST_METRICS = r"^.{1,255}$", 500, 40
"""Limits of MetricDefinition and AlgorithmSpecification.MetricDefinitions (API reference)."""

RESERVED_CHANNELS = ("code", "sm_drivers")
"""Channels that carry the script itself and AWS's drivers."""

MOST_ARGUMENTS, LONGEST_NAME, LONGEST_VALUE = 100, 256, 2500
"""Limits of HyperParameters (API reference, CreateTrainingJob)."""


@dataclass(frozen=True)
class Project:
    """A folder of the user's that is sent to a job, and the names of its files with a role."""

    files: Mapping[str, bytes] = field(repr=False)
    """Content of each file, by its relative path with forward slashes."""

    script: str
    """Name of the script in it."""

    requirements: str | None = None
    """Name of the requirements file in it; None if there is nothing to install."""

    driver: str | None = None
    inference: str | None = None
    request: str | None = None
    """Name of the sample request in it."""


class ScriptSettings(Section):
    """A training script, its inputs, and the launcher of its processes."""

    script: str | None = None
    """A training script of your own (.py, or .sh with launcher none), relative to the recipe: it
    runs unchanged, and its whole folder is sent with it. Instead of ``loop``."""

    source: str | None = None
    """Folder that is sent, relative to the recipe; it must contain the script. Default: the
    script's own folder. A file .trainyardignore in it, in .gitignore's syntax, lists what is not
    sent."""

    source_mb: float = Field(default=20, gt=0)
    """Maximum size of that folder in MB; a single file may have a quarter of it. More is assumed to
    be data or weights, which belong in a channel."""

    requirements: str | None = None
    """Requirements file, relative to the recipe, which pip installs before the script starts;
    default: the folder's own requirements.txt, if it has one."""

    arguments: dict[str, JsonValue] = Field(default_factory=dict, max_length=MOST_ARGUMENTS)
    """Hyperparameters of the job: ``epochs: 3`` gives the script ``--epochs 3``."""

    channels: dict[str, S3Uri] = Field(default_factory=dict, max_length=18)
    """Mapping of name to S3 prefix. The script finds its objects in folder $SM_CHANNEL_<NAME>. If
    the recipe has a data section, the shards are further channels train and validation."""

    file_systems: dict[str, FileSystem] = Field(
        default_factory=dict, max_length=18, exclude_if=lambda value: not value
    )
    """Mapping of name to file system (FSx for Lustre, EFS), mounted as the channel of that name."""

    metrics: dict[str, str] = Field(default_factory=dict, max_length=MOST_METRICS)
    """Name → regular expression with one group, by which SageMaker reads the metric's value from
    the lines that the script prints."""

    launcher: Literal["torchrun", "mpi", "none", "own"] = "torchrun"
    """Launcher of a node's processes: torchrun, or mpi (mpirun). A script may also have none, which
    runs it once per node, or own, for which see ``driver``."""

    driver: str | None = None
    """Python file in the folder that is sent, relative to the recipe, which with launcher own runs
    once per node and starts the script's processes."""

    @property
    def sources(self) -> dict[str, str | FileSystem]:
        """Return the source of each channel's files: an S3 prefix, or a file system."""
        return {**self.channels, **self.file_systems}

    @model_validator(mode="after")
    def _check_names_differ(self) -> Self:
        if shared_names := sorted({*self.channels} & {*self.file_systems}):
            raise ValueError(
                f"file_systems.{shared_names[0]}: is also a name in channels; choose another name"
            )
        return self

    @field_validator("arguments")
    @classmethod
    def _check_hyperparameters(cls, arguments: dict[str, Any]) -> dict[str, Any]:
        for name, value in arguments.items():
            if not re.fullmatch(r"\S{1,256}", name) or name.startswith("-"):
                raise ValueError(f"{name!r} is not an argument's name; write epochs for --epochs")
            if value is None:
                raise ValueError(f"{name} is null; leave it out, or give it a value")
            if len(format_hyperparameter(value)) > LONGEST_VALUE:
                raise ValueError(
                    f"{name} has more than {LONGEST_VALUE} characters, the maximum for a "
                    "hyperparameter; put it into a file of the folder"
                )
        return arguments

    @field_validator("channels")
    @classmethod
    def _check_channels(cls, channels: dict[str, str]) -> dict[str, str]:
        return check_channels(channels)

    @field_validator("file_systems")
    @classmethod
    def _check_file_system_names(cls, channels: dict[str, FileSystem]) -> dict[str, FileSystem]:
        for name in channels:
            check_channel_name(name)
        return channels

    @field_validator("metrics")
    @classmethod
    def _check_expressions(cls, expressions: dict[str, str]) -> dict[str, str]:
        for name, regex in expressions.items():
            if not re.fullmatch(METRIC_NAME, name) or not regex or len(regex) > LONGEST_REGEX:
                raise ValueError(
                    f"{name}: a metric's name has 1 to 255 characters, and its expression 1 to "
                    f"{LONGEST_REGEX}"
                )
            try:
                groups = re.compile(regex).groups
            except re.error as error:
                raise ValueError(
                    f"{name}: {regex!r} is not a regular expression: {error}"
                ) from None
            if groups != 1:
                raise ValueError(
                    f"{name}: {regex!r} has {groups} groups; SageMaker takes the value from the "
                    r"one and only group, as in 'loss=(\S+)'; write (?:…) for the others"
                )
        return expressions


def check_channels(channels: dict[str, str]) -> dict[str, str]:
    """Return the channels of a job after checking their names.

    Raises:
        ValueError: a name is invalid; the message names it.
    """
    for name in channels:
        check_channel_name(name)
    return channels


def check_channel_name(name: str) -> None:
    """Check the name of a channel.

    Raises:
        ValueError: the name is invalid, or reserved for a channel that carries the script.
    """
    if not re.fullmatch(CHANNEL_NAME, name) or name in RESERVED_CHANNELS:
        raise ValueError(
            f"{name!r} is not a channel's name; expected up to 64 letters, digits and ._-, and "
            f"not {' or '.join(RESERVED_CHANNELS)}, which carry the script"
        )


def format_hyperparameter(value: Any) -> str:
    """Return a value as a string: unchanged if it is one, otherwise as JSON, for AWS's drivers."""
    return value if isinstance(value, str) else json.dumps(value)
