"""Start training from weights that are not fresh; this is always an explicit setting.

Without that setting a training run resumes only its own checkpoints (``training.identity``). To
continue from other code, with another schedule or on other data, or to begin with a registered
model, the recipe sets ``train.start_from``. No torch here, because recipes are checked with this
module.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from training.checkpoint import marker
from training.checkpoint.marker import DamagedMarkerError, Lineage, Marker
from training.config import TrainConfig, parse_hyperparameter
from training.identity import Parts
from training.weights.finetuning import hugging_face_folder
from training.weights.finetuning.hugging_face_folder import ARCHIVE
from trainyard.common.errors import DataError, TrainingError

CHANNEL = "start"
BASE, BASE_MODEL = "base", "base_model"
"""Input channels of the evaluation: the model that a training run started from, and the baseline
model that was made from it.
"""
DIFFERENT = {*("code", "data", "mixture", "torch", "tuning", "workload", "workload_config"),
             *TrainConfig.model_fields}  # fmt: skip
"""Values that ``may_differ`` may contain."""
URI = r"^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]/\S*[^\s/]"
MODEL_PACKAGE = r"^arn:aws[a-z-]*:sagemaker:[a-z0-9-]+:\d{12}:model-package/\S+$"


class StartFrom(BaseModel):
    """Origin of the weights: a checkpoint, or a model."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    checkpoint: str | None = Field(
        default=None, pattern=URI + r"/?$", examples=["s3://my-bucket/run/checkpoints"]
    )
    """S3 URI of another training run's checkpoint (…/checkpoints/<key>/<identity>/step-00000500),
    or of its folder, of which the newest is used. The training continues at its step, with weights,
    optimizer state and averages, by the schedule that the settings give now."""

    may_differ: tuple[str, ...] = ()
    """Parts in which this training may differ from the checkpoint's: code, data, torch, tuning (the
    setting train.freeze), workload, workload_config, mixture, or a setting of the loop such as
    max_steps; any other difference is an error. Weights of data.inputs that change only after the
    checkpoint's step do not count as a difference."""

    model_package: str | None = Field(
        default=None,
        pattern=MODEL_PACKAGE,
        examples=["arn:aws:sagemaker:us-east-1:111122223333:model-package/my-models/1"],
    )
    """ARN of a registered model: the training begins at step 1 with its weights. Its files are
    looked up in the registry when the definition is compiled."""

    model: str | None = Field(
        default=None, pattern=URI + r"/?$", examples=["s3://my-bucket/run/model.tar.gz"]
    )
    """S3 URI of the model's model.tar.gz, or of the folder with its files, if the registry need not
    be queried or does not contain the model."""

    hugging_face: str | None = Field(
        default=None, pattern=URI + r"/?$", examples=["s3://my-bucket/llama-3-8b"]
    )
    """S3 URI of a folder in Hugging Face's layout: config.json, safetensors (with their index),
    tokenizer.json. The training begins at step 1 with its weights."""

    model_sha256: str | None = Field(
        default=None, pattern=r"^[0-9a-f]{64}$", examples=["0123456789abcdef" * 4]
    )
    """SHA-256 of that file, or of that folder (the job's log prints it); a different one is an
    error. None: not checked."""

    @property
    def uri(self) -> str | None:
        """URI of the job's input channel; None for a model package until it is looked up in the
        registry.
        """
        if self.model and self.model.endswith(ARCHIVE):
            return self.model
        folder = self.checkpoint or self.hugging_face or self.model
        # Without the slash the prefix of step-5 would also match step-50.
        return folder and folder.rstrip("/") + "/"

    def describe_start(self) -> str:
        """Describe the setting in words."""
        if self.checkpoint is None:
            hash_note = f" (SHA-256 {self.model_sha256[:12]}…)" if self.model_sha256 else ""
            package = f"model package {self.model_package}" if self.model_package else self.uri
            return f"begins at step 1 with the weights of {package}{hash_note}"
        differ = ", ".join(self.may_differ) or "nothing"
        return f"continues from checkpoint {self.checkpoint}, from which it may differ in {differ}"

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        model = self.model or self.model_package or self.hugging_face
        if (self.checkpoint is None) == (model is None):
            raise ValueError(
                f"checkpoint is {self.checkpoint} and model_package {model}: set one of the two"
            )
        if self.hugging_face and (self.model or self.model_package):
            raise ValueError(
                f"hugging_face is {self.hugging_face} and model_package "
                f"{self.model or self.model_package}: set one of the two"
            )
        if model and self.may_differ:
            raise ValueError(
                f"may_differ {', '.join(self.may_differ)} is for checkpoint: a run that "
                "starts from a model begins at step 1, and may differ in anything"
            )
        if self.model_sha256 and not model:
            raise ValueError(
                "model_sha256 is for model, model_package and hugging_face; leave it out"
            )
        if unknown := [name for name in self.may_differ if name not in DIFFERENT]:
            raise ValueError(
                f"may_differ: {', '.join(unknown)} is not a part of a training; choose among "
                f"{', '.join(sorted(DIFFERENT))}"
            )
        return self


@dataclass(frozen=True)
class Start:
    """The checkpoint or model that a job starts from, opened."""

    start_from: StartFrom
    folder: Path
    """Folder with the checkpoint's or the model's files."""

    metadata: Marker | None = None
    """Marker of the checkpoint."""

    sha256: str | None = None
    """Hash of the model's archive or folder."""

    @property
    def lineage(self) -> Lineage | None:
        """The lineage recorded in the checkpoint; None for a model."""
        return self.metadata.lineage if self.metadata else None

    @property
    def part(self) -> dict[str, Any]:
        """The part of the training's identity: what the content is, not where it is."""
        if self.start_from.hugging_face:
            return {"hugging_face": self.sha256}
        if self.metadata is None:
            return {"model": self.sha256, "model_package": self.start_from.model_package}
        assert self.lineage is not None  # noqa: S101 (``open_start`` checked it)
        return {"checkpoint": self.lineage.parts.name, "step": self.metadata.step}

    @property
    def base(self) -> dict[str, Any] | None:
        """Entry for the base model in the finished model's description; None for a checkpoint."""
        if self.metadata is not None:
            return None
        return {
            "sha256": self.sha256,
            "model_package": self.start_from.model_package,
            "uri": self.start_from.uri,
        }


