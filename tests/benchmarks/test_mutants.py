"""The edits that benchmarks/mutants makes, and what a small checkout's tests say of them."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.mutants.edits import apply_mutant, find_same_mutant, iter_mutants
from tests.registered import git

CODE = '''
def limit(looks, share=5):
    """Docstring."""
    if looks < 3:
        return (looks + 1) * share
    return looks


def unused(one):
    return one + 7
'''
TESTS = """
from conditions.limits import limit

def test_limit():
    assert limit(2, 1) == 3
    assert limit(3) == 3
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with one module in a room, and its tests."""
    texts = {"conditions/limits.py": CODE, "tests/conditions/test_limits.py": TESTS}
    for name, text in texts.items():
        file = tmp_path / "checkout" / name
        file.parent.mkdir(parents=True)
        file.write_text(text)
        (file.parent / "__init__.py").touch()
    (tmp_path / "checkout/tests/__init__.py").touch()
    for command in ("init -q", "add .", "commit -qm first"):
        git(tmp_path / "checkout", *command.split())
    return tmp_path / "checkout"


def test_an_edit_is_one_place_of_a_function_and_is_put_back(checkout: Path):
    found = {(one.old, one.new): one for one in iter_mutants(checkout, "conditions/limits.py")}
    assert {("looks < 3", "looks <= 3"), ("3", "4"), ("looks + 1", "(looks - 1)")} <= set(found)
    file = checkout / "conditions/limits.py"
    with apply_mutant(found["looks < 3", "looks <= 3"], checkout):
        assert file.read_text() == CODE.replace("<", "<=")
    assert file.read_text() == CODE
    assert found["3", "4"].statement == 4
    (share,) = (one for one in found.values() if one.line == 2)
    assert share.statement == 4  # where the body begins: a default has no statement of its own


def test_an_edit_is_found_again_by_function_and_text(checkout: Path, tmp_path: Path):
    before = next(one for one in iter_mutants(checkout, "conditions/limits.py") if "<" in one.old)
    (tmp_path / "conditions").mkdir()
    (tmp_path / "conditions/merged.py").write_text(CODE)
    after = find_same_mutant(before, tmp_path)
    assert after and (after.path, after.old, after.new) == (
        "conditions/merged.py", "looks < 3", "looks <= 3",
    )  # fmt: skip
    (tmp_path / "none").mkdir()
    assert find_same_mutant(before, tmp_path / "none") is None


@pytest.mark.slow
def test_verdicts_and_a_lost_test(checkout: Path, run_python: Callable, tmp_path: Path):
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    command = ["-m", "benchmarks.mutants", "--checkout", str(checkout)]
    ran = run_python(*command, "--json", str(first), env={"TMPDIR": str(tmp_path)})
    assert ran.returncode == 0, ran.stderr
    cases = json.loads(first.read_text())["cases"].values()
    verdicts = {(one["mutant"]["old"], one["verdict"]) for one in cases}
    assert {("looks < 3", "killed"), ("one + 7", "not executed"), ("5", "survived")} <= verdicts
    os.truncate(checkout / "tests/conditions/test_limits.py", TESTS.index("    assert limit(3)"))
    git(checkout, "commit", "-qam", ".")
    given = ["--of", str(first), "--json", str(second)]
    ran = run_python(*command, *given, env={"TMPDIR": str(tmp_path)})
    assert ran.returncode == 1, ran.stderr
    assert any("survived" in line and "looks < 3" in line for line in ran.stdout.splitlines())
