"""evaluation.json, as the evaluate step writes it: no NaN, which becomes null."""

from typing import NotRequired, TypedDict


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


class Dataset(TypedDict):
    """What was measured on. Hashes are SHA-256 in hexadecimal."""

    fingerprint: str
    """It names train and test together."""
    train_fingerprint: str
    test_fingerprint: str
    train_samples: int
    test_samples: int
    test_records: int
    train_manifests_sha256: str
    """The hash of every byte of the split's manifests."""
    test_manifests_sha256: str


class Leakage(TypedDict):
    """Counts of what of the test split is in the train split, too."""

    examples: int
    """Rows whose content is in train."""
    groups: int
    """Distinct groups."""
    checked_examples: int
    checked_groups: int


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
    """Whether that disturbed it: then the figures are upper limits."""
    rounds: int


class Training(TypedDict):
    """What the artifact says of how the weights were made."""

    identity: str
    stretches: list[dict[str, object]]
    """Each uninterrupted part of the training."""


class Model(TypedDict):
    """What the artifact says of the model."""

    steps: int
    """Optimizer steps."""
    parameters: int
    world_size: int
    """Ranks that trained it."""
    packages_sha256: str
    training: Training


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
    latency: Latency
    artifact: Artifact
    scores: dict[str, Artifact]
    """Table of scores → its size and hash."""
    model: Model
