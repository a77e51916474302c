"""evaluation.json, as the evaluate step writes it: no NaN, which becomes null.

A script of one's own is scored by no code of ours: what only our workloads know is null there.
"""

import json
import math
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from trainyard.common import atomic_file


class Metric(TypedDict):
    """A metric of the test split, in its own unit."""

    value: float | None
    standard_error: float | None
    """Over groups; null where there is none."""


class Artifact(TypedDict):
    """A model.tar.gz, or a table of scores."""

    bytes: int
    sha256: str


class Champion(TypedDict):
    """What the challenger is compared with."""

    arn: str
    """The ARN of its model package; ``none`` or ``unresolved`` where there is none."""
    metrics: dict[str, Metric]
    artifact: Artifact | None
    error: str | None
    """Why it cannot be compared; null where it can, or where there is none."""


class Channel(TypedDict):
    """A folder of data that a script was given."""

    files: int
    bytes: int
    sha256: str
    """Of the JSON object: name of a file → its size and SHA-256."""


class Dataset(TypedDict):
    """What was measured on. Hashes are SHA-256 in hexadecimal."""

    fingerprint: str
    """It names train and test together."""
    train_fingerprint: str | None
    test_fingerprint: str
    train_samples: int | None
    test_samples: int
    test_records: int
    train_manifests_sha256: str | None
    """The hash of every byte of the split's manifests; null where a script was scored."""
    test_manifests_sha256: str | None
    summary_manifests_sha256: NotRequired[str]
    """The same of all manifests in the summary of the train split, where one was read."""
    channels: NotRequired[dict[str, Channel]]
    """Of a script; ``test_fingerprint`` is made of all but ``train``."""


class Leakage(TypedDict):
    """Counts of what of the test split is in the train split, too; null: a script did not say."""

    examples: int | None
    """Rows whose content is in train."""
    groups: int | None
    """Distinct groups."""
    checked_examples: int | None
    checked_groups: int | None


class NearDuplicates(TypedDict):
    """Counts of test examples of which nearly the same is in train."""

    examples: int
    checked_examples: int


class Latency(TypedDict):
    """Single requests, from arrays in memory to outputs in memory."""

    p50_ms: float
    """Milliseconds."""
    p95_ms: float
    samples: int
    """Requests that were measured."""
    device: str
    threads: int
    waited_share: float | None
    """Part of the time in which the process wanted a core and had none; null: nobody can tell."""
    busy: bool
    """True if that disturbed it: then the figures are upper limits."""
    rounds: int


class Training(TypedDict):
    """What the artifact says of how the weights were made."""

    identity: str | None
    stretches: list[dict[str, object]]
    """Each uninterrupted part of the training."""


class Base(TypedDict):
    """The model that the training began with."""

    sha256: str
    """Of its model.tar.gz, or of its folder (``training.finetuning.hugging_face_folder``)."""
    model_package: str | None
    uri: str


class Model(TypedDict):
    """What the artifact says of the model."""

    steps: int | None
    """Optimizer steps."""
    parameters: int | None
    world_size: int | None
    """Ranks that trained it."""
    packages_sha256: str | None
    training: Training
    base: NotRequired[Base]


class Evaluation(TypedDict):
    """evaluation.json."""

    metrics: dict[str, Metric]
    champion: Champion
    baselines: dict[str, dict[str, float | None]]
    """Baseline → metric → value."""
    dataset: Dataset
    leakage: Leakage
    near_duplicates: NotRequired[NearDuplicates]
    """They are looked for where the recipe asks for them: reading all of train takes time."""
    latency: Latency | None
    artifact: Artifact
    scores: dict[str, Artifact]
    """Table of scores → its size and hash."""
    model: Model


def write(folder: Path, evaluation: Evaluation) -> None:
    """Write evaluation.json into the folder, and print it."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(_without_nan(evaluation), indent=1, allow_nan=False)
    atomic_file.write(folder / "evaluation.json", text)
    print(text, flush=True)


def _without_nan(value: Any) -> Any:
    """JSON has no NaN: null instead, which the gate rejects as missing."""
    if isinstance(value, dict):
        return {key: _without_nan(inner) for key, inner in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
