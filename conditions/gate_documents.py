"""The documents that the gate writes, as types for their readers: gate.json and provenance.json.

``steps.evaluate.evaluation_document`` describes evaluation.json, which the gate judges; the gate
expects that it may hold anything. Hashes are SHA-256 in hexadecimal.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict

from conditions.gate_check import Slice
from trainyard.common import atomic_file
from trainyard.common.errors import GateError
from trainyard.common.hashes import file_sha256, file_sha256_or_none

Outcome = Literal["pass", "reject", "none"]
"""Outcome of a kind; ``none``: no check of the kind was asked for."""


class GateFacts(TypedDict, total=False):
    """Facts in gate.json beside the checks, from the scores; null if no scores are read."""

    champion: str | None
    """ARN of the compared model package; ``none`` or ``unresolved``."""
    cold_start: str | None
    """The recipe's policy for comparisons without a champion: ``pass`` or ``reject``."""
    confidence: float | None
    """The recipe's one-sided confidence; a check's own is that of its limits."""
    look: int | None
    """Number of this comparison with this champion on this test split; 0: not counted."""
    examples: int | None
    """Examples of the test split."""
    groups: int | None
    """Groups of the test split, or a little fewer."""
    slices: list[dict[str, Any]]
    """The fields of ``conditions.gate_check.Slice``, the worst slice of each metric first."""
    champion_artifact_sha256: str | None
    """Hash of the champion's model.tar.gz, according to its table of scores."""


class Gate(GateFacts):
    """Content of gate.json. Every key is always there; null for a number that is not finite, or a
    value of another type.
    """

    verdict: Literal["pass", "reject"]
    reason: str
    """Sentences, at most 700 characters; of a rejection the checks that failed."""
    checks: list[dict[str, Any]]
    """The fields of ``conditions.gate_check.Check``, in the metric's own unit."""
    kinds: dict[str, Outcome]
    """Outcome of every kind in the table of checks."""
    dataset_fingerprint: str | None
    """Fingerprint of train and test together."""
    train_fingerprint: str | None
    test_fingerprint: str | None
    artifact_sha256: str | None
    """Hash of the judged model.tar.gz."""
    metrics: dict[str, float | None]
    """Metric of the test split → value, in its own unit."""
    champion_metrics: dict[str, float | None]
    """Metric → the champion's value; empty without a champion."""
    baselines: dict[str, dict[str, float | None]]
    """Baseline → metric → value."""


class RecipeRecord(TypedDict):
    """The recipe that a definition was compiled from."""

    file: str | None
    """Path relative to the checkout, else the bare name; null for a recipe created in memory."""
    file_sha256: str | None
    overrides: list[str]
    """``field.path=value`` of each ``--set``."""
    sha256: str
    """Hash of recipe.json, the resolved recipe."""


class OriginRecord(TypedDict):
    """The half of provenance.json that the definition knows; ``pipelines.compile`` writes it."""

    format: int
    pipeline: str
    workload: str
    primary_metric: str
    directions: dict[str, str]
    """Metric → better values: ``lower`` or ``higher``."""
    account: dict[str, Any]
    commit: str
    changes_sha256: str | None
    """Hash of the differences from the commit; null: none."""
    recipe: RecipeRecord
    lock: dict[str, str | None]
    """File that lists the installed packages → its hash; null: no such file."""
    seed: int | None
    training: dict[str, Any]
    """``code_sha256`` of the code and settings that shape the weights, and ``start_from``."""
    images: dict[str, dict[str, str | None]]
    """Step → ``uri``, and ``digest`` where the URI ends in one."""
    code: dict[str, dict[str, str]]
    """Step → S3 URI of a folder that it runs → hash of the folder."""
    definition_sha256: str
    """Hash of the definition with the name of this record blanked."""


class RunRecord(TypedDict):
    """The half of provenance.json that only the run knows; null where the evidence lacks it."""

    artifact_sha256: str | None
    artifact_bytes: int | None
    packages_sha256: str | None
    """Hash of the artifact's packages.txt: the packages installed where the model was trained."""
    checkpoint_step: int | None
    """Optimizer steps that the weights have seen."""
    identity: str | None
    """Name of the training, from the code that really ran."""
    dataset_fingerprint: str | None
    train_fingerprint: str | None
    test_fingerprint: str | None
    train_manifests_sha256: str | None
    """Hash of every byte of the split's manifests."""
    test_manifests_sha256: str | None
    summary_manifests_sha256: NotRequired[str]
    """Hash of the manifests of the train split's summary, where the evaluation read it instead of
    the train split."""
    evaluation_sha256: str | None
    gate_sha256: str | None
    scores_sha256: dict[str, str]
    """Table of scores → its hash."""
    verdict: Literal["pass", "reject"]
    training_precision: NotRequired[str]
    """Type of the training's matrix products: what ``precision: auto`` became; only of our loop."""
    champion: str | None
    base: NotRequired[dict[str, Any]]
    """The model that the training started from: sha256, model_package, uri; only where there was
    one."""


# Evidence that the gate's checks look at.

if TYPE_CHECKING:  # numpy, pyarrow and SciPy: not where no scores are read
    from conditions.improvement import Improvement
    from conditions.score_tables import ScoreTables


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricComparison:
    """A metric of the two models on the same examples."""

    metric: str
    challenger: float
    champion: float
    improvement: "Improvement"
    confidence: float
    """Confidence of each of the improvement's limits."""
    in_order: bool = False
    """True if the groups have an order, and neighbours count as alike."""


