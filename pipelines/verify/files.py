"""The files that the record covers: every byte of each, and no other file among them."""

from collections.abc import Collection

from conditions.provenance import record, text
from pipelines.verify.checks import SHOWN, Mismatch, same
from pipelines.verify.evidence import Evidence


def artifact(evidence: Evidence) -> str:
    """The model, every byte of it; the job that evaluated it can have got nothing besides."""
    uri = evidence.model
    beside = [] if uri.endswith("/") else sorted(set(evidence.beginning_with(uri)) - {""})
    if beside:
        raise Mismatch(f"{uri}{beside[0]} begins with the artifact's name: no part of the record")
    found = evidence.model_sha256()
    same("SHA-256 of the artifact", found, evidence.provenance.get("artifact_sha256"),
         "provenance.json")  # fmt: skip
    return found[:SHOWN]


def scores(evidence: Evidence) -> str:
    """The tables of scores are those that the gate read and the evaluation sums up."""
    recorded = evidence.provenance["scores_sha256"]
    told = evidence.json(evidence.source("Statistics")["S3Uri"])["scores"]
    folder = evidence.output("Evaluate", "scores")
    alone(evidence, folder, recorded)
    for name, expected in recorded.items():
        same(f"SHA-256 of {name} in evaluation.json", told[name]["sha256"], expected,
             "provenance.json")  # fmt: skip
        same(f"SHA-256 of {name}", evidence.sha256(f"{folder}/{name}"), expected,
             "provenance.json")  # fmt: skip
    return ", ".join(f"{name} {digest[:SHOWN]}" for name, digest in recorded.items())


def outputs(evidence: Evidence) -> str:
    """Beside evaluation.json lies nothing, beside gate.json the record and what Register read."""
    alone(evidence, evidence.output("Evaluate", "evaluation"), ("evaluation.json",))
    gate = evidence.output("Gate", "gate")
    alone(evidence, gate, ("gate.json", "provenance.json", "record.json"))
    told = text(record(evidence.provenance, evidence.metadata["provenance_sha256"]))
    if evidence.read(f"{gate}/record.json") != told.encode():
        raise Mismatch("record.json is not what follows from provenance.json")
    return "4 files"


def alone(evidence: Evidence, folder: str, names: Collection[str]) -> None:
    """Exactly the files ``names`` lie in ``folder``.

    Raises:
        Mismatch: one is missing, or another is there.
    """
    there = set(evidence.listed(folder))
    for name in sorted({*names} ^ there):
        what = "is no part of the record" if name in there else "is missing"
        raise Mismatch(f"{folder}/{name} {what}")
