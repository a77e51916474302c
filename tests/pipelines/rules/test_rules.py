"""The application's rules: each is found and silent where it should be, and none is forgotten."""

import re

import pytest

import pipelines.rules
from tests.conftest import CHECKOUT
from tests.pipelines.rules.job_faults import FAULTS, NEAR
from tests.trainyard.validate.rules.fault import Fault
from tests.trainyard.validate.rules.test_rules import parametrize_faults
from trainyard.validate.rules.rule import RULES

pytestmark = pytest.mark.long

OURS = [rule for rule in RULES.values() if rule.module.startswith(f"{pipelines.rules.__name__}.")]


ELSEWHERE = {"traced-shapes-are-stale": "tests/pipelines/advice/test_traced_shapes.py"}
"""Rules about files beside the definition → the tests that make such files."""


def test_each_rule_has_what_breaks_it_and_what_does_not():
    for rule in OURS:
        if elsewhere := ELSEWHERE.get(rule.name):
            assert rule.name in (CHECKOUT / elsewhere).read_text(encoding="utf-8")
        else:
            assert rule.name in {fault.rule for fault in FAULTS} & {fault.rule for fault in NEAR}


@parametrize_faults(FAULTS)
def test_a_fault_is_found(fault: Fault):
    fault.assert_found()


@parametrize_faults(NEAR)
def test_what_is_near_a_fault_is_left_alone(fault: Fault):
    assert fault.findings() == []


def test_a_refused_image_is_named_with_the_packages_and_their_versions():
    [fault] = (one for one in FAULTS if one.name.endswith(": old python of a table"))
    [found] = fault.findings()
    assert found.step == "Shard" and "sagemaker-xgboost 3.0-5 has Python 3.10" in found.problem
    assert re.search(r"numpy [\d.]+, pandas .* more packages cannot be installed", found.problem)


def sources(*rooms: str) -> dict[str, str]:
    """The text of every module in these rooms."""
    paths = [path for room in rooms for path in (CHECKOUT / room).rglob("*.py")]
    return {str(path.relative_to(CHECKOUT)): path.read_text(encoding="utf-8") for path in paths}


def test_every_rule_that_is_declared_is_in_the_table_and_the_application_checks_with_its_own():
    """``trainyard.validate`` alone would pass over them in silence."""
    texts = sources("trainyard", "pipelines")
    declaring = r"^@rule\([^@]*?^def (\w+)"
    declared = [name for text in texts.values() for name in re.findall(declaring, text, re.M)]
    assert sorted(name.replace("_", "-") for name in declared) == sorted(RULES)
    general = r"from trainyard\.validate(\.all_checks)? import .*\bcheck_definition\b"
    users = {name for name, text in sources("pipelines").items() if re.search(general, text)}
    assert users == {"pipelines/rules/__init__.py"}


def test_the_general_rules_know_nothing_of_ours(run_python):
    code = "from trainyard.validate.rules.rule import RULES; import trainyard.validate;"
    done = run_python("-c", code + "print({rule.module.split('.')[0] for rule in RULES.values()})")
    assert done.stdout.strip() == "{'trainyard'}", done.stderr
