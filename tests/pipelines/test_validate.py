"""``python -m pipelines.validate``: recipes, and definitions with the application's rules too."""

import json
from pathlib import Path

import pytest

from tests.conftest import called
from tests.trainyard.validate.rules.definitions import hyper, valid

pytestmark = pytest.mark.long


def test_recipe_errors_are_findings():
    overrides = ("--set", "train.loop.max_stepz=3", "--set", "gate.margin=x")
    done = called("pipelines.validate", "--recipe", "recipes/laptop.yaml", *overrides, "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 1
    assert {finding["path"] for finding in found} >= {"train.loop.max_stepz"}
    assert all(finding["rule"] == "recipe" for finding in found)


@pytest.mark.parametrize("arguments", [(), ("x.json", "--recipe", "y.yaml"), ("no.json",)])
def test_what_to_give_is_said(arguments):
    done = called("pipelines.validate", *arguments)
    assert done.returncode == 1
    assert done.stderr.startswith("error:") and done.stdout == ""


def test_a_definition_is_checked_with_the_rules_on_our_jobs_too(tmp_path: Path):
    definition = valid()
    hyper("Train", strategy="fdsp")(definition)
    (tmp_path / "definition.json").write_text(json.dumps(definition))
    done = called("pipelines.validate", str(tmp_path / "definition.json"), "--json")
    assert "training-settings" in {finding["rule"] for finding in json.loads(done.stdout)}
