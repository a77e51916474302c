"""All checks of a package, one after the other, and what each found."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pipelines.verify import checks, data, recompute, registration, training
from pipelines.verify.checks import Mismatch, Unchecked
from pipelines.verify.evidence import Absent, Evidence
from trainyard.common.errors import ServiceError

CHECKOUT = Path(__file__).resolve().parent.parent.parent
FOUNDATION = ("package", "provenance")
"""Without these nothing is known to compare with."""

Check = Callable[[Evidence], str]
QUICK: Mapping[str, Check] = {
    "package": checks.package,
    "provenance": checks.provenance,
    "execution": registration.execution,
    "evaluation": checks.evaluation,
    "gate": checks.gate,
    "customer metadata": checks.metadata,
    "metrics": checks.metrics,
    "artifact": checks.artifact_place,
    "definition": checks.definition,
    "definition's record": checks.origin,
    "demands": checks.demands,
    "record": data.outputs,
    "registration": registration.request,
    "code": checks.code,
    "training": training.history,
    "base": training.begun_with,
}
"""What costs some small reads; in the order of trust."""
BYTES: Mapping[str, Check] = {
    "artifact's bytes": data.artifact,
    "artifact's training": training.artifact,
    "base's bytes": training.untouched,
    "scores": data.scores,
}
"""Every byte of what would be deployed, and of what the verdict rests on."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found."""

    name: str
    status: Literal["ok", "mismatch", "unchecked"]
    detail: str


def verify(
    arn: str, checkout: Path | None = None, *, quick: bool = False, deep: bool = False
) -> list[Finding]:
    """Check the package ``arn``, in the order of trust: the first mismatch is the one to look at.

    Args:
        checkout: what to compare code and recipe with; None for the one that this runs in, whose
            being at another commit is no fault of the package's.
        quick: only what costs a few small reads.
        deep: every byte of the dataset too.

    Raises:
        ServiceError: there is no such package, or AWS cannot be reached.
    """
    evidence = Evidence(arn)
    _ = evidence.package  # what is not there is no finding
    return list(run_checks(evidence, chosen(checkout, quick=quick, deep=deep)))


def chosen(checkout: Path | None, *, quick: bool, deep: bool) -> Mapping[str, Check]:
    """The checks that ``verify`` makes, in their order."""
    if quick:
        return QUICK
    splits = {f"{name} split": data.split(name, deep=deep) for name in ("train", "test")}
    local = recompute.checks((checkout or CHECKOUT).resolve(), named=checkout is not None)
    return {**QUICK, **BYTES, **splits, **local}


def before_approval(evidence: Evidence, *, deep: bool = False) -> Iterator[Finding]:
    """What an approval rests on: every byte of the artifact, of the evidence and of the test split.

    Of the train split, which nobody reads again, the manifests and every file's name and size;
    ``deep``: every byte too.
    """
    splits = {
        "test split": data.split("test", deep=True),
        "train split": data.split("train", deep=deep),
    }
    return run_checks(evidence, {**QUICK, **BYTES, **splits})


def run_checks(evidence: Evidence, chosen: Mapping[str, Check]) -> Iterator[Finding]:
    """Run the checks in their order."""
    missing = ""
    for name, check in chosen.items():
        if missing:
            yield Finding(name, "unchecked", f"rests on {missing}")
            continue
        found = _found(evidence, name, check)
        if name in FOUNDATION and found.status != "ok":
            missing = name
        yield found


def _found(evidence: Evidence, name: str, check: Check) -> Finding:
    """What is not there, or not of the form that it should have, is a mismatch."""
    try:
        return Finding(name, "ok", check(evidence))
    except Unchecked as why:
        return Finding(name, "unchecked", str(why))
    except (Mismatch, Absent, ServiceError) as why:
        return Finding(name, "mismatch", str(why))
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as why:
        return Finding(name, "mismatch", f"is not of the form that it should have: {why!r}")


def first_mismatch(findings: Iterable[Finding]) -> Finding | None:
    """None when everything that was checked is right."""
    return next((finding for finding in findings if finding.status == "mismatch"), None)
