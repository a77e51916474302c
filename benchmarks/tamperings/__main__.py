"""Register a model, harm everything that its record covers, and count what is named.

python -m benchmarks.tamperings [--out FILE.json]
"""

import json
import os
import tempfile
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.tamperings.tamperings import KINDS, Target, files, keys, tampered
from pipelines.approve import approve
from pipelines.registry.package_evidence import Evidence
from pipelines.registry.verification import chosen, first_mismatch, run_checks
from trainyard.common.errors import GateError


def named(found: str, target: Target, kind: str) -> bool:
    """Whether a finding says where the harm is."""
    named = [target.name, *(["model card"] if target.where == "ModelCard" else [])]
    added = kind == "additional key" and "more" in found.lower()
    return added or any(name in found for name in named)


def by_approve(arn: str, *, deep: bool = False) -> str:
    """Why an approval is refused; empty when it is not."""
    try:
        approve(arn, deep=deep, reason="a trial")
    except GateError as why:
        return str(why)
    return ""


def by_verify(arn: str) -> str:
    """The first thing that does not match; empty when everything does."""
    checks = run_checks(Evidence(arn), chosen(None, quick=False, deep=True))
    wrong = first_mismatch(checks)  # stops there: what comes later need not be computed
    return f"{wrong.name}: {wrong.detail}" if wrong else ""


def main(out: Annotated[Path | None, typer.Option(help="Where the table goes, as JSON.")] = None):
    """Print, for each kind of harm, how many of how many are named by approve and by verify."""
    from tests.registered import checkout_in, register
    from trainyard.emulator.server import serve

    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "checkout"
        copy.mkdir()
        with serve(state=Path(folder) / "aws") as emulator:
            os.environ |= emulator.env
            registered = register(emulator, Path(folder) / "aws", checkout_in(copy))
            rows = sweep(registered.client, registered.arn)
    if out:
        out.write_text(json.dumps(rows, indent=1))
    raise typer.Exit(0 if all(row["approve"] and row["verify"] for row in rows) else 1)


def sweep(client, arn: str) -> list[dict]:
    """One row for each target and kind; a table of the counts is printed."""
    evidence = Evidence(arn)
    targets, rows, counts, right = [*files(evidence), *keys(evidence)], [], Counter(), Counter()
    for number, target in enumerate(targets):
        for kind in KINDS:
            with tampered(client, arn, target, kind):
                found = {"approve": by_approve(arn, deep=target.bulk), "verify": by_verify(arn)}
            what = "file" if target.where.startswith("s3://") else "key"
            row = {"target": target.where, "path": target.path, "kind": kind}
            for verb, said in found.items():
                row[verb], row[f"{verb} said"] = named(said, target, kind), said
                counts[what, kind, verb] += 1
                right[what, kind, verb] += row[verb]
                if not row[verb]:
                    print(f"{verb}: {kind} of {target.where} {target.path}: {said!r}", flush=True)
            rows.append(row)
        print(f"\r{number + 1} of {len(targets)}", end="", flush=True)
    print()
    for (what, kind, verb), count in sorted(counts.items()):
        print(f"{what:5} {kind:22} {verb:8} {right[what, kind, verb]} of {count} named")
    return rows


if __name__ == "__main__":
    typer.run(main)
