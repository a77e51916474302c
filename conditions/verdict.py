"""All checks together: gate.json, whose one word the ConditionStep reads."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from conditions.checks import Check, measured


def verdict(evaluation: Any, checks: Sequence[Check]) -> dict[str, Any]:
    """gate.json: every key always there; ``pass`` only when every check passed.

    An evaluation without a dataset fingerprint, and a gate without checks, reject.
    """
    reasons = [check.reason for check in checks if not check.passed]
    if not checks:
        reasons.append("the gate has no checks, so it cannot pass anything")
    fingerprint = _fingerprint(evaluation)
    if fingerprint is None:
        reasons.append("the evaluation does not say which dataset it was measured on")
    passed = "; ".join(check.reason for check in checks)
    return {
        "verdict": "reject" if reasons else "pass",
        "reason": "; ".join(reasons) if reasons else passed,
        "checks": [asdict(check) for check in checks],
        "dataset_fingerprint": fingerprint,
        "metrics": _metrics(evaluation),
    }


def _fingerprint(evaluation: Any) -> str | None:
    dataset = evaluation.get("dataset") if isinstance(evaluation, dict) else None
    found = dataset.get("fingerprint") if isinstance(dataset, dict) else None
    return found if isinstance(found, str) and found else None


def _metrics(evaluation: Any) -> dict[str, float | None]:
    metrics = evaluation.get("metrics") if isinstance(evaluation, dict) else None
    names = metrics if isinstance(metrics, dict) else {}
    return {name: measured(evaluation, "metrics", name, "value") for name in names}
