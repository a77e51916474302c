"""The origin of a verdict, in one record: written beside gate.json, in the same job.

``provenance.json`` holds what the definition knew (commit, recipe, code, images: see
``pipelines.compile.provenance_asset``) and what the run adds: the artifact, the data, the evidence,
the verdict. ``record.json`` holds the part of it that Register gives to the model registry, all
strings. No torch, no SDK.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from conditions.gate_documents import Gate, RunRecord
from trainyard.common import atomic_file
from trainyard.common.hashes import file_sha256, file_sha256_or_none

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
