"""The recipes of benchmarks/projects: the service, and each step's image, take them."""

import shutil
from pathlib import Path

import pytest

from benchmarks.projects.__main__ import HERE, PROJECTS
from tests.conftest import call_module


@pytest.mark.parametrize("name", PROJECTS)
def test_its_recipe_is_valid_before_anything_is_run(name: str, tmp_path: Path):
    """The project's own files are empty here: what validate reads are the recipe and the images."""
    (tmp_path / "code").mkdir()
    for file in PROJECTS[name]["files"]:
        (tmp_path / "code" / file).touch()
    for path in (path for path in (HERE / name).iterdir() if path.is_file()):
        shutil.copy(path, tmp_path if path.name == "recipe.yaml" else tmp_path / "code")
    done = call_module("pipelines.validate", "--recipe", str(tmp_path / "recipe.yaml"))
    assert done.returncode == 0, done.stdout + done.stderr
