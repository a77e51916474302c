"""The documents that the gate writes, for whoever reads them: gate.json and provenance.json.

evaluation.json, which it judges, is ``steps.evaluate.evaluation_document``'s; to the gate that is
evidence from outside, which may hold anything. Hashes are SHA-256 in hexadecimal.
"""

from typing import Any, Literal, NotRequired, TypedDict

Outcome = Literal["pass", "reject", "none"]
"""``none``: no check of the kind was asked for."""


class Known(TypedDict, total=False):
    """What a gate that reads the scores knows beside its checks; null where it reads none."""

    champion: str | None
    """ARN of the model package that was compared with; ``none`` or ``unresolved``."""
    cold_start: str | None
    """The recipe's policy for the comparisons without a champion: ``pass`` or ``reject``."""
    confidence: float | None
    """The recipe's, one-sided; a check's own is that of its limits."""
    look: int | None
    """The number of this comparison with this champion on this test split; 0: nobody counted."""
    examples: int | None
    """Examples of the test split."""
    groups: int | None
    """Groups of the test split, or a little fewer."""
    slices: list[dict[str, Any]]
    """The fields of ``conditions.gate_check.Slice``, the worst slice of each metric first."""
    champion_artifact_sha256: str | None
    """It names the champion's model.tar.gz, as its table of scores says."""
    against_baselines: list[dict[str, Any]]
    """The fields of ``conditions.gate_check.AgainstBaseline``, of each baseline that has scores."""


class Gate(Known):
    """gate.json. Every key is always there; what is not finite, or of another type, is null."""

    verdict: Literal["pass", "reject"]
    reason: str
    """Sentences, at most 700 characters; of a rejection what did not pass."""
    checks: list[dict[str, Any]]
    """The fields of ``conditions.gate_check.Check``, in the metric's own unit. A gate.json of an
    early version has no ``kind`` in them."""
    kinds: dict[str, Outcome]
    """Every kind in the table of checks."""
    dataset_fingerprint: str | None
    """It names train and test together."""
    train_fingerprint: str | None
    test_fingerprint: str | None
    artifact_sha256: str | None
    """It names the model.tar.gz that was judged."""
    metrics: dict[str, float | None]
    """Metric of the test split → value, in its own unit."""
    champion_metrics: dict[str, float | None]
    """Metric → the champion's value; empty without one."""
    baselines: dict[str, dict[str, float | None]]
    """Baseline → metric → value."""


class RecipeRecord(TypedDict):
    """Which recipe a definition was compiled from."""

    file: str | None
    """Relative to the checkout, else its bare name; null for a recipe that was made in memory."""
    file_sha256: str | None
    overrides: list[str]
    """``field.path=value`` of each ``--set``."""
    sha256: str
    """The hash of recipe.json, the recipe as it was resolved."""


class OriginRecord(TypedDict):
    """The half of provenance.json that the definition knows; ``pipelines.compile`` writes it."""

    format: int
    pipeline: str
    workload: str
    primary_metric: str
    directions: dict[str, str]
    """Metric → which values are better: ``lower`` or ``higher``."""
    account: dict[str, Any]
    commit: str
    changes_sha256: str | None
    """The hash of what differed from the commit; null: nothing did."""
    recipe: RecipeRecord
    lock: dict[str, str | None]
    """File that says which packages are installed → its hash; null: there is none."""
    seed: int | None
    training: dict[str, Any]
    """``code_sha256`` of what shapes the weights, and ``start_from``."""
    images: dict[str, dict[str, str | None]]
    """Step → ``uri``, and ``digest`` where the URI ends in one."""
    code: dict[str, dict[str, str]]
    """Step → S3 URI of a folder that it runs → hash of the folder."""
    definition_sha256: str
    """The hash of the definition with the name of this record blanked."""


class Observed(TypedDict):
    """The half that only the run knows; null where the evidence lacks it."""

    artifact_sha256: str | None
    artifact_bytes: int | None
    packages_sha256: str | None
    """The hash of the artifact's packages.txt: what was installed where the model was trained."""
    checkpoint_step: int | None
    """Optimizer steps that the weights have seen."""
    identity: str | None
    """The name of the training, by the code that it really ran."""
    dataset_fingerprint: str | None
    train_fingerprint: str | None
    test_fingerprint: str | None
    train_manifests_sha256: str | None
    """The hash of every byte of the split's manifests."""
    test_manifests_sha256: str | None
    summary_manifests_sha256: NotRequired[str]
    """The same of the summary of the train split, where the evaluation read one instead of it."""
    evaluation_sha256: str | None
    gate_sha256: str | None
    scores_sha256: dict[str, str]
    """Table of scores → its hash."""
    verdict: Literal["pass", "reject"]
    champion: str | None
    base: NotRequired[dict[str, Any]]
    """The model that the training began with: sha256, model_package, uri; only where there is
    one."""


class Provenance(OriginRecord, Observed):
    """provenance.json: what stands behind a verdict."""
