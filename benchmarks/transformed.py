"""Score a million rows by the transform job: memory, processor time, and kills.

python -m benchmarks.transformed [--rows 1000000] [--kills 3] [--json FILE]

A tabular model scores a CSV, of which each 9,973rd row is bad, once undisturbed, and once killed
with SIGKILL when seeded shares of the parts are written, and started again. Every file of both
outputs must be, byte by byte, the undisturbed one; each row comes out once, scored or quarantined.
Peak memory is compared with that of a tenth of the rows.
"""

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from benchmarks.harness import CHECKOUT, JsonFile, keep
from benchmarks.measured_process import Used
from benchmarks.serving.__main__ import KINDS, SETTINGS, made
from steps.transform.scored_object import PART
from trainyard.common.hashes import file_sha256

BAD = 9973
PARTS = "processing/output/progress/*/[0-9]*"
CHUNK = 100_000  # rows that are written at once
app = typer.Typer(add_completion=False)


@dataclass(frozen=True, slots=True)
class Run:
    """A run of the job, to its end or to its kill."""

    used: Used
    seconds: float


def written(path: Path, rows: int) -> None:
    """Write a table without the label, and with an ``id``."""
    random = np.random.default_rng(0)
    categories, numbers = SETTINGS["tabular"]["categories"], SETTINGS["tabular"]["numbers"]
    words = np.array([kind or "" for kind in KINDS])
    with path.open("w") as file:
        file.write(",".join(("id", *categories, *numbers)) + "\n")
        for start in range(0, rows, CHUNK):
            count = min(CHUNK, rows - start)
            chosen = words[random.integers(0, len(words), (count, len(categories)))].tolist()
            values = random.normal(size=(count, len(numbers))).tolist()
            for row, (word, value) in enumerate(zip(chosen, values, strict=True), start):
                shown = [*map(repr, value[1:]), "many" if row % BAD == 0 else repr(value[0])]
                file.write(",".join((str(row), *word, *shown)) + "\n")


def ran(root: Path, parts: int | None = None) -> Run:
    """Run the job; kill it when so many parts are written, in all runs."""
    began = time.monotonic()
    command = [sys.executable, "-m", "steps.transform.job", "--root", root, "--keep", "id"]
    with (root / "log").open("a") as log:
        process = subprocess.Popen(command, cwd=CHECKOUT, stdout=log, stderr=log)
    if parts is not None:
        while len([*root.glob(PARTS)]) < parts and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    used = Used.of(process.pid)
    if parts is None and used.status:
        raise SystemExit((root / "log").read_text()[-2000:])
    return Run(used, time.monotonic() - began)


def prepared(root: Path, rows: int) -> None:
    """Put a model and the rows where the job gets them."""
    inputs = root / "processing/input"
    inputs.mkdir(parents=True)
    made("tabular", inputs / "model")
    (inputs / "records").mkdir()
    written(inputs / "records/rows.csv", rows)


def hashes(root: Path) -> dict[str, str]:
    """SHA-256 of every file of both outputs, hidden ones too."""
    output = root / "processing/output"
    found = [path for name in ("scores", "quarantine") for path in (output / name).rglob("*")]
    return {f"{p.relative_to(output)}": file_sha256(p) for p in found if p.is_file()}


@app.command()
def main(
    rows: Annotated[int, typer.Option(help="rows of the table")] = 1_000_000,
    kills: Annotated[int, typer.Option(help="kills of the second run")] = 3,
    json_file: JsonFile = None,
) -> None:
    """Measure the transform job on many rows."""
    with tempfile.TemporaryDirectory() as place:
        small, root = Path(place) / "small", Path(place) / "whole"
        prepared(small, rows // 10)
        tenth = ran(small)
        prepared(root, rows)
        whole = ran(root)
        expected, output = hashes(root), root / "processing/output"
        summary = json.loads((output / "quarantine/summary-algo-1.json").read_text())
        shutil.rmtree(output)
        shares = np.sort(np.random.default_rng(0).uniform(0.1, 0.9, kills))
        parts = (shares * rows / PART).astype(int).tolist()
        for count in parts:
            ran(root, count)
        last = ran(root)
        same = hashes(root) == expected
    found = {
        "rows": summary["records"],
        "scored": summary["scored"],
        "quarantined": summary["quarantined"],
        "seconds": whole.seconds,
        "cpu_seconds": whole.used.cpu_seconds,
        "peak_mb": whole.used.peak_bytes / 1e6,
        "peak_mb_of_a_tenth": tenth.used.peak_bytes / 1e6,
        "killed_at_parts": parts,
        "last_run_cpu_seconds": last.used.cpu_seconds,
        "byte_equal": same,
    }
    keep(json_file, found)
    print("\n".join(f"{name.replace('_', ' ')}: {value}" for name, value in found.items()))
    whole_count = summary["scored"] + summary["quarantined"] == summary["records"] == rows
    raise typer.Exit(0 if same and whole_count else 1)


if __name__ == "__main__":
    app()
