"""Take every kind of project that ``pipelines.new`` writes to a registered package.

python -m benchmarks.new_projects [--like table] [--json projects.json]

In an empty folder each project is written and goes through the commands that stand in its own
README: its test, its check, its run on an embedded AWS. Ends with 1 where one of them fails.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.harness import CHECKOUT, JsonFile, keep, show_table
from pipelines.new import kinds


def commands(readme: Path) -> list[list[str]]:
    """The commands of a README's code block, as words; the environment is this Python's."""
    [block] = re.findall(r"```\n(.*?)```", readme.read_text(encoding="utf-8"), re.DOTALL)
    lines = block.replace("\\\n", " ").splitlines()
    return [shlex.split(line) for line in lines if not line.startswith("source ")]


def made(kind: str, folder: Path) -> list[dict[str, object]]:
    """What became of each command, until one fails."""
    project = folder / f"my-{kind}"
    new = ["python", "-m", "pipelines.new", str(project), "--like", kind]
    style = ["python", "-m", "ruff", "check", str(project)]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # as in an activated environment
    rows = []
    waiting = [new, style]
    while waiting:
        words = waiting.pop(0)
        if words[1:4] == ["-m", "trainyard", "run"]:
            words[4:4] = ["--state", str(folder / f"state-{kind}")]
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, *words[1:]],
            cwd=CHECKOUT,
            env=os.environ | {"COLUMNS": "200", "PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        rows.append(
            {
                "kind": kind,
                "command": " ".join(words[:5])[:60],
                "seconds": round(time.monotonic() - began, 1),
                "failed": done.returncode != 0,
                "end": (done.stdout.strip().splitlines() or [""])[-1],
            }
        )
        if done.returncode:
            print(done.stdout)
            break
        if words is style:
            waiting = commands(project / "README.md")
    return rows


def main(
    like: Annotated[str | None, typer.Option(help="one kind; else all")] = None,
    json_file: JsonFile = None,
) -> None:
    """Print what became of each command."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for kind in [like] if like else kinds():
            rows += made(kind, Path(folder))
    columns = ("kind", "command", "seconds", "end")
    show_table(columns, ([row[name] for name in columns] for row in rows))
    keep(json_file, rows)
    raise typer.Exit(1 if any(row["failed"] for row in rows) else 0)


if __name__ == "__main__":
    typer.run(main)
