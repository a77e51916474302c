"""The origin of a verdict, in one record: written beside gate.json, in the same job.

``provenance.json`` holds what the definition knew (commit, recipe, code, images: see
``pipelines.compile.provenance_asset``) and what the run adds: the artifact, the data, the evidence,
the verdict. ``record.json`` holds the part of it that Register gives to the model registry, all
strings. No torch, no SDK.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from conditions.gate_check import read_number
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
    evaluation = select_evaluation(evaluation, gate)
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
    if "int8" in gate:
        run_record["precision"] = "int8" if gate["int8"]["registered"] else "full"
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
    if precision := provenance.get("precision"):
        values["precision"] = precision
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


# Choose which version of a model is registered: the full model, or the one with int8 weights.
#
# The same checks judge both versions, and one more judges the int8 version: its loss beside the
# full
# model's. The int8 version is registered if it passes all of its checks and the full model passes
# all
# but the one on size; else the full model is, if it passes.
#
# The two tests need no correction, because their order is fixed (Maurer, Hothorn & Lehmacher
# 1995).
# If the full model is not good enough, a model is registered only when the full model's test
# errs; if
# only the int8 version is not good enough, it is registered only when its own test errs. Either
# has
# probability α at most.

VERSION_PARTS = ("metrics", "latency", "artifact")
"""Parts of evaluation.json that the int8 version has of its own."""
RUNS = "/runs/"
"""Part of every model's URI, before the run's id."""
SIZE = "artifact_size"
"""Kind of the check that the full model need not pass where its int8 version does."""


def of_int8(evaluation: Any) -> Any:
    """Return evaluation.json as of the int8 version; the full model's parts are in ``full``."""
    document = evaluation if isinstance(evaluation, dict) else {}
    int8_part = document.get("int8")
    own_parts = {
        name: int8_part.get(name) if isinstance(int8_part, dict) else None for name in VERSION_PARTS
    }
    return document | own_parts | {"full": {name: document.get(name) for name in VERSION_PARTS}}


def select_evaluation(evaluation: Any, gate: Mapping[str, Any]) -> Any:
    """Return evaluation.json as of the version that the verdict is about."""
    return of_int8(evaluation) if gate.get("int8", {}).get("registered") else evaluation


def choose_version(full: Gate, int8: Gate, evaluation: Any, models: Sequence[str]) -> Gate:
    """Return gate.json of the version to register; its key ``int8`` has both verdicts.

    ``models``: S3 URIs of the full model and of its int8 version.
    """
    failed_kinds = {check["kind"] for check in full["checks"] if not check["passed"]}
    sound = full["verdict"] == "pass" or failed_kinds == {SIZE}
    takes = sound and int8["verdict"] == "pass"
    if takes:
        word = "int8 weights are registered"
    elif full["verdict"] == "pass":
        failed_checks = [check for check in int8["checks"] if not check["passed"]]
        first = min(failed_checks, key=lambda check: check["kind"] != "int8", default=int8)
        word = f"full precision is registered, not int8: {first['reason'].removeprefix('int8: ')}"
    else:
        word = "neither the full model nor its int8 version is registered"
    says = "; ".join([word, *_describe_int8(int8, evaluation)])
    both: dict[str, Any] = {"registered": takes, "says": says}
    both["model"] = models[takes].rpartition(RUNS)[2]
    for name, verdict in (("full", full), ("int8", int8)):
        keys = ("verdict", "reason", "checks", "metrics", "artifact_sha256")
        both[name] = {key: verdict[key] for key in keys}  # type: ignore[literal-required]
    return cast(Gate, (int8 if takes else full) | {"int8": both})


def _describe_int8(int8: Gate, evaluation: Any) -> list[str]:
    """Return the int8 version's loss, size and latency beside the full model's, in words."""
    parts = []
    for check in int8["checks"]:
        if check["kind"] == "int8" and check["value"] is not None:
            value, low = check["value"], check["low"]
            says = f"{check['metric']} is {'worse' if value < 0 else 'better'} by {abs(value):.3g}"
            if low is not None:
                limit = f"at most {-low:.3g} worse" if low <= 0 else f"at least {low:.3g} better"
                says += f", {limit} with {check['confidence']:.4g} confidence"
            parts.append(says)
    for label, scale, unit, path in (
        ("model", 1e-6, "MB", ("artifact", "bytes")),
        ("p95", 1, "ms", ("latency", "p95_ms")),
    ):
        int8_value, full_value = (
            read_number(evaluation, "int8", *path),
            read_number(evaluation, *path),
        )
        if int8_value is not None and full_value is not None:
            parts.append(
                f"{label} {int8_value * scale:.3g} {unit} instead of {full_value * scale:.3g}"
            )
    return parts