@dataclass(slots=True, kw_only=True)
class Evidence:
    """Inputs of the checks, and the slices that they add beside their rows."""

    evaluation: Any
    """Content of evaluation.json, unchecked."""
    scores: "ScoreTables | None" = None
    """The scores of single examples; None where no check needs them."""
    comparisons: Mapping[str, MetricComparison] = field(default_factory=dict)
    """Metric → comparison of the two models; for checks that need ``champion``."""
    slices: list[Slice] = field(default_factory=list)
    """Judged slices, for gate.json."""

    @property
    def sums(self) -> "ScoreTables":
        """The scores of single examples.

        Raises:
            GateError: the asking check has not declared that it needs ``scores``.
        """
        if self.scores is None:
            raise GateError("a check looks at the scores, but its entry does not say so in needs")
        return self.scores


# The origin of a verdict, in one record: written beside gate.json, in the same job.
#
# ``provenance.json`` holds what the definition knew (commit, recipe, code, images: see
# ``pipelines.compile.provenance_asset``) and what the run adds: the artifact, the data, the
# evidence, the verdict. ``record.json`` holds the part of it that Register gives to the model
# registry, all strings. No torch, no SDK.

UNKNOWN = "unknown"
"""Placeholder in the registry, where a value is a string and never missing."""


def write(root: Path, gate: Gate) -> None:
    """Write provenance.json and record.json of the verdict ``gate``, whose file is written.

    ``root``: /opt/ml. Evidence that is missing is null; the gate has rejected it by then.
    """
    inputs, output = root / "processing/input", root / "processing/output/gate"
    origin = _read(inputs / "provenance/provenance.json")
    evaluation = inputs / "evaluation/evaluation.json"
    document = origin | dict(
        observe_run(
            _read(evaluation),
            gate,
            file_sha256_or_none(evaluation),
            file_sha256_or_none(output / "gate.json"),
            {
                table.name: file_sha256(table)
                for table in sorted((inputs / "scores").glob("*.parquet"))
            },
        )
    )
    content = json.dumps(document, indent=1, allow_nan=False)
    output.mkdir(parents=True, exist_ok=True)
    atomic_file.write(output / "provenance.json", content)
    summary = record(document, hashlib.sha256(content.encode()).hexdigest())
    atomic_file.write(output / "record.json", text(summary))


def observe_run(
    evaluation: Any,
    gate: Gate,
    evaluation_sha256: str | None,
    gate_sha256: str | None,
    scores_sha256: Mapping[str, str],
) -> RunRecord:
    """Return the half of the record that only the run knows.

    Args:
        evaluation: content of evaluation.json, unchecked.
        scores_sha256: hashes of the score tables that the gate read; a gate that reads none takes
            the hashes in the evaluation.
    """
    base = {
        n: _value_at(evaluation, "model", "base", n) for n in ("sha256", "model_package", "uri")
    }
    run_record: RunRecord = {
        "artifact_sha256": _value_at(evaluation, "artifact", "sha256"),
        "artifact_bytes": _value_at(evaluation, "artifact", "bytes"),
        "packages_sha256": _value_at(evaluation, "model", "packages_sha256"),
        "checkpoint_step": _value_at(evaluation, "model", "steps"),
        "identity": _value_at(evaluation, "model", "training", "identity"),
        "dataset_fingerprint": _value_at(evaluation, "dataset", "fingerprint"),
        "train_fingerprint": _value_at(evaluation, "dataset", "train_fingerprint"),
        "test_fingerprint": _value_at(evaluation, "dataset", "test_fingerprint"),
        "train_manifests_sha256": _value_at(evaluation, "dataset", "train_manifests_sha256"),
        "test_manifests_sha256": _value_at(evaluation, "dataset", "test_manifests_sha256"),
        "evaluation_sha256": evaluation_sha256,
        "gate_sha256": gate_sha256,
        "scores_sha256": dict(scores_sha256) or _tables(evaluation),
        "verdict": gate["verdict"],
        "champion": gate["champion"],
    }
    if precision := _value_at(evaluation, "model", "precision"):
        run_record["training_precision"] = precision
    if base["sha256"]:
        run_record["base"] = base
    if summary := _value_at(evaluation, "dataset", "summary_manifests_sha256"):
        run_record["summary_manifests_sha256"] = summary
    return run_record


def record(provenance: Mapping[str, Any], provenance_sha256: str) -> dict[str, str]:
    """Return the registry's metadata, by name."""
    names = (
        "commit",
        "changes_sha256",
        "definition_sha256",
        "artifact_sha256",
        "packages_sha256",
        "evaluation_sha256",
        "gate_sha256",
        "dataset_fingerprint",
        "checkpoint_step",
        "identity",
        "seed",
        "champion",
    )
    values = {name: provenance.get(name) for name in names}
    values["recipe_sha256"] = _value_at(provenance, "recipe", "sha256")
    values["provenance_sha256"] = provenance_sha256
    return {name: UNKNOWN if value is None else str(value) for name, value in values.items()}


def text(record: Mapping[str, str]) -> str:
    """Return the content of record.json."""
    return json.dumps(record, indent=1)


def _tables(evaluation: Any) -> dict[str, str]:
    """Return name of a score table → its hash, as the evaluation says."""
    scores = evaluation.get("scores") if isinstance(evaluation, Mapping) else None
    score_tables = scores if isinstance(scores, Mapping) else {}
    hashes = {str(name): _value_at(table, "sha256") for name, table in score_tables.items()}
    return {name: digest for name, digest in hashes.items() if isinstance(digest, str)}


def _read(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _value_at(value: Any, *path: str) -> Any:
    """Return the string or number at ``path``; None for anything else: not comparable."""
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, str | int) else None
