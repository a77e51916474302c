"""Upsert one commit from many fresh clones.

python -m benchmarks.clones [--clones 10] [--json FILE]

Each clone has another path, HOME, hash seed, time zone and file mode, and comes at another time;
all of them upsert to one AWS. One definition is demanded, byte for byte: the first clone creates
the pipeline, the others say ``unchanged`` and upload nothing. Then a comment is put into one source
file after another: the steps whose code's hash changes must be those that carry the file.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.harness import CHECKOUT, JsonFile, keep, show_table
from trainyard.emulator.server import Endpoint, serve

RECIPE = "recipes/laptop.yaml"
ZONES = ("UTC", "Asia/Kathmandu", "America/St_Johns", "Pacific/Chatham")
SAID = re.compile(r"pipeline \S+: (\w+) \(definition (\w+), (\d+) bytes of code uploaded\)")
# What is changed → the steps that carry it.
CHANGES = {
    "training/loop.py": {"Train", "Evaluate"},
    "training/workloads/language_model/scores.py": {"Shard", "Train", "Evaluate"},
    "steps/evaluate/job.py": {"Evaluate"},
    "steps/shard/pool.py": {"Shard"},
    "steps/train/step.py": set(),
    "README.md": set(),
}


@dataclass(frozen=True, slots=True)
class Upsert:
    """Result of an upsert."""

    clone: str
    change: str
    definition: str
    """The beginning of the definition's SHA-256."""
    uploaded_bytes: int


def main(
    clones: Annotated[int, typer.Option(min=2, help="Fresh clones.")] = 10,
    json_file: JsonFile = None,
) -> None:
    """Exit status 1 unless all definitions are one and only the steps concerned change."""
    with (
        tempfile.TemporaryDirectory(prefix="clones-") as folder,
        serve(state=Path(folder) / "aws") as endpoint,
    ):
        upserts = [upsert(Path(folder), number, endpoint) for number in range(clones)]
        changed = {file: carriers(Path(folder) / "clone-0", file) for file in CHANGES}
    good = one_definition(upserts) and changed == CHANGES
    _print(upserts, changed)
    told = {file: sorted(steps) for file, steps in changed.items()}
    keep(json_file, {"upserts": [asdict(one) for one in upserts], "good": good, "changed": told})
    raise typer.Exit(0 if good else 1)


def upsert(folder: Path, number: int, endpoint: Endpoint) -> Upsert:
    """Clone the commit that is checked out here, and upsert from the clone."""
    clone = folder / f"clone-{number}"
    subprocess.run(
        ["git", "clone", "--quiet", CHECKOUT, clone], check=True, umask=(0o22, 0o77)[number % 2]
    )
    said = _verb(clone, "upsert", **endpoint.env, **_surroundings(folder, number))
    match = SAID.search(said)
    if match is None:
        raise SystemExit(f"{clone}: what upsert said is not understood: {said}")
    return Upsert(clone.name, match[1], match[2], int(match[3]))


def _surroundings(folder: Path, number: int) -> dict[str, str]:
    return {
        "HOME": f"{folder}/home-{number}",
        "PYTHONHASHSEED": str(number),
        "TZ": ZONES[number % len(ZONES)],
    }


def one_definition(upserts: list[Upsert]) -> bool:
    """Return whether one created the pipeline, and all others had nothing to do."""
    first, *others = upserts
    same = {one.definition for one in upserts} == {first.definition}
    idle = all((one.change, one.uploaded_bytes) == ("unchanged", 0) for one in others)
    return same and idle and first.change == "created"


def carriers(clone: Path, file: str) -> set[str]:
    """The steps whose code's hash changes when the file ends with one more comment."""
    before = _code(clone)
    content = (clone / file).read_bytes()
    (clone / file).write_bytes(content + b"# one more comment\n")
    try:
        after = _code(clone)
    finally:
        (clone / file).write_bytes(content)
    return {step for step, uri in before.items() if after[step] != uri}


def _code(clone: Path) -> dict[str, str]:
    """Step → S3 URI of its code."""
    steps = json.loads(_verb(clone, "definition"))["Steps"]
    return {step["Name"]: uri for step in steps if (uri := _code_uri(step["Arguments"]))}


def _code_uri(arguments: Mapping[str, Any]) -> str | None:
    for source in arguments.get("ProcessingInputs", ()):
        if source["InputName"] == "code":
            return source["S3Input"]["S3Uri"]
    for channel in arguments.get("InputDataConfig", ()):
        if channel["ChannelName"] == "code":
            return channel["DataSource"]["S3DataSource"]["S3Uri"]
    return None


def _verb(clone: Path, name: str, **environment: str) -> str:
    arguments = [sys.executable, "-m", f"pipelines.{name}", "--recipe", RECIPE]
    done = subprocess.run(
        arguments,
        cwd=clone,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{clone}: {' '.join(arguments)}: {done.stderr}")
    return done.stdout


def _print(upserts: list[Upsert], changed: Mapping[str, set[str]]) -> None:
    told = ((one.clone, one.change, one.definition, one.uploaded_bytes) for one in upserts)
    show_table(("clone", "upsert", "definition", "bytes uploaded"), told)
    shown = [(f, ", ".join(sorted(steps)) or "no step", steps == CHANGES[f])
             for f, steps in changed.items()]  # fmt: skip
    show_table(("a comment in", "changes the code of", "as it must"), shown)


if __name__ == "__main__":
    typer.run(main)
