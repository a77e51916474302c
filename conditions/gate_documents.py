"""The documents that the gate writes, as types for their readers: gate.json and provenance.json.

``steps.evaluate.evaluation_document`` describes evaluation.json, which the gate judges. The gate
has to expect any content in it. Hashes are SHA-256 in hexadecimal.
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
from trainyard.common.hashes import hash_existing_file, hash_file

Outcome = Literal["pass", "reject", "none"]
"""Outcome of all checks of a kind. ``none``: the recipe declares no check of the kind."""


class GateFacts(TypedDict, total=False):
    """Facts in gate.json from the scores, in addition to the checks. Null if none are read."""

    champion: str | None
    """ARN of the compared model package, or ``none``, or ``unresolved``."""
    cold_start: str | None
    """The recipe's policy for comparisons without a champion: ``pass`` or ``reject``."""
    confidence: float | None
    """The recipe's one-sided confidence. Each check also has the confidence of its own limits."""
    look: int | None
    """Number of this comparison with this champion on this test split, or 0 if not counted."""
    examples: int | None
    """Examples of the test split."""
    groups: int | None
    """Number of groups of the test split, or a slightly smaller number."""
    slices: list[dict[str, Any]]
    """The fields of ``conditions.gate_check.Slice``, the worst slice of each metric first."""
    champion_artifact_sha256: str | None
    """Hash of the champion's model.tar.gz, according to its table of scores."""


class Gate(GateFacts):
    """Content of gate.json. It always has every key.

    A number that is not finite, or a value of another type, is null.
    """

    verdict: Literal["pass", "reject"]
    reason: str
    """Sentences of at most 700 characters. For a rejection, they name the failed checks."""
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
    """Value of each metric on the test split, by name, in its own unit."""
    champion_metrics: dict[str, float | None]
    """The champion's value of each metric, by name; empty without a champion."""
    baselines: dict[str, dict[str, float | None]]
    """Each baseline's metrics: {baseline: {metric: value}}."""


class RecipeRecord(TypedDict):
    """The recipe that a definition was compiled from."""

    file: str | None
    """Path relative to the checkout, or the bare name if it is outside. Null for a recipe that was
    created in memory."""
    file_sha256: str | None
    overrides: list[str]
    """``field.path=value`` of each ``--set``."""
    sha256: str
    """Hash of recipe.json, the resolved recipe."""


class OriginRecord(TypedDict):
    """The part of provenance.json known at compile time. ``pipelines.compile`` writes it."""

    format: int
    pipeline: str
    workload: str
    primary_metric: str
    directions: dict[str, str]
    """Better values of each metric, by name: ``lower`` or ``higher``."""
    account: dict[str, Any]
    commit: str
    changes_sha256: str | None
    """Hash of the uncommitted changes, or null if there are none."""
    recipe: RecipeRecord
    lock: dict[str, str | None]
    """Hash of each file that lists packages to install, by path; null if the file is missing."""
    seed: int | None
    training: dict[str, Any]
    """``code_sha256`` of the code and settings that affect the weights, and ``start_from``."""
    images: dict[str, dict[str, str | None]]
    """For each step, the ``uri`` of its image, and the ``digest`` if the URI ends in one."""
    code: dict[str, dict[str, str]]
    """For each step, the code folders that it runs: {step: {S3 URI of the folder: its hash}}."""
    definition_sha256: str
    """Hash of the definition, computed with this record's name left blank."""


class RunRecord(TypedDict):
    """The part of provenance.json known only after the run; null if evidence is missing."""

    artifact_sha256: str | None
    artifact_bytes: int | None
    packages_sha256: str | None
    """Hash of the artifact's packages.txt: the packages installed where the model was trained."""
    checkpoint_step: int | None
    """Number of optimizer steps that the weights have been trained for."""
    identity: str | None
    """Identity of the training, computed from the code that actually ran."""
    dataset_fingerprint: str | None
    train_fingerprint: str | None
    test_fingerprint: str | None
    train_manifests_sha256: str | None
    """Hash of every byte of the split's manifests."""
    test_manifests_sha256: str | None
    summary_manifests_sha256: NotRequired[str]
    """Hash of the manifests of the train split's summary. Only if the evaluation read the summary
    instead of the train split."""
    evaluation_sha256: str | None
    gate_sha256: str | None
    scores_sha256: dict[str, str]
    """Hash of each table of scores, by file name."""
    verdict: Literal["pass", "reject"]
    training_precision: NotRequired[str]
    """Data type of the training's matrix products, to which ``precision: auto`` was resolved; only
    for our loop."""
    champion: str | None
    base: NotRequired[dict[str, Any]]
    """The model that the training started from: sha256, model_package, uri. Only if there was
    one."""


# Evidence that the gate's checks use.

if TYPE_CHECKING:  # these import numpy, pyarrow and SciPy; a gate without scores needs none
    from conditions.improvement import Improvement
    from conditions.score_tables import ScoreTables


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricComparison:
    """Comparison of the two models' values of one metric on the same examples."""

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
    """Inputs of the checks, and the slices that they add to their rows."""

    evaluation: Any
    """Content of evaluation.json, unchecked."""
    scores: "ScoreTables | None" = None
    """The scores of single examples, or None if no check needs them."""
    comparisons: Mapping[str, MetricComparison] = field(default_factory=dict)
    """Comparisons of the two models, by metric, for checks that need ``champion``."""
    slices: list[Slice] = field(default_factory=list)
    """Slices that checks have judged, for gate.json."""

    @property
    def sums(self) -> "ScoreTables":
        """Return the tables of scores per example.

        Raises:
            GateError: there are none, because the calling check does not declare the need
                ``scores``.
        """
        if self.scores is None:
            raise GateError("a check reads the scores, but its entry does not list scores in needs")
        return self.scores


