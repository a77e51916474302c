"""Take projects that others wrote to a registered package, and count the lines that it took.

python -m benchmarks.projects REPOSITORIES [--only xgboost] [--python tensorflow=PATH] [--json FILE]

REPOSITORIES holds clones of what ``projects.yaml`` names, as <owner>+<name>, bare ones or not. The
files of a project are those of its pinned commit, not a line changed; beside them lies its
evaluation script from here, above them its recipe. Data and weights that it would download are made
by ``stand_ins``. Then ``trainyard run`` serves an embedded AWS, with a state of its own, around
``pipelines.upsert --start --wait``. ``--python`` names the interpreter that stands in for a
project's image: a virtual environment with its packages.

Exit status 1 if a project comes to no package, or takes more than 25 lines of ours.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from benchmarks.harness import CHECKOUT, JsonFile, Trial, choose_sections, exit_with, run_trials

HERE = Path(__file__).parent
PROJECTS = yaml.safe_load((HERE / "projects.yaml").read_text(encoding="utf-8"))
MOST = 25
"""Lines of recipe and evaluation."""


def main(
    repositories: Annotated[Path, typer.Argument(help="Clones as <owner>+<name>.")],
    only: Annotated[str, typer.Option(help="Projects: a,b,…; default: all.")] = "",
    python: Annotated[list[str], typer.Option(help="<project>=<interpreter>.")] = [],  # noqa: B006
    json_file: JsonFile = None,
) -> None:
    """Take each project to a registered package."""
    pythons = dict(entry.split("=", 1) for entry in python)
    trials = [
        Trial(name, PROJECTS[name]["title"],
              lambda n=name: register_project(n, repositories, pythons.get(n, sys.executable)))
        for name in choose_sections(only, PROJECTS)
    ]  # fmt: skip
    exit_with(run_trials("projects", trials, json_file))


def register_project(name: str, repositories: Path, python: str) -> str:
    """Take a project's files at the commit to a registered package; return what is wrong."""
    project: dict[str, Any] = PROJECTS[name]
    repository = repositories / project["repository"].replace("/", "+")
    with tempfile.TemporaryDirectory(prefix=f"projects-{name}-") as folder:
        scratch = Path(folder)
        (scratch / "code").mkdir()
        for file in project["files"]:
            place = f"{project['commit']}:{project['folder']}/{file}"
            command = ["git", "-C", str(repository), "show", place]
            found = subprocess.run(command, check=True, capture_output=True).stdout
            (scratch / "code" / file).write_bytes(found)
        lines = 0
        for path in [path for path in (HERE / name).iterdir() if path.is_file()]:
            where = scratch if path.name == "recipe.yaml" else scratch / "code"
            text = path.read_text(encoding="utf-8")
            (where / path.name).write_text(text, encoding="utf-8")
            lines += sum(bool(line.strip()) for line in text.splitlines())
        (scratch / "data").mkdir()
        maker = python if name == "hugging_face" else sys.executable
        made = [maker, str(HERE / "stand_ins.py"), name, str(scratch / "data")]
        subprocess.run(made, check=True, capture_output=True, cwd=scratch)
        done = run_pipeline(scratch, python)
    package = [line for line in done.stdout.splitlines() if line.startswith("model package ")]
    print(f"{name}: {lines} lines of ours: {package[-1] if package else 'no package'}", flush=True)
    if not package:
        return (done.stdout + done.stderr)[-3000:]
    return "" if lines <= MOST else f"{lines} lines of ours, at most {MOST}"


def run_pipeline(scratch: Path, python: str) -> subprocess.CompletedProcess[str]:
    """Run ``pipelines.upsert --start --wait`` with the data, on an embedded AWS of its own."""
    data, put = scratch / "data", []
    for path in sorted(path for path in data.rglob("*") if path.is_file()):
        put += ["--put", f"s3://projects/data/{path.relative_to(data).as_posix()}={path}"]
    upsert = ["-m", "pipelines.upsert", "--recipe", str(scratch / "recipe.yaml")]
    return subprocess.run(
        [sys.executable, "-m", "trainyard", "run", "--state", str(scratch / "state")]
        + ["--python", python, *put, "--", sys.executable, *upsert, "--start", "--wait"],
        cwd=CHECKOUT,
        env=os.environ | {"HOME": str(scratch), "OMP_NUM_THREADS": "1", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


if __name__ == "__main__":
    typer.run(main)
