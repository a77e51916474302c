"""Check what a package's record covers, one function each, from the registry to the data.

A check returns its result in a few words. It raises Mismatch if something differs from the record,
and UncheckedError if it cannot be computed here. A check relies on the checks before it.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from contextlib import suppress
from itertools import zip_longest
from typing import Any

from conditions.gate_arguments import build_arguments
from conditions.gate_documents import UNKNOWN, build_model_metadata
from pipelines.compile.compilation import Asset
from pipelines.compile.provenance_asset import FOLDER, FORMAT, mask_record_name
from pipelines.registry.package_evidence import Absent, Evidence
from steps.gate.config import GateConfig, name_threshold_parameter
from trainyard.common.errors import DataError

PROVENANCE = "provenance.json"
BOUND = ("execution", "provenance_uri", "pipeline", "workload", "provenance_sha256")
TOLERANCE = 1e-9  # relative: on another machine, the last digits may differ
HASH_CHARACTERS = 12  # characters of a hash that are shown


class Mismatch(Exception):
    """Raised if something differs from its record; becomes a finding."""


class UncheckedError(Exception):
    """Raised, with the reason, if a check cannot be computed here; becomes a finding."""


def require_same(label: str, actual: Any, reference: Any, source: str) -> None:
    """Raise Mismatch, with both values, if they differ; ``source`` names the reference's origin."""
    if actual != reference:
        raise Mismatch(f"{label} is {actual}, {source} says {reference}")


def describe_difference(actual: Any, reference: Any, path: str = "") -> str | None:
    """Describe the first difference between two JSON documents; return None if they are equal."""
    if isinstance(actual, dict) and isinstance(reference, dict):
        keys = sorted({*actual, *reference})
        parts = ((actual.get(k), reference.get(k), f"{path}.{k}".lstrip(".")) for k in keys)
        return next(filter(None, (describe_difference(*part) for part in parts)), None)
    if isinstance(actual, list) and isinstance(reference, list) and len(actual) == len(reference):
        pairs = enumerate(zip(actual, reference, strict=True))
        parts = ((a, b, f"{path}[{number}]") for number, (a, b) in pairs)
        return next(filter(None, (describe_difference(*part) for part in parts)), None)
    if isinstance(actual, float) and isinstance(reference, float):
        equal = math.isclose(actual, reference, rel_tol=TOLERANCE)
    else:
        equal = actual == reference
    return None if equal else f"{path} is {reference} in one and {actual} in the other"


def check_package(evidence: Evidence) -> str:
    """Check that the package was registered by our pipeline, and names its record."""
    missing = [name for name in BOUND if name not in evidence.metadata]
    if missing:
        raise Mismatch(
            f"the customer metadata lack {', '.join(missing)}: the package was not registered by a "
            "Trainyard pipeline, or was edited since"
        )
    return f"version {evidence.package.get('ModelPackageVersion')}"


def check_provenance(evidence: Evidence) -> str:
    """Check that provenance.json has the hash in the registry.

    Raises:
        DataError: provenance.json has another format, so the package cannot be checked here.
    """
    uri = evidence.metadata["provenance_uri"]
    digest = hashlib.sha256(evidence.read(uri)).hexdigest()
    require_same(
        "SHA-256 of provenance.json", digest, evidence.metadata["provenance_sha256"], "the package"
    )
    with suppress(Absent):  # if provenance.json is missing, the checks that read it fail later
        form = evidence.provenance.get("format")
        if form is not None and form != FORMAT:
            raise DataError(
                f"{evidence.arn}: its {PROVENANCE} is of format {form}; "
                f"this version verifies and approves format {FORMAT}"
            )
    return _shorten_hash(digest)


def check_metadata(evidence: Evidence) -> str:
    """Check that the customer metadata about the record agree with the record."""
    expected_values = build_model_metadata(
        evidence.provenance, evidence.metadata["provenance_sha256"]
    )
    expected_values |= {
        name: str(evidence.provenance.get(name)) for name in ("pipeline", "workload")
    }
    for name, value in expected_values.items():
        actual = evidence.metadata.get(name, "missing")
        require_same(f"customer metadata {name}", actual, value, "provenance.json")
    return f"{len(expected_values)} values"


