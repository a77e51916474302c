"""Define evaluation.json, as the evaluate step writes it. NaN becomes null.

Our code does not score the model of a user's script, so fields that only our workloads know are
null then.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from trainyard.common import atomic_file


class Metric(TypedDict):
    """A metric of the test split, in its own unit."""

    value: float | None
    standard_error: float | None
    """Standard error over groups; null if there is none."""


class Artifact(TypedDict):
    """A model.tar.gz, or a table of scores."""

    bytes: int
    sha256: str


class Champion(TypedDict):
    """The model with which the challenger is compared."""

    arn: str
    """ARN of its model package; ``none`` or ``unresolved`` if there is no champion."""
    metrics: dict[str, Metric]
    artifact: Artifact | None
    """Null if there is no champion."""
    error: str | None
    """Why it cannot be compared; null if it can, or there is no champion."""


class Channel(TypedDict):
    """A folder of data that a script was given."""

    files: int
    bytes: int
    sha256: str
    """Hash of a JSON object, {name of the file: [its size, its SHA-256]}."""


class Dataset(TypedDict):
    """Data on which the model was measured. Hashes are SHA-256 in hexadecimal."""

    fingerprint: str
    """Fingerprint of train and test together."""
    train_fingerprint: str | None
    test_fingerprint: str
    train_samples: int | None
    test_samples: int
    test_records: int
    train_manifests_sha256: str | None
    """Hash of every byte of the split's manifests; null if a script was evaluated."""
    test_manifests_sha256: str | None
    summary_manifests_sha256: NotRequired[str]
    """Hash of all manifests in the summary of the train split, if it was read."""
    channels: NotRequired[dict[str, Channel]]
    """Channels of a script; ``test_fingerprint`` is computed from all except ``train``."""


class Leakage(TypedDict):
    """Counts of test data that is also in the train split; null if a script did not report them."""

    examples: int | None
    """Rows whose content is also in train."""
    groups: int | None
    """Distinct groups that are also in train."""
    checked_examples: int | None
    checked_groups: int | None


class Latency(TypedDict):
    """Times of single requests, from arrays in memory to outputs in memory."""

    p50_ms: float
    """Milliseconds."""
    p95_ms: float
    samples: int
    """Requests that were measured."""
    device: str
    threads: int


class Training(TypedDict):
    """The artifact's description of how the weights were trained."""

    identity: str | None
    stretches: list[dict[str, object]]
    """Consecutive steps under the same conditions (``training.checkpoint.marker.Stretch``)."""


class Base(TypedDict):
    """The model from which the training started."""

    sha256: str
    """Hash of its model.tar.gz, or of its folder
    (``training.weights.finetuning.hugging_face_folder``).
    """
    model_package: str | None
    uri: str


class Model(TypedDict):
    """The artifact's description of the model."""

    steps: int | None
    """Optimizer steps."""
    parameters: int | None
    world_size: int | None
    """Number of ranks that trained it."""
    packages_sha256: str | None
    precision: NotRequired[str]
    """Type of the matrix products in our loop's training: what ``auto`` was resolved to."""
    training: Training
    base: NotRequired[Base]


class Evaluation(TypedDict):
    """Content of evaluation.json."""

    metrics: dict[str, Metric]
    champion: Champion
    baselines: dict[str, dict[str, float | None]]
    """Metrics of each baseline, {baseline: {metric: value}}."""
    dataset: Dataset
    leakage: Leakage
    latency: Latency | None
    artifact: Artifact
    scores: dict[str, Artifact]
    """Size and hash of each table of scores, by its file's name."""
    model: Model


def write_evaluation(folder: Path, evaluation: Mapping[str, Any]) -> None:
    """Write an ``Evaluation``, which may contain NaN, to the folder as JSON, and print it."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(_replace_nan(evaluation), indent=1, allow_nan=False)
    atomic_file.write_file(folder / "evaluation.json", text)
    print(text, flush=True)


def _replace_nan(value: Any) -> Any:
    """Replace NaN and infinity, which JSON lacks, by null, which the gate rejects."""
    if isinstance(value, dict):
        return {key: _replace_nan(inner) for key, inner in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
