"""Check each thing that a package's record binds, one function each, from the registry to the data.

A check returns its finding in a few words; it raises Mismatch when that differs from the record,
and Unchecked when it cannot be computed here. A check relies on the checks before it.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from contextlib import suppress
from itertools import zip_longest
from typing import Any

from conditions.gate_arguments import arguments
from conditions.provenance_record import UNKNOWN, record
from conditions.registered_version import registered
from pipelines.compile.compilation import Asset
from pipelines.compile.provenance_asset import FOLDER, FORMAT, blanked
from pipelines.registry.package_evidence import Absent, Evidence
from steps.gate.config import GateConfig, threshold_parameter
from training.finetuning.model_files import ARCHIVE
from trainyard.common.errors import DataError

PROVENANCE = "provenance.json"
BOUND = ("execution", "provenance_uri", "pipeline", "workload", "provenance_sha256")
TOLERANCE = 1e-9  # relative: another machine's arithmetic may differ in the last digits
SHOWN = 12  # characters of a hash that are shown


class Mismatch(Exception):
    """A thing differs from its record; becomes a finding."""


class Unchecked(Exception):
    """A check cannot be computed here, and why; becomes a finding."""


def same(what: str, found: Any, expected: Any, where: str) -> None:
    """Raise Mismatch, in words, when the two differ."""
    if found != expected:
        raise Mismatch(f"{what} is {found}, {where} says {expected}")


def difference(found: Any, expected: Any, where: str = "") -> str | None:
    """Return the first place at which two JSON documents differ, in words; None when they are
    equal.
    """
    if isinstance(found, dict) and isinstance(expected, dict):
        keys = sorted({*found, *expected})
        parts = ((found.get(k), expected.get(k), f"{where}.{k}".lstrip(".")) for k in keys)
        return next(filter(None, (difference(*part) for part in parts)), None)
    if isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        pairs = enumerate(zip(found, expected, strict=True))
        parts = ((a, b, f"{where}[{number}]") for number, (a, b) in pairs)
        return next(filter(None, (difference(*part) for part in parts)), None)
    if isinstance(found, float) and isinstance(expected, float):
        equal = math.isclose(found, expected, rel_tol=TOLERANCE)
    else:
        equal = found == expected
    return None if equal else f"{where} is {expected}, and {found}"


def package(evidence: Evidence) -> str:
    """Check that the package is one of ours, and names its record."""
    missing = [name for name in BOUND if name not in evidence.metadata]
    if missing:
        raise Mismatch(
            f"the customer metadata lack {', '.join(missing)}: not registered by a pipeline of "
            "Trainyard's, or edited since"
        )
    return f"version {evidence.package.get('ModelPackageVersion')}"


def provenance(evidence: Evidence) -> str:
    """Check that provenance.json is the file whose hash the registry holds.

    Raises:
        DataError: it has an older format, so nothing of the package can be checked here.
    """
    uri = evidence.metadata["provenance_uri"]
    found = hashlib.sha256(evidence.read(uri)).hexdigest()
    same("SHA-256 of provenance.json", found, evidence.metadata["provenance_sha256"], "the package")
    with suppress(Absent):  # without a record the checks that read it fail
        form = evidence.provenance.get("format")
        if form is not None and form != FORMAT:
            raise DataError(
                f"{evidence.arn}: its {PROVENANCE} is of format {form}; "
                f"this version verifies and approves format {FORMAT}"
            )
    return _short(found)


def metadata(evidence: Evidence) -> str:
    """Check that the customer metadata about the record are in the record."""
    expected = record(evidence.provenance, evidence.metadata["provenance_sha256"])
    expected |= {name: str(evidence.provenance.get(name)) for name in ("pipeline", "workload")}
    for name, value in expected.items():
        found = evidence.metadata.get(name, "missing")
        same(f"customer metadata {name}", found, value, "provenance.json")
    return f"{len(expected)} values"


def evaluation(evidence: Evidence) -> str:
    """Check that evaluation.json is the one that the gate read."""
    return _hashed(evidence, "Statistics", "evaluation.json", "evaluation_sha256")


def gate(evidence: Evidence) -> str:
    """Check that gate.json was written with the record, and says pass."""
    found = _hashed(evidence, "Constraints", "gate.json", "gate_sha256")
    document = evidence.json(evidence.source("Constraints")["S3Uri"])
    verdict = document.get("verdict")
    same("the verdict", verdict, evidence.provenance.get("verdict"), "provenance.json")
    if verdict != "pass":
        raise Mismatch(f"the verdict is {verdict}: this model should not have been registered")
    methods = {check.get("method") for check in document.get("checks", ())} - {None}
    return f"{found}, judged by {' and '.join(sorted(methods))} limits" if methods else found


def metrics(evidence: Evidence) -> str:
    """Check that the metrics in gate.json, customer metadata and model card are
    evaluation.json's.
    """
    judged = evidence.json(evidence.source("Constraints")["S3Uri"])
    measured = registered(evidence.json(evidence.source("Statistics")["S3Uri"]), judged)
    fingerprint = measured.get("dataset", {}).get("fingerprint")
    same("dataset_fingerprint of gate.json", judged.get("dataset_fingerprint"), fingerprint,
         "evaluation.json")  # fmt: skip
    card = _card_metrics(evidence)
    for name, entry in measured.get("metrics", {}).items():
        value = entry.get("value")
        same(f"metrics.{name} of gate.json", judged.get("metrics", {}).get(name), value,
             "evaluation.json")  # fmt: skip
        text = evidence.metadata.get(name, UNKNOWN)
        same(f"customer metadata {name}", _number(text), value, "evaluation.json")
        same(f"{name} in the model card", card.get(name), value, "evaluation.json")
    return f"{len(card)} metrics"


def artifact_place(evidence: Evidence) -> str:
    """Check that the object to be deployed is the one that was evaluated, of the same size."""
    uri = evidence.model
    evaluated = evidence.job_inputs("Evaluate").get("model", {}).get("S3Uri", "")
    if evidence.provenance.get("precision") == "int8":
        evaluated = model_uris(evidence)[1]
    if uri.endswith("/"):
        evaluated = f"{evaluated.rstrip('/')}/"
    same("the model's place", uri, evaluated, "the evaluation's job")
    same("size of the artifact", evidence.model_size(), evidence.provenance.get("artifact_bytes"),
         "provenance.json")  # fmt: skip
    return f"{evidence.provenance['artifact_bytes']} bytes"


def definition(evidence: Evidence) -> str:
    """Check that the execution ran the definition that the record names."""
    found = hashlib.sha256(blanked(evidence.definition).encode()).hexdigest()
    same("SHA-256 of the execution's definition", found,
         evidence.provenance.get("definition_sha256"), "provenance.json")  # fmt: skip
    return _short(found)


def origin(evidence: Evidence) -> str:
    """Check that the run's record begins with the record that the definition was compiled with."""
    uri = evidence.job_inputs("Gate").get("provenance", {}).get("S3Uri", "")
    if f"/{FOLDER}/" not in uri or uri not in evidence.definition:
        raise Mismatch(f"the gate read its record from {uri or 'nowhere'}, not the definition's")
    files = evidence.origin
    same("name of the definition's record", uri.rstrip("/").rpartition("/")[2],
         Asset("", "", files).sha256[:32], "its content")  # fmt: skip
    known = json.loads(files["provenance.json"])
    for name, value in known.items():
        same(f"{name} of provenance.json", evidence.provenance.get(name), value,
             "the definition's record")  # fmt: skip
    same("SHA-256 of recipe.json", hashlib.sha256(files["recipe.json"]).hexdigest(),
         known["recipe"]["sha256"], "the definition's record")  # fmt: skip
    return f"{len(known)} fields"