def parse_start(text: str) -> StartFrom | None:
    """Parse the hyperparameter ``start_from``; return None if it is empty: fresh weights."""
    return parse_hyperparameter(StartFrom, "start_from", text) if text else None


def open_start(start_from: StartFrom, channel: Path) -> Start:
    """Open the checkpoint or model in the channel.

    Raises:
        TrainingError: there is no checkpoint with a lineage; or the model is not the expected one.
        DataError: there is no model.
    """
    return (
        _open_model(start_from, channel)
        if start_from.checkpoint is None
        else _find_newest(start_from, channel)
    )


def _open_model(start_from: StartFrom, channel: Path) -> Start:
    """Open the model in the channel, and check its SHA-256 if one is expected."""
    if start_from.hugging_face:
        if not hugging_face_folder.has_config(channel):
            names = sorted(path.name for path in channel.iterdir())[:5] if channel.is_dir() else []
            raise DataError(
                f"start_from.hugging_face {start_from.hugging_face}: holds no "
                f"{hugging_face_folder.CONFIG}, but {json.dumps(names)}; name the folder itself"
            )
        digest = hugging_face_folder.hash_folder(channel)
    else:
        if not hugging_face_folder.find_archive(
            channel
        ) and not hugging_face_folder.has_unpacked_model(channel):
            raise DataError(
                f"{channel / ARCHIVE}: is missing; start_from.model has to name a {ARCHIVE}, or "
                "the folder with a train step's model"
            )
        digest = hugging_face_folder.hash_model_files(channel)
    if start_from.model_sha256 not in (None, digest):
        raise TrainingError(
            f"start_from: the SHA-256 of {start_from.uri} is {digest}, expected "
            f"{start_from.model_sha256}: the file was replaced; restore it, or name another model"
        )
    return Start(start_from, channel, sha256=digest)


def _find_newest(start_from: StartFrom, channel: Path) -> Start:
    """Return the checkpoint in the channel, or the newest one in a training run's folder.

    Its files are hashed later.
    """
    if (channel / marker.NAME).is_file():
        folders = [channel]
    else:
        folders = [
            marker.build_folder_path(channel, step) for step in reversed(marker.list_steps(channel))
        ]
    damage = ""
    for folder in folders:
        try:
            # The channel's folder is not named after a step, unlike those in a training run's
            # folder.
            metadata = marker.load_marker(folder, check_name=folder != channel)
        except DamagedMarkerError as error:
            damage = damage or f" ({folder.name}: {error})"
            continue
        if metadata.lineage is None:
            raise TrainingError(
                f"start_from.checkpoint {start_from.checkpoint}: its {marker.NAME} does not say "
                "what it was trained with; start from its registered "
                "model (start_from.model_package), or train again"
            )
        return Start(start_from, folder, metadata=metadata)
    names = sorted(path.name for path in channel.iterdir())[:5] if channel.is_dir() else []
    raise TrainingError(
        f"start_from.checkpoint {start_from.checkpoint}: holds no checkpoint with a complete "
        f"{marker.NAME}{damage}, but {json.dumps(names)}; name a folder that holds step-…, or one "
        "such folder"
    )


def check_step(start: Start, config: TrainConfig) -> None:
    """Check that the checkpoint is before the last step.

    Raises:
        TrainingError: nothing is left to train after the checkpoint.
    """
    if start.metadata is not None and start.metadata.step >= config.max_steps:
        raise TrainingError(
            f"start_from.checkpoint {start.start_from.checkpoint} is after step "
            f"{start.metadata.step}, and max_steps is {config.max_steps}: nothing is left to "
            "train; raise train.loop.max_steps and name max_steps in start_from.may_differ"
        )


def _list_phases(parts: Parts, step: int) -> list[dict[str, Any]] | None:
    """Return the mixture's phases that begin in the first ``step`` steps; None without a
    mixture.
    """
    if parts.mixture is None:
        return None
    return [phase for phase in parts.mixture if phase["step"] < step]


def check_differences(start: Start, parts: Parts) -> dict[str, str]:
    """Check what differs from the checkpoint's training run; return a description of each
    difference, by part.

    Raises:
        TrainingError: there is a difference that ``may_differ`` does not name.
    """
    if start.lineage is None:
        return {}
    before = start.lineage.parts
    differences = parts.describe_differences(before)
    differences.pop("start", None)  # start_from itself causes this difference
    may_differ = start.start_from.may_differ
    if start.metadata and _list_phases(parts, start.metadata.step) == _list_phases(
        start.lineage.parts, start.metadata.step
    ):
        # The mixture was the same up to the checkpoint; later changes are allowed.
        may_differ = (*may_differ, "mixture")
    refusals = {n: w for n, w in differences.items() if n.partition(".")[0] not in may_differ}
    if refusals:
        names = sorted({name.partition(".")[0] for name in refusals})
        raise TrainingError(
            f"start_from.checkpoint {start.start_from.checkpoint} is of another training: "
            f"{'; '.join(refusals.values())}; set it as in that one, or add "
            f"{', '.join(names)} to train.start_from.may_differ"
        )
    return differences
