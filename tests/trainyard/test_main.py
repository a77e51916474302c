"""``trainyard``, and what it says of its verbs."""

import tomllib
from pkgutil import iter_modules

import pytest

from tests.conftest import CHECKOUT
from trainyard import commands

VERBS = [module.name for module in iter_modules(commands.__path__)]


def test_alone_it_lists_every_verb_in_one_line(run_python):
    listed = run_python("-m", "trainyard").stdout.splitlines()[2:]
    assert [line.split()[0] for line in listed] == sorted(VERBS)
    assert all(line.endswith(".") and len(line) < 100 for line in listed), listed


def test_it_says_its_version(run_python):
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert run_python("-m", "trainyard", "--version").stdout == f"trainyard {project['version']}\n"


@pytest.mark.parametrize(("wrong", "said"), [("prun", "mean prune?"), ("qqq", "lists them")])
def test_an_unknown_verb_is_refused_with_the_nearest_name(run_python, wrong: str, said: str):
    done = run_python("-m", "trainyard", wrong)
    assert done.returncode == 2 and done.stdout == ""
    assert wrong in done.stderr and said in done.stderr


def test_only_the_verb_that_is_asked_for_is_imported(run_python):
    code = (
        "import sys; from trainyard.__main__ import main\n"
        "sys.argv = ['trainyard', *sys.argv[1:]]\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print([m for m in sys.modules if m.startswith('trainyard.commands.')])"
    )
    assert run_python("-c", code).stdout.splitlines()[-1] == "[]"
    asked = run_python("-c", code, "prune", "--help").stdout
    assert asked.splitlines()[-1] == "['trainyard.commands.prune']"
    assert "trainyard prune [OPTIONS]" in asked
