"""Choose which version of a model is registered: the full model, or the one with int8 weights.

The same checks judge both versions, and one more judges the int8 version: its loss beside the full
model's. The int8 version is registered if it passes all of its checks and the full model passes all
but the one on size; else the full model is, if it passes.

The two tests need no correction, because their order is fixed (Maurer, Hothorn & Lehmacher 1995).
If the full model is not good enough, a model is registered only when the full model's test errs; if
only the int8 version is not good enough, it is registered only when its own test errs. Either has
probability α at most.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from conditions.gate_check import read_number
from conditions.gate_documents import Gate

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