def check_evaluation(evidence: Evidence) -> str:
    """Check that evaluation.json is the file that the gate read."""
    return _check_hash(evidence, "Statistics", "evaluation.json", "evaluation_sha256")


def check_gate(evidence: Evidence) -> str:
    """Check that gate.json was written with the record, and that its verdict is pass."""
    digest = _check_hash(evidence, "Constraints", "gate.json", "gate_sha256")
    document = evidence.read_json(evidence.find_source("Constraints")["S3Uri"])
    verdict = document.get("verdict")
    require_same("the verdict", verdict, evidence.provenance.get("verdict"), "provenance.json")
    if verdict != "pass":
        raise Mismatch(f"the verdict is {verdict}: this model should not have been registered")
    methods = {check.get("method") for check in document.get("checks", ())} - {None}
    return f"{digest}, judged by {' and '.join(sorted(methods))} limits" if methods else digest


def check_metrics(evidence: Evidence) -> str:
    """Check that gate.json, metadata and model card have evaluation.json's metrics."""
    gate_document = evidence.read_json(evidence.find_source("Constraints")["S3Uri"])
    evaluation_document = evidence.read_json(evidence.find_source("Statistics")["S3Uri"])
    fingerprint = evaluation_document.get("dataset", {}).get("fingerprint")
    require_same(
        "dataset_fingerprint of gate.json",
        gate_document.get("dataset_fingerprint"),
        fingerprint,
        "evaluation.json",
    )
    card = _read_card_metrics(evidence)
    for name, entry in evaluation_document.get("metrics", {}).items():
        value = entry.get("value")
        require_same(
            f"metrics.{name} of gate.json",
            gate_document.get("metrics", {}).get(name),
            value,
            "evaluation.json",
        )
        text = evidence.metadata.get(name, UNKNOWN)
        require_same(f"customer metadata {name}", _parse_number(text), value, "evaluation.json")
        require_same(f"{name} in the model card", card.get(name), value, "evaluation.json")
    return f"{len(card)} metrics"


def check_artifact_location(evidence: Evidence) -> str:
    """Check that the object to be deployed is the one that was evaluated, and has the same size."""
    uri = evidence.model
    evaluated_uri = evidence.find_job_inputs("Evaluate").get("model", {}).get("S3Uri", "")
    if uri.endswith("/"):
        evaluated_uri = f"{evaluated_uri.rstrip('/')}/"
    require_same("the model's URI", uri, evaluated_uri, "the evaluation's job")
    require_same(
        "size of the artifact",
        evidence.measure_model(),
        evidence.provenance.get("artifact_bytes"),
        "provenance.json",
    )
    return f"{evidence.provenance['artifact_bytes']} bytes"


def check_definition(evidence: Evidence) -> str:
    """Check that the execution used the definition whose hash is in the record."""
    digest = hashlib.sha256(mask_record_name(evidence.definition).encode()).hexdigest()
    require_same("SHA-256 of the execution's definition", digest,
         evidence.provenance.get("definition_sha256"), "provenance.json")  # fmt: skip
    return _shorten_hash(digest)


def check_origin(evidence: Evidence) -> str:
    """Check that the execution's record contains the one compiled with the definition."""
    uri = evidence.find_job_inputs("Gate").get("provenance", {}).get("S3Uri", "")
    if f"/{FOLDER}/" not in uri or uri not in evidence.definition:
        raise Mismatch(f"the gate read its record from {uri or 'nowhere'}, not the definition's")
    files = evidence.origin
    require_same("name of the definition's record", uri.rstrip("/").rpartition("/")[2],
         Asset("", "", files).sha256[:32], "its content")  # fmt: skip
    origin_record = json.loads(files["provenance.json"])
    for name, value in origin_record.items():
        require_same(f"{name} of provenance.json", evidence.provenance.get(name), value,
             "the definition's record")  # fmt: skip
    require_same("SHA-256 of recipe.json", hashlib.sha256(files["recipe.json"]).hexdigest(),
         origin_record["recipe"]["sha256"], "the definition's record")  # fmt: skip
    return f"{len(origin_record)} fields"


