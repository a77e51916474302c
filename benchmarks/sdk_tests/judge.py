"""Judge what a test's outcome is worth: works, vacuous, ours, not here, refused type.

A green test *works* when every execution and every job that it started has ended, each succeeded
step's job was really run by the emulator, and nothing failed but what the test is about. A green
test with anything else is *vacuous*. A red one is *ours*, unless it needs what this machine
cannot have (*not here*) or a step type that the emulator refuses by name (*refused type*), and its
refusal is what the test failed on.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from trainyard.language.definition_document import END_STATUSES, JOB_ENDED

CHANGES = yaml.safe_load(Path(__file__).with_name("changes.yaml").read_text(encoding="utf-8"))
VERDICTS = ("works", "vacuous", "ours", "not here", "refused type")
_RUN_BY_JOBS = ("TrainingJob", "ProcessingJob")


@dataclass(frozen=True, slots=True)
class Verdict:
    """One of ``VERDICTS`` on a test, and the reason."""

    verdict: str
    reason: str


def judge_test(test: str, passed: bool, error: str, evidence: dict[str, Any]) -> Verdict:
    """Return the verdict on a test; ``test``: its ID; ``error``: the end of a red test's output."""
    if passed and re.search(r"=+ [^\n]*\b1 skipped[^\n]*\Z", error.strip()):
        return Verdict("not here", "AWS's own tests skip it")
    faults = list(_iter_faults(test, evidence)) if passed else []
    if passed and not faults:
        return Verdict("works", _describe_completed_work(evidence))
    for reason, names in CHANGES["not_here"].items():
        if _get_short_name(test) in names:
            return Verdict("not here", reason)
    if passed:
        return Verdict("vacuous", faults[0])
    for kind, names in CHANGES["refused"].items():
        if any(name in test for name in names) and _is_kind_refused(kind, error, evidence):
            return Verdict("refused type", f"{kind} is refused by name")
    return Verdict("ours", _find_cause(error, evidence))


def _iter_faults(test: str, evidence: dict[str, Any]) -> Iterator[str]:
    """Yield why the work that a green test declared has not really happened."""
    if evidence["pretended"]:
        yield f"nothing did the work of {', '.join(evidence['pretended'])}"
    ran = {job["arn"]: job for job in evidence["jobs"]}
    expected = any(name in test for name in CHANGES["expected_failures"])
    for execution in evidence["executions"]:
        yield from _iter_execution_faults(execution, ran, expected)
    for job in evidence["jobs"]:
        if job["status"] not in JOB_ENDED:
            yield f"job {job['name']} is still {job['status']}"
        elif job["status"] == "Failed" and not expected and not evidence["executions"]:
            yield f"job {job['name']} failed: {job['reason']}"


def _iter_execution_faults(
    execution: dict[str, Any], ran: dict[str, Any], expected: bool
) -> Iterator[str]:
    status, steps = execution["status"], execution["steps"]
    if status not in END_STATUSES:
        yield f"execution is still {status}"
    elif not steps:
        yield f"execution {status} without a step: {execution['reason']}"
    wrong = [step for step in steps if step["status"] == "Failed" and not _fails_by_design(step)]
    if wrong and not expected:
        yield f"step {wrong[0]['name']} failed: {wrong[0]['reason']}"
    for step in steps:
        if step["status"] == "Succeeded" and not step["reused"]:
            yield from _iter_missing_proofs(step, ran)


def _iter_missing_proofs(step: dict[str, Any], ran: dict[str, Any]) -> Iterator[str]:
    """Yield why a step that says Succeeded is not proven: no job of the emulator did its work."""
    for kind in _RUN_BY_JOBS:
        arn = step["metadata"].get(kind, {}).get("Arn")
        if arn and ran.get(arn, {}).get("status") != "Completed":
            yield f"step {step['name']} succeeded, but {arn} was not run to its end"
    if not step["metadata"]:
        yield f"step {step['name']} succeeded without a trace of what it did"


def _fails_by_design(step: dict[str, Any]) -> bool:
    return "Fail" in step["metadata"]


def _describe_completed_work(evidence: dict[str, Any]) -> str:
    executions = evidence["executions"]
    steps = sum(len(execution["steps"]) for execution in executions)
    jobs = [job for job in evidence["jobs"] if job["status"] == "Completed"]
    if not executions and not evidence["jobs"]:
        return "starts nothing: definitions and records only"
    return f"executions {len(executions)}, steps {steps}, jobs completed {len(jobs)}"


def _get_short_name(test: str) -> str:
    """Return a test's function without its parameters, or a notebook's file without its suffix."""
    if "::" in test:
        return test.rpartition("::")[2].partition("[")[0]
    return PurePosixPath(test).stem


def _is_kind_refused(kind: str, error: str, evidence: dict[str, Any]) -> bool:
    text = "\n".join([error, *evidence["refusals"]])
    return re.search(rf"type '{kind}\w*', which is not run", text) is not None


def _find_cause(error: str, evidence: dict[str, Any]) -> str:
    """Return the most telling line: the reason of a failed step or job, or the error itself."""
    for execution in evidence["executions"]:
        for step in execution["steps"]:
            if step["status"] == "Failed" and not _fails_by_design(step):
                return f"step {step['name']}: {step['reason']}"
        if execution["status"] not in END_STATUSES:
            return f"execution is still {execution['status']}; {_find_error_line(error)}"
    for job in evidence["jobs"]:
        if job["status"] == "Failed":
            return f"job {job['name']}: {job['reason']}"
    return _find_error_line(error)


def _find_error_line(error: str) -> str:
    lines = [line for line in error.splitlines() if line.startswith("E  ")]
    lines = lines or [line for line in error.splitlines() if line.strip()]
    return lines[0 if lines and lines[0].startswith("E  ") else -1].strip()[:600] if lines else ""
