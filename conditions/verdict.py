"""Combine all checks into gate.json, of which the ConditionStep reads only the verdict.

What a single check decides is in ``checks``, such as ``checks.superiority``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Unpack

from conditions.check_table import list_kinds
from conditions.gate_check import Check, find_number
from conditions.gate_documents import Gate, GateFacts, Outcome

REASON_LENGTH = 700
"""Maximum length of ``reason`` in characters. A step's FailureReason holds 1,024, and the report's
address comes before the reason.
"""


def decide_verdict(evaluation: Any, checks: Sequence[Check], **facts: Unpack[GateFacts]) -> Gate:
    """Combine the checks into a verdict; return the content of gate.json.

    All keys are always present. The verdict is ``pass`` only if every check passed; it is
    ``reject`` if the evaluation has no dataset fingerprint, or if there are no checks.
    """
    reasons = [check.reason for check in checks if not check.passed]
    if not checks:
        reasons.append("the gate has no checks, so it cannot pass anything")
    fingerprint = _find_text(evaluation, "dataset", "fingerprint")
    if fingerprint is None:
        reasons.append("the evaluation does not say which dataset it was measured on")
    # Each reason appears once, and the text is cut to what a failure message holds.
    text = "; ".join(dict.fromkeys(reasons or [check.reason for check in checks]))
    reason = text if len(text) <= REASON_LENGTH else f"{text[: REASON_LENGTH - 2]} …"
    return {
        "verdict": "reject" if reasons else "pass",
        "reason": reason,
        "checks": [asdict(check) for check in checks],
        "kinds": {kind: _decide_outcome(checks, kind) for kind in list_kinds()},
        "dataset_fingerprint": fingerprint,
        "train_fingerprint": _find_text(evaluation, "dataset", "train_fingerprint"),
        "test_fingerprint": _find_text(evaluation, "dataset", "test_fingerprint"),
        "artifact_sha256": _find_text(evaluation, "artifact", "sha256"),
        "metrics": _find_numbers(evaluation, "metrics", inner=("value",)),
        "champion_metrics": _find_numbers(evaluation, "champion", "metrics", inner=("value",)),
        "baselines": {
            name: _find_numbers(evaluation, "baselines", name)
            for name in _find_mapping(evaluation, "baselines")
        },
        "champion": facts.get("champion"),
        "cold_start": facts.get("cold_start"),
        "confidence": facts.get("confidence"),
        "look": facts.get("look"),
        "examples": facts.get("examples"),
        "groups": facts.get("groups"),
        "slices": facts.get("slices", []),
        "champion_artifact_sha256": facts.get("champion_artifact_sha256"),
    }


def _decide_outcome(checks: Sequence[Check], kind: str) -> Outcome:
    """Return ``pass`` or ``reject``, or ``none`` if there is no check of this kind."""
    passes = [check.passed for check in checks if check.kind == kind]
    return ("pass" if all(passes) else "reject") if passes else "none"


def _find_mapping(evidence: Any, *path: str) -> Mapping[str, Any]:
    """Return the object at ``path``, or an empty one if it is missing or not an object."""
    for key in path:
        evidence = evidence.get(key) if isinstance(evidence, dict) else None
    return evidence if isinstance(evidence, dict) else {}


def _find_text(evidence: Any, *path: str) -> str | None:
    """Return the text at ``path``, or None if it is missing, empty or not a string."""
    value = _find_mapping(evidence, *path[:-1]).get(path[-1])
    return value if isinstance(value, str) and value else None


def _find_numbers(
    evidence: Any, *path: str, inner: tuple[str, ...] = ()
) -> dict[str, float | None]:
    """Return the number at ``inner`` in each entry of the object at ``path``, by the entry's name;
    None for one that is not a finite number.
    """
    return {
        name: find_number(evidence, *path, name, *inner) for name in _find_mapping(evidence, *path)
    }
