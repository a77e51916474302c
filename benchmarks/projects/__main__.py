"""Take projects that others wrote to a registered package, and say in a table what that took.

python -m benchmarks.projects REPOSITORIES [--only xgboost] [--python tensorflow=PATH] [--json FILE]

REPOSITORIES holds clones of the repositories of ``PROJECTS`` as <owner>+<name>, bare ones or not.
The files of a project are those of its pinned commit, not a line changed; beside them lies its
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
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.harness import CHECKOUT, JsonFile, keep, show_table

HERE = Path(__file__).parent
MOST = 25
"""Lines of recipe and evaluation."""


@dataclass(frozen=True)
class Project:
    """What is taken of a repository, and at which commit."""

    name: str
    title: str
    repository: str
    commit: str
    folder: str
    files: tuple[str, ...]
    """In the folder; the first one is the script."""
    packages: str
    """What its image has, for the interpreter that stands in."""


PROJECTS = (
    Project(
        "pytorch",
        "PyTorch: word_language_model",
        "pytorch/examples",
        "77f55b912142e11fcfdf5b530231fb9c52f181e8",
        "word_language_model",
        ("main.py", "data.py", "model.py"),
        "torch 2.13",
    ),
    Project(
        "hugging_face",
        "Hugging Face: SageMaker, getting started",
        "huggingface/notebooks",
        "5068b1142e8ed1e691c8b1e9f98e4473ebe55790",
        "sagemaker/01_getting_started_pytorch/scripts",
        ("train.py",),
        "transformers 4.45.2, datasets 3.1.0, accelerate 1.1.1",
    ),
    Project(
        "xgboost",
        "XGBoost: AWS's abalone, script mode",
        "aws/amazon-sagemaker-examples",
        "2d519b52c3a2c2361f2b87f0d3de46fd6c0232a5",
        "      build_and_train_models/sm-regression_xgboost",
        ("abalone.py",),
        "xgboost-cpu 3.2.0",
    ),
    Project(
        "lightning",
        "Lightning: transformer",
        "Lightning-AI/pytorch-lightning",
        "7f0c3436cd3f6ad3753125672024fc415cbcb414",
        "examples/pytorch/basics",
        ("transformer.py",),
        "lightning 2.6.6",
    ),
    Project(
        "tensorflow",
        "TensorFlow: AWS's MNIST, script mode",
        "aws/amazon-sagemaker-examples",
        "2d519b52c3a2c2361f2b87f0d3de46fd6c0232a5",
        " archived/tensorflow_script_mode_training_and_serving",
        ("mnist-2.py",),
        "tensorflow-cpu 2.21.0, tf_keras 2.21.0",
    ),
)


@dataclass
class Taken:
    """Cost of a project."""

    name: str
    package: str | None
    minutes: float
    """Minutes from the command to the registered package."""
    recipe: int
    evaluation: int
    """Lines that are not empty, with what else lies beside the project."""
    stand_ins: int
    """Lines of ``stand_ins`` for data and weights that cannot be downloaded here."""
    why: str = ""


def main(
    repositories: Annotated[Path, typer.Argument(help="Clones as <owner>+<name>.")],
    only: Annotated[str, typer.Option(help="Projects: a,b,…; default: all.")] = "",
    python: Annotated[list[str], typer.Option(help="<project>=<interpreter>.")] = [],  # noqa: B006
    json_file: JsonFile = None,
) -> None:
    pythons = dict(entry.split("=", 1) for entry in python)
    chosen = [p for p in PROJECTS if not only or p.name in only.split(",")]
    taken = []
    for project in chosen:
        with tempfile.TemporaryDirectory(prefix=f"projects-{project.name}-") as scratch:
            here = pythons.get(project.name, sys.executable)
            taken.append(take(project, repositories, Path(scratch), here))
    show(chosen, taken)
    keep(json_file, [asdict(one) for one in taken])
    done = all(one.package and one.recipe + one.evaluation <= MOST for one in taken)
    raise typer.Exit(int(not done))


def take(project: Project, repositories: Path, scratch: Path, python: str) -> Taken:
    """From the files at the commit to the registered package, by commands alone."""
    ours = HERE / project.name
    code = scratch / "code"
    code.mkdir()
    repository = repositories / project.repository.replace("/", "+")
    for file in project.files:
        (code / file).write_bytes(_show(repository, project.commit, f"{project.folder}/{file}"))
    for path in sorted(ours.iterdir()):
        if path.is_file():
            where = scratch if path.name == "recipe.yaml" else code
            (where / path.name).write_bytes(path.read_bytes())
    (scratch / "data").mkdir()
    maker = python if project.name == "hugging_face" else sys.executable
    made = [maker, str(HERE / "stand_ins.py"), project.name, str(scratch / "data")]
    subprocess.run(made, check=True, capture_output=True, cwd=scratch)
    began = time.monotonic()
    done = _run(scratch, python)
    minutes = (time.monotonic() - began) / 60
    lines = [line for line in done.stdout.splitlines() if line.startswith("model package ")]
    package = lines[-1].removeprefix("model package ") if lines else None
    recipe = _lines(ours / "recipe.yaml")
    evaluation = sum(_lines(path) for path in ours.iterdir() if path.suffix in (".py", ".sh"))
    why = "" if package else (done.stdout + done.stderr)[-3000:]
    return Taken(project.name, package, minutes, recipe, evaluation, _stand_in(project), why)


def _run(scratch: Path, python: str) -> subprocess.CompletedProcess:
    data = scratch / "data"
    files = sorted(path for path in data.rglob("*") if path.is_file())
    keys = [f"s3://projects/data/{path.relative_to(data).as_posix()}" for path in files]
    put = [
        word for key, path in zip(keys, files, strict=True) for word in ("--put", f"{key}={path}")
    ]
    upsert = ["-m", "pipelines.upsert", "--recipe", str(scratch / "recipe.yaml")]
    return subprocess.run(
        [sys.executable, "-m", "trainyard", "run", "--state", str(scratch / "state")]
        + ["--python", python, *put, "--"]
        + [sys.executable, *upsert, "--start", "--wait"],
        cwd=CHECKOUT,
        env=os.environ | {"HOME": str(scratch), "OMP_NUM_THREADS": "1", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


def _show(repository: Path, commit: str, path: str) -> bytes:
    command = ["git", "-C", str(repository), "show", f"{commit}:{path}"]
    return subprocess.run(command, check=True, capture_output=True).stdout


def _lines(path: Path) -> int:
    return sum(bool(line.strip()) for line in path.read_text(encoding="utf-8").splitlines())


def _stand_in(project: Project) -> int:
    """Lines of the function that makes the project's data."""
    text = (HERE / "stand_ins.py").read_text(encoding="utf-8")
    body = text.split(f"\ndef {project.name}(")[1].split("\n\n\n")[0]
    return sum(bool(line.strip()) for line in body.splitlines())


def show(projects: list[Project], taken: list[Taken]) -> None:
    """A row for each project, and why it came to no package."""
    rows = []
    for project, one in zip(projects, taken, strict=True):
        package = "/".join(one.package.split("/")[-2:]) if one.package else "none"
        lines = (one.recipe, one.evaluation, one.stand_ins)
        rows.append((project.title, package, f"{one.minutes:.1f}", *lines))
    columns = ("project", "package", "minutes", "recipe", "evaluation", "data made here")
    show_table(columns, rows, "projects as they stand; lines of ours", 140)
    for one in taken:
        if one.why:
            print(f"{one.name}: {one.why}")


if __name__ == "__main__":
    typer.run(main)
