"""The model that a fine-tuning began with: told alike everywhere, and the very bytes."""

import json
from typing import Any

from pipelines.verify.checks import SHOWN, Mismatch, Unchecked, same
from pipelines.verify.evidence import Absent, Evidence
from training import hugging_face
from training.adapters import Tuning
from training.identity import Parts
from training.model_files import ARCHIVE, OURS, together
from training.start import BASE, StartFrom
from trainyard.common.errors import DataError


def told(evidence: Evidence) -> str:
    """The base is the recipe's, in the evaluation, the record and the customer metadata."""
    start, found = _asked(evidence), _evaluated(evidence)
    if start is None:
        same("the base", found, None, "recipe.json")
        return "the training began with no model"
    if found is None:  # its hash is in the training's identity nevertheless
        raise Unchecked("evaluation.json names no base: the version that wrote it did not")
    same("the base", evidence.provenance.get("base"), found, "evaluation.json")
    same("the base's place", found["uri"], start.uri or found["uri"], "recipe.json")
    same("the base's package", found["model_package"], start.model_package, "recipe.json")
    if start.model_sha256:
        same("SHA-256 of the base", found["sha256"], start.model_sha256, "recipe.json")
    same("customer metadata base_sha256", evidence.metadata.get("base_sha256", "missing"),
         found["sha256"], "evaluation.json")  # fmt: skip
    same("customer metadata base", evidence.metadata.get(BASE, "missing"),
         found["model_package"] or found["uri"], "evaluation.json")  # fmt: skip
    return f"{found['sha256'][:SHOWN]}, {found['model_package'] or found['uri']}"


def untouched(evidence: Evidence) -> str:
    """The base in S3 has the hash still: training and evaluation left it as it was."""
    found = _evaluated(evidence)
    if found is None:
        return "the training began with no model"
    try:
        now = _sha256(evidence, found["uri"])
    except Absent as why:
        raise Unchecked(f"{why}: only a package of adapters alone needs it still") from None
    same(f"SHA-256 of {found['uri']}", now, found["sha256"], "evaluation.json")
    return f"{now[:SHOWN]}, {found['uri']}"


def check_parts(evidence: Evidence, parts: Parts) -> None:
    """Raises: Mismatch: the training itself says that it began with, or trained, something else."""
    train, found = evidence.recipe["train"], _evaluated(evidence)
    tuning = Tuning(adapters=train.get("adapters"), freeze=train.get("freeze") or ())
    same("tuning of the training", parts.tuning, tuning.part, "recipe.json")
    begun = parts.start or {}
    sha256 = begun.get("hugging_face") or begun.get("model")
    if found is not None:
        same("what the training began with", sha256, found["sha256"], "evaluation.json")


def _asked(evidence: Evidence) -> StartFrom | None:
    asked = evidence.recipe["train"].get("start_from")
    start = StartFrom.model_validate(asked) if asked else None
    return None if start is None or start.checkpoint else start


def _evaluated(evidence: Evidence) -> dict[str, Any] | None:
    model = evidence.json(evidence.source("Statistics")["S3Uri"])["model"]
    found: dict[str, Any] | None = model.get(BASE)
    return found


def _sha256(evidence: Evidence, uri: str) -> str:
    """As ``training.base_model.sha256``, of what lies in S3."""
    if uri.endswith(ARCHIVE):
        return evidence.sha256(uri)
    there = evidence.listed(uri)
    if {*OURS} & {*there}:
        return together({name: evidence.sha256(f"{uri}{name}") for name in there})
    index = evidence.read(f"{uri}{hugging_face.INDEX}") if hugging_face.INDEX in there else None
    try:
        names = hugging_face.named(json.loads(index) if index else None, [*there])
    except (ValueError, DataError) as error:
        raise Mismatch(f"{uri}: {error}") from None
    return hugging_face.together({name: evidence.sha256(f"{uri}{name}") for name in names})
