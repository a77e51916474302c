"""Write a project of your own: a recipe, a workload or scripts, their test, sample data.

python -m pipelines.new my-project --like table
"""

import keyword
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from training.export import shipped_files
from trainyard.common.errors import RecipeError, suggest_nearest
from trainyard.terminal import console, run

TEMPLATES = Path(__file__).parents[1] / "templates"
NAME, PACKAGE, FOLDER = "my-project", "my_project", "path/to/my-project"
"""Placeholders in a template: the project's name, its package, and its folder in the README."""

CHECKOUT, SCHEMA = TEMPLATES.parent, "../../recipes/schema.json"
"""Folder in which the README's commands are run, and the schema's path in a template's recipe."""

VALID = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
LENGTHS = range(3, 31)  # of a project's name
RESERVED_NAMES = ("conditions", "pipelines", "steps", "tests", "training", "trainyard", "torch")


def list_kinds() -> list[str]:
    """Return the kinds of project that ``--like`` accepts."""
    return sorted(path.name for path in TEMPLATES.iterdir() if (path / "recipe.yaml").is_file())


def check_project_name(name: str) -> None:
    """Check that ``name`` can be the name of a pipeline, a bucket and a package.

    Raises:
        RecipeError: ``name`` cannot be used.
    """
    package = name.replace("-", "_")
    if not VALID.fullmatch(name) or len(name) not in LENGTHS:
        raise RecipeError(
            f"the project's name {name!r}: must be 3 to 30 lower-case letters and digits, with "
            "single hyphens between them and a letter first: it names a pipeline, a bucket and a "
            "Python package"
        )
    if keyword.iskeyword(package) or package in {*sys.stdlib_module_names, *RESERVED_NAMES}:
        raise RecipeError(
            f"the project's name {name!r}: is the name of a Python or Trainyard module; choose "
            "another"
        )


def write_project(folder: Path, like: str) -> list[Path]:
    """Write the project of kind ``like`` to ``folder``; return its files.

    Raises:
        RecipeError: the folder exists, its name cannot be used, or the kind is unknown.
    """
    check_project_name(folder.name)
    if like not in list_kinds():
        raise RecipeError(
            f"--like {like!r}: is not a kind of project; {suggest_nearest(like, list_kinds())}"
        )
    if folder.exists():
        raise RecipeError(f"{folder}: already exists; name a new folder")
    paths = []
    # The order matters: FOLDER comes before NAME because it ends with it, and the first match wins.
    words = {
        FOLDER: shlex.quote(os.path.relpath(folder, CHECKOUT)),
        SCHEMA: os.path.relpath(CHECKOUT / "recipes/schema.json", folder),
        PACKAGE: folder.name.replace("-", "_"),
        NAME: folder.name,
    }
    for name, path in shipped_files.iter_files(TEMPLATES / like):
        target = folder / _replace_words(name, words)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_replace_words(path.read_text(encoding="utf-8"), words), encoding="utf-8")
        paths.append(target)
    return paths


def _replace_words(text: str, words: dict[str, str]) -> str:
    """Replace each placeholder in the text that is a whole word."""
    pattern = "|".join(map(re.escape, words))
    return re.sub(rf"(?<!\w)({pattern})\b", lambda match: words[match[0]], text)


def main(
    project: Annotated[Path, typer.Argument(help="the new folder; its name is the project's")],
    like: Annotated[str, typer.Option(help=", ".join(list_kinds()))] = "table",
) -> None:
    """Write a starter project that can be trained, gated and registered immediately."""
    folder = project.resolve()
    for path in write_project(folder, like):
        console.print(str(path), markup=False, highlight=False)
    console.print(f"next steps: see {folder / 'README.md'}", markup=False, highlight=False)


if __name__ == "__main__":
    run(main)
