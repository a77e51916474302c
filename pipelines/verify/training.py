"""What the weights were trained with, as the training itself wrote it down, against the record."""

import json
from typing import Any

from pipelines.verify.checks import SHOWN, Mismatch, same
from pipelines.verify.evidence import Evidence
from training.config import TrainConfig
from training.identity import JOB, Parts, changed, material
from training.lineage import Lineage
from trainyard.common.hashes import json_sha256

CONFIG = "config.json"


def history(evidence: Evidence) -> str:
    """Every step was made with the recorded code and data, or with what the recipe began from."""
    told = evidence.json(evidence.source("Statistics")["S3Uri"])["model"]["training"]
    same("identity of the training", told["identity"], evidence.provenance.get("identity"),
         "provenance.json")  # fmt: skip
    recorded = evidence.provenance["training"]["code_sha256"]
    same("SHA-256 of the training's code in S3", json_sha256(_sent(evidence)), recorded,
         "provenance.json")  # fmt: skip
    for stretch in told["stretches"]:
        if stretch["identity"] == told["identity"]:
            _check_recorded(evidence, stretch, recorded)
        else:
            _check_begun(evidence, stretch)
    count = len(told["stretches"])
    return f"{told['identity'][:SHOWN]}, {count} stretch{'' if count == 1 else 'es'}"


def _check_recorded(evidence: Evidence, stretch: dict[str, Any], code: str) -> None:
    where = f"from step {stretch['since'] + 1} on the weights were trained"
    if stretch["code_sha256"] != code:
        raise Mismatch(
            f"{where} by other code, {stretch['code_sha256'][:SHOWN]}, than provenance.json says, "
            f"{code[:SHOWN]}"
        )
    if stretch["data"] != evidence.provenance.get("train_fingerprint"):
        raise Mismatch(f"{where} on other data, {stretch['data']}, than provenance.json says")


def _check_begun(evidence: Evidence, stretch: dict[str, Any]) -> None:
    """A stretch of another training has to be one that the recipe asked to go on from."""
    begun = evidence.provenance["training"].get("start_from") or {}
    if not begun.get("checkpoint"):
        raise Mismatch(
            f"from step {stretch['since'] + 1} on the weights were made by training "
            f"{stretch['identity']}, and the recipe does not say that it goes on from another"
        )


def artifact(evidence: Evidence) -> str:
    """The model's own config.json says the same, and its identity follows from what it says."""
    body = evidence.member(evidence.container["ModelDataUrl"], CONFIG)
    written = json.loads(body)["training"]
    lineage = Lineage.model_validate({k: v for k, v in written.items() if k != "identity"})
    parts = lineage.parts
    told = evidence.json(evidence.source("Statistics")["S3Uri"])["model"]["training"]
    same(f"identity in {CONFIG}", written["identity"], told["identity"], "evaluation.json")
    same(f"identity of the parts in {CONFIG}", parts.name, told["identity"], CONFIG)
    same(f"stretches in {CONFIG}", written["stretches"], told["stretches"], "evaluation.json")
    if differs := changed(_sent(evidence), parts.code):
        raise Mismatch(f"the weights were trained by other code than the record's: {differs}")
    same(f"data in {CONFIG}", parts.data, evidence.provenance.get("train_fingerprint"),
         "provenance.json")  # fmt: skip
    _check_settings(evidence, parts)
    return f"{len(parts.code)} files of code, {len(parts.settings)} settings"


def _check_settings(evidence: Evidence, parts: Parts) -> None:
    """Those of the recipe; a run may only have set the parameter MaxSteps."""
    uri = evidence.job_inputs("Gate")["provenance"]["S3Uri"]
    loop = evidence.json(f"{uri.rstrip('/')}/recipe.json")["train"]["loop"]
    wanted = TrainConfig.model_validate(loop | {"max_steps": parts.settings["max_steps"]})
    for name, value in parts.settings.items():
        same(f"{name} of the training", value, wanted.model_dump(mode="json")[name], "recipe.json")


def _sent(evidence: Evidence) -> dict[str, str]:
    """File → SHA-256 of the code that step Train was sent, and that shapes weights."""
    for uri in evidence.provenance["code"]["Train"]:
        files = evidence.folder(uri)
        if JOB in files:
            return material(files, str(evidence.provenance["workload"]))
    raise Mismatch(f"no folder of step Train's code in S3 holds {JOB}")