def build_gate_arguments(
    evidence: Evidence, gate: GateConfig, thresholds: Mapping[str, Any]
) -> list[Any]:
    """Return the gate job's arguments for ``gate``, with the execution's champion and look number.

    ``thresholds``: values by name, used instead of those of ``gate``.
    """
    parameters = evidence.parameters
    return build_arguments(
        gate.values | {"threshold": {name: str(value) for name, value in thresholds.items()}},
        primary_metric=evidence.provenance["primary_metric"],
        directions=evidence.provenance["directions"],
        champion=parameters["ChampionArn"],
        look_number=str(parameters.get("Look")),
    )


def check_gate_arguments(evidence: Evidence) -> str:
    """Check that the gate's arguments follow from the recipe and the parameters."""
    config, parameters = GateConfig.model_validate(evidence.recipe["gate"]), evidence.parameters
    thresholds = {
        name: parameters.get(name_threshold_parameter(name), value)
        for name, value in config.thresholds.items()
    }
    expected_arguments = build_gate_arguments(evidence, config, thresholds)
    job_arguments = evidence.read_job("Gate")["AppSpecification"].get("ContainerArguments", [])
    for position, (expected_word, job_word) in enumerate(
        zip_longest(expected_arguments, job_arguments)
    ):
        if (
            expected_word is None
            or job_word is None
            or _parse_number(expected_word) != _parse_number(job_word)
        ):
            before = " ".join(expected_arguments[max(0, position - 3) : position])
            raise Mismatch(
                f"the gate was run with {before} {job_word}, but the recorded recipe says "
                f"{expected_word}"
            )
    return (
        f"{len(evidence.read_json(evidence.find_source('Constraints')['S3Uri'])['checks'])} checks"
    )


def check_code(evidence: Evidence) -> str:
    """Check that each step's code in S3 has the recorded hash, and is in the definition."""
    recorded_code: Mapping[str, Mapping[str, str]] = evidence.provenance.get("code", {})
    if not recorded_code:
        raise Mismatch("provenance.json names no code: the gate was not given the code that ran")
    for step, assets in recorded_code.items():
        for uri, expected_sha256 in assets.items():
            digest = Asset("", "", evidence.read_folder(uri)).sha256
            require_same(
                f"SHA-256 of the code of step {step} ({uri})",
                digest,
                expected_sha256,
                "provenance.json",
            )
            if uri not in evidence.definition:
                raise Mismatch(f"the definition does not name the code of step {step}, {uri}")
    return f"{len(recorded_code)} steps"


def _check_hash(evidence: Evidence, kind: str, file: str, record_key: str) -> str:
    """Return the file's hash after comparing it with provenance.json and the package."""
    source = evidence.find_source(kind)
    digest = hashlib.sha256(evidence.read(source["S3Uri"])).hexdigest()
    require_same(
        f"SHA-256 of {file}", digest, evidence.provenance.get(record_key), "provenance.json"
    )
    require_same(
        f"ContentDigest of {file}", source.get("ContentDigest"), f"sha256:{digest}", "its content"
    )
    return _shorten_hash(digest)


def _read_card_metrics(evidence: Evidence) -> dict[str, float]:
    """Return the metrics in the package's model card, by name; raise Mismatch if it has none."""
    try:
        card = json.loads(evidence.package["ModelCard"]["ModelCardContent"])
        data = card["evaluation_details"][0]["metric_groups"][0]["metric_data"]
        return {entry["name"]: entry["value"] for entry in data}
    except (KeyError, IndexError, TypeError, ValueError):
        raise Mismatch("the package has no model card with the evaluation's metrics") from None


def _parse_number(text: str) -> float | str:
    """Return the text as a number if it is one, otherwise unchanged."""
    try:
        return float(text)
    except ValueError:
        return text


def _shorten_hash(sha256: str) -> str:
    return sha256[:HASH_CHARACTERS]
