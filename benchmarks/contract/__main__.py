"""Seed faults into a sound workload, and count those that ``python -m training.tools.try`` names.

python -m benchmarks.contract [--out contract.json]

Each fault is one edit of a sound workload (benchmarks/contract/sound). The rules are checked as the
command checks them, in this process, in others and on two ranks, until the first one is broken.
"""

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.contract.faults import FAULTS, Seeded, lines, write
from benchmarks.harness import show_table
from training.tools.contract_tests.contract import Verdict
from training.tools.contract_tests.try_command import attempt


def tried(fault: Seeded | None, number: int) -> list[Verdict]:
    """Verdicts until the first broken rule."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sys.path.insert(0, str(folder / "code"))
        workload = write(fault, folder / "code", f"seeded_{number}")
        (folder / "raw").mkdir()
        (folder / "raw/lists.jsonl").write_text(lines())
        (folder / "work").mkdir()
        found = []
        for verdict in attempt(workload, "{}", folder / "raw", folder / "work"):
            found.append(verdict)
            if verdict.faults:
                break
        sys.path.remove(str(folder / "code"))
    return found


def main(out: Annotated[Path | None, typer.Option()] = None) -> None:
    """Exit with 1 where a fault is not named, or the sound workload is said to have one."""
    rows = []
    for number, fault in enumerate([None, *FAULTS]):
        began = time.monotonic()
        last = tried(fault, number)[-1]
        rows.append(_row(fault, last) | {"seconds": f"{time.monotonic() - began:.1f}"})
    columns = ("fault", "named_by", "right", "found", "seconds")
    show_table(columns, ([row[name] for name in columns] for row in rows))
    right = sum(row["right"] for row in rows[1:])
    sound = "no fault" if rows[0]["right"] else "a fault"
    print(f"{right} of {len(FAULTS)} faults are named; the sound workload has {sound}")
    if out:
        out.write_text(json.dumps(rows, indent=1))
    raise typer.Exit(0 if all(row["right"] for row in rows) else 1)


def _row(fault: Seeded | None, last: Verdict) -> dict[str, Any]:
    named = last.rule.name if last.faults else ""
    first = last.faults[0] if last.faults else None
    return {
        "fault": fault.what if fault else "none: the sound workload",
        "named_by": named,
        "found": first.observation if first else "",
        "where": first.location if first else "",
        "right": named in fault.rules if fault else not named,
    }


if __name__ == "__main__":
    typer.run(main)