# The provenance record of a verdict, which the gate's job writes next to gate.json.
#
# ``provenance.json`` contains facts known at compile time (commit, recipe, code, images: see
# ``pipelines.compile.provenance_asset``) and facts of the execution: the artifact, the data, the
# evidence, the verdict. ``record.json`` contains the part of it that the Register step passes to
# the model registry, all as strings. No torch, no SDK.

UNKNOWN = "unknown"
"""Placeholder for a missing value in the registry, where every value is a string."""


def write_provenance(root: Path, gate: Gate) -> None:
    """Write provenance.json and record.json for the verdict ``gate``.

    gate.json must already have been written. Missing evidence is null here; the gate has already
    rejected the model because of it.

    Args:
        root: folder of the job, /opt/ml.
    """
    inputs, output = root / "processing/input", root / "processing/output/gate"
    origin = _read_json(inputs / "provenance/provenance.json")
    evaluation = inputs / "evaluation/evaluation.json"
    document = origin | dict(
        build_run_record(
            _read_json(evaluation),
            gate,
            hash_existing_file(evaluation),
            hash_existing_file(output / "gate.json"),
            {
                table.name: hash_file(table)
                for table in sorted((inputs / "scores").glob("*.parquet"))
            },
        )
    )
    content = json.dumps(document, indent=1, allow_nan=False)
    output.mkdir(parents=True, exist_ok=True)
    atomic_file.write_file(output / "provenance.json", content)
    summary = build_model_metadata(document, hashlib.sha256(content.encode()).hexdigest())
    atomic_file.write_file(output / "record.json", format_record(summary))


def build_run_record(
    evaluation: Any,
    gate: Gate,
    evaluation_sha256: str | None,
    gate_sha256: str | None,
    scores_sha256: Mapping[str, str],
) -> RunRecord:
    """Return the part of provenance.json that is known only after the run.

    Args:
        evaluation: content of evaluation.json, unchecked.
        scores_sha256: hashes of the score tables that the gate read. If it is empty, the hashes in
            the evaluation are used.
    """
    base = {
        n: _find_value(evaluation, "model", "base", n) for n in ("sha256", "model_package", "uri")
    }
    run_record: RunRecord = {
        "artifact_sha256": _find_value(evaluation, "artifact", "sha256"),
        "artifact_bytes": _find_value(evaluation, "artifact", "bytes"),
        "packages_sha256": _find_value(evaluation, "model", "packages_sha256"),
        "checkpoint_step": _find_value(evaluation, "model", "steps"),
        "identity": _find_value(evaluation, "model", "training", "identity"),
        "dataset_fingerprint": _find_value(evaluation, "dataset", "fingerprint"),
        "train_fingerprint": _find_value(evaluation, "dataset", "train_fingerprint"),
        "test_fingerprint": _find_value(evaluation, "dataset", "test_fingerprint"),
        "train_manifests_sha256": _find_value(evaluation, "dataset", "train_manifests_sha256"),
        "test_manifests_sha256": _find_value(evaluation, "dataset", "test_manifests_sha256"),
        "evaluation_sha256": evaluation_sha256,
        "gate_sha256": gate_sha256,
        "scores_sha256": dict(scores_sha256) or _list_table_hashes(evaluation),
        "verdict": gate["verdict"],
        "champion": gate["champion"],
    }
    if precision := _find_value(evaluation, "model", "precision"):
        run_record["training_precision"] = precision
    if base["sha256"]:
        run_record["base"] = base
    if summary := _find_value(evaluation, "dataset", "summary_manifests_sha256"):
        run_record["summary_manifests_sha256"] = summary
    return run_record


def build_model_metadata(provenance: Mapping[str, Any], provenance_sha256: str) -> dict[str, str]:
    """Return the customer metadata of the model package: facts from provenance.json, by name."""
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
    values["recipe_sha256"] = _find_value(provenance, "recipe", "sha256")
    values["provenance_sha256"] = provenance_sha256
    return {name: UNKNOWN if value is None else str(value) for name, value in values.items()}


def format_record(record: Mapping[str, str]) -> str:
    """Return the content of record.json."""
    return json.dumps(record, indent=1)


def _list_table_hashes(evaluation: Any) -> dict[str, str]:
    """Return the SHA-256 of each score table that the evaluation states, by the table's name."""
    scores = evaluation.get("scores") if isinstance(evaluation, Mapping) else None
    score_tables = scores if isinstance(scores, Mapping) else {}
    hashes = {str(name): _find_value(table, "sha256") for name, table in score_tables.items()}
    return {name: digest for name, digest in hashes.items() if isinstance(digest, str)}


def _read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in the file, or {} if there is none."""
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _find_value(value: Any, *path: str) -> Any:
    """Return the string or integer at ``path``, or None for anything else."""
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, str | int) else None
