"""What a QualityCheck or ClarifyCheck step found its data or model to break of its baseline."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainyard.console.account import Account
from trainyard.console.objects.reading import beginning
from trainyard.runs.execution import CHECKS

MOST = 200
"""Violations that are shown; the others are in the report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Violations:
    """What a check found."""

    note: str = ""
    """What is to be said in place of a table, or below it."""

    report: str = ""
    """S3 URI of the report; empty where there is none."""

    columns: Sequence[str] = ()
    rows: Sequence[Mapping[str, Any]] = ()
    count: int = 0
    """Of all violations."""


def violations(
    here: Account, metadata: Mapping[str, Any], status: str, seconds: float
) -> Violations | None:
    """What a check found; None of a step that checks nothing, or has not found anything yet.

    AWS tells of a report where there are violations, and only there.

    Args:
        metadata: the step's, of ListPipelineExecutionSteps.
        seconds: for which what was read of the report is good.

    Raises:
        ServiceError: AWS refused to read the report.
    """
    told = next((metadata[name] for name in CHECKS if name in metadata), None)
    if told is None:
        return None
    if report := told.get("ViolationReport"):
        return here.lately(("step: violations", report), lambda: _read(here, report), seconds)
    if status != "Succeeded":
        return None
    if told.get("SkipCheck"):
        return Violations(note="Nothing was compared: SkipCheck is set, it made a baseline only.")
    return Violations(note="None: what was checked keeps to its baseline.")


def _read(here: Account, report: str) -> Violations:
    found = beginning(here, report)
    if found is None:
        return Violations(note="The report is gone.", report=report)
    if not found.is_whole:
        return Violations(note="The report is too long to be shown here.", report=report)
    try:
        every = [dict(one) for one in json.loads(found.data)["violations"]]
    except (ValueError, KeyError, TypeError):  # another's file: a link to it is all there is
        return Violations(note="The report is none of Model Monitor's form.", report=report)
    rows = every[:MOST]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    note = f"The first {MOST} are shown." if len(every) > MOST else ""
    return Violations(note=note, report=report, columns=columns, rows=rows, count=len(every))
