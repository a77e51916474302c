"""A project of each kind is written, is what its recipe says, and keeps what its test asks for.

The sweep takes each one, by the commands of its own README, to a registered model.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.new import NAME, PACKAGE, TEMPLATES, list_kinds, write_project
from pipelines.recipe.read_recipe import load_recipe
from training.export import shipped_files
from trainyard.common.errors import RecipeError

pytestmark = pytest.mark.long


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Write a project of a kind; modules and paths that it brings are forgotten again."""
    monkeypatch.setattr(sys, "path", [*sys.path])

    def make(kind: str) -> Path:
        folder = tmp_path / f"somebodys-{kind}"
        write_project(folder, kind)
        return folder

    yield make
    for name in [name for name in sys.modules if name.startswith("somebodys_")]:
        del sys.modules[name]


def test_projects_are_written_with_their_own_names_in_good_style(project, run_python):
    folders = {kind: project(kind) for kind in list_kinds()}
    for kind, folder in folders.items():
        files = [path for path in folder.rglob("*") if path.is_file()]
        assert len(files) == len(list(shipped_files.iter_files(TEMPLATES / kind)))
        for path in files:
            assert not re.search(rf"\b({NAME}|{PACKAGE})\b", f"{path}\n{path.read_text()}")
        assert load_recipe(folder / "recipe.yaml").pipeline.name == f"somebodys-{kind}"
    config = Path(__file__).parents[2] / "pyproject.toml"
    for words in (("check",), ("format", "--check")):
        done = run_python(
            "-m", "ruff", *words, "--config", str(config), *map(str, folders.values())
        )
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "kind", [*(pytest.param(kind, marks=pytest.mark.sweep) for kind in ("image", "text")), "table"]
)
def test_a_written_workload_keeps_its_contract(kind, project, run_python):
    """Check one rule of the contract, which takes a second; the project's own test checks all."""
    folder = project(kind)
    folders = ("--source", str(folder / "src"), "--data", str(folder / "data"))
    words = ("-m", "training.tools.try", f"somebodys_{kind}.workload", *folders)
    done = run_python(*words, "--only", "scores agree with the loss")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "✓ scores agree with the loss" in done.stdout


@pytest.mark.parametrize(
    "name",
    ["ab", "My-project", "1st", "a--b", "a_b", "json", "training", "x" * 31, "yield-", "pass"],
)
def test_a_name_a_folder_and_a_kind_that_cannot_be_used_are_refused(name, tmp_path):
    with pytest.raises(RecipeError, match="the project's name"):
        write_project(tmp_path / name, "table")
    assert not (tmp_path / name).exists()
    (tmp_path / "mine-own").mkdir()
    with pytest.raises(RecipeError, match="already exists"):
        write_project(tmp_path / "mine-own", "table")
    with pytest.raises(RecipeError, match=r"--like 'tables': .*table"):
        write_project(tmp_path / "other", "tables")


@pytest.mark.sweep
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", list_kinds())
def test_the_commands_of_its_own_readme_take_a_project_to_a_registered_model(kind, tmp_path):
    checkout, folder = Path(__file__).parents[2], tmp_path / f"my-{kind}"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # as in an activated environment

    def run(words: list[str]) -> None:
        done = subprocess.run([sys.executable, *words[1:]], cwd=checkout, capture_output=True,
                              env=os.environ | {"PATH": path}, text=True, check=False)  # fmt: skip
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"

    run(["python", "-m", "pipelines.new", str(folder), "--like", kind])
    readme = (folder / "README.md").read_text(encoding="utf-8")
    [block] = re.findall(r"```\n(.*?)```", readme, re.DOTALL)
    lines = block.replace("\\\n", " ").splitlines()
    for words in [shlex.split(line) for line in lines if not line.startswith("source ")]:
        if words[1:4] == ["-m", "trainyard", "run"]:
            words[4:4] = ["--state", str(tmp_path / "state")]
        run(words)