def asked_of_gate(
    evidence: Evidence, config: GateConfig, thresholds: Mapping[str, Any]
) -> list[Any]:
    """Return the arguments of the gate's job for these demands, about the run's champion and look.

    ``thresholds``: name → value, in place of the config's.
    """
    given = evidence.parameters
    return arguments(
        config.values | {"threshold": {name: str(value) for name, value in thresholds.items()}},
        primary_metric=evidence.provenance["primary_metric"],
        directions=evidence.provenance["directions"],
        champion=given["ChampionArn"],
        look=str(given.get("Look")),
        models=model_uris(evidence) if config.judges_int8 else (),
    )


def model_uris(evidence: Evidence) -> list[str]:
    """Return the S3 URIs of the model that was evaluated, and of its int8 version."""
    full = evidence.job_inputs("Evaluate").get("model", {}).get("S3Uri", "")
    int8 = evidence.output("Evaluate", "int8")
    return [full, f"{int8}/{ARCHIVE}" if full.endswith(ARCHIVE) else int8]


def demands(evidence: Evidence) -> str:
    """Check that the gate was asked for what the recipe demands, with the run's parameters."""
    config, given = GateConfig.model_validate(evidence.recipe["gate"]), evidence.parameters
    thresholds = {
        name: given.get(threshold_parameter(name), value)
        for name, value in config.thresholds.items()
    }
    expected = asked_of_gate(evidence, config, thresholds)
    found = evidence.job("Gate")["AppSpecification"].get("ContainerArguments", [])
    for position, (ours, theirs) in enumerate(zip_longest(expected, found)):
        if ours is None or theirs is None or _number(ours) != _number(theirs):
            before = " ".join(expected[max(0, position - 3) : position])
            raise Mismatch(
                f"the gate was asked for {before} {theirs}, the recipe in the record says {ours}"
            )
    return f"{len(evidence.json(evidence.source('Constraints')['S3Uri'])['checks'])} checks"


def code(evidence: Evidence) -> str:
    """Check that the code of each step in S3 has the hash in the record, and its folder's name."""
    recorded: Mapping[str, Mapping[str, str]] = evidence.provenance.get("code", {})
    if not recorded:
        raise Mismatch("provenance.json names no code: the gate was not given the code that ran")
    for step, assets in recorded.items():
        for uri, expected in assets.items():
            found = Asset("", "", evidence.folder(uri)).sha256
            same(f"SHA-256 of the code of step {step} ({uri})", found, expected, "provenance.json")
            if uri not in evidence.definition:
                raise Mismatch(f"the definition does not name the code of step {step}, {uri}")
    return f"{len(recorded)} steps"


def _hashed(evidence: Evidence, kind: str, file: str, recorded: str) -> str:
    source = evidence.source(kind)
    found = hashlib.sha256(evidence.read(source["S3Uri"])).hexdigest()
    same(f"SHA-256 of {file}", found, evidence.provenance.get(recorded), "provenance.json")
    same(f"ContentDigest of {file}", source.get("ContentDigest"), f"sha256:{found}", "its content")
    return _short(found)


def _card_metrics(evidence: Evidence) -> dict[str, float]:
    try:
        card = json.loads(evidence.package["ModelCard"]["ModelCardContent"])
        data = card["evaluation_details"][0]["metric_groups"][0]["metric_data"]
        return {entry["name"]: entry["value"] for entry in data}
    except (KeyError, IndexError, TypeError, ValueError):
        raise Mismatch("the package has no model card with the evaluation's metrics") from None


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _short(sha256: str) -> str:
    return sha256[:SHOWN]
