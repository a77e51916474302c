"""Compute again what a model package's record says, and report the first thing that does not match.

python -m pipelines.verify MODEL_PACKAGE_ARN [--checkout DIR] [--deep | --quick] [--json]
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from pipelines.registry.verification import Finding, find_first_mismatch, verify
from trainyard.local_state import serve_local_state
from trainyard.terminal import console, run

MARKS = {"ok": ("✓", "green"), "mismatch": ("✗", "bold red"), "unchecked": ("–", "yellow")}


@serve_local_state()
def main(
    package: Annotated[str, typer.Argument(metavar="MODEL_PACKAGE_ARN")],
    checkout: Annotated[
        Path | None,
        typer.Option(help="A checkout at the package's commit; default: the current one."),
    ] = None,
    deep: Annotated[bool, typer.Option("--deep", help="Hash every byte of the dataset.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Run only the checks that read little.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Check a registered model against its provenance; exit with 0 only if nothing mismatches."""
    findings = verify(package, checkout, quick=quick, deep=deep)
    wrong = find_first_mismatch(findings)
    if as_json:
        print(json.dumps({"package": package, "findings": [asdict(f) for f in findings]}, indent=1))
    else:
        console.print(format_findings(findings))
        console.print(Text(summarize_findings(findings, wrong)))
    raise typer.Exit(1 if wrong else 0)


def format_findings(findings: list[Finding]) -> Text:
    """Return one line per check: ✓, ✗, or – if it cannot be computed here, with the reason."""
    width = max(len(finding.name) for finding in findings)
    rows = [Text.assemble(MARKS[f.status], f"  {f.name:{width}}  ", f.detail) for f in findings]
    return Text("\n").join(rows)


def summarize_findings(findings: list[Finding], first_mismatch: Finding | None) -> str:
    """Return the last line: the first mismatch, or how many checks match."""
    if first_mismatch:
        return f"{first_mismatch.name} does not match: {first_mismatch.detail}"
    unchecked_count = sum(finding.status == "unchecked" for finding in findings)
    remark = f"; {unchecked_count} could not be computed here" if unchecked_count else ""
    return f"{len(findings) - unchecked_count} of {len(findings)} checks match{remark}"


if __name__ == "__main__":
    run(main)
