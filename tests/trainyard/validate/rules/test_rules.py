"""Every rule: what breaks it is found, what does not is left alone."""

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.trainyard.validate.rules.definitions import document, valid
from tests.trainyard.validate.rules.fault import Fault
from tests.trainyard.validate.rules.faults import FAULTS, NEAR
from trainyard.validate.rules import ORDER, findings
from trainyard.validate.rules.rule import RULES, Rule, get_document, rule

pytestmark = pytest.mark.long
SWEEP = pytest.mark.sweep

GENERAL = [rule for rule in RULES.values() if rule.module.startswith("trainyard.")]


def named(faults: tuple[Fault, ...]) -> Any:
    return pytest.mark.parametrize("fault", faults, ids=[fault.name for fault in faults])


def test_the_valid_definition_breaks_no_rule():
    assert list(findings(document(valid()))) == []


@pytest.mark.parametrize("rule", GENERAL, ids=lambda rule: rule.name)
def test_each_rule_has_what_breaks_it_and_what_does_not(rule: Rule):
    assert rule.name in {fault.rule for fault in FAULTS}
    assert rule.name in {fault.rule for fault in NEAR}


@named(FAULTS)
def test_a_fault_is_found(fault: Fault):
    fault.assert_found()


@named(NEAR)
def test_what_is_near_a_fault_is_left_alone(fault: Fault):
    assert fault.findings() == []


def test_faults_have_names_of_their_own():
    names = Counter(fault.name for fault in (*FAULTS, *NEAR))
    assert [name for name, count in names.items() if count > 1] == []


def test_findings_are_told_in_the_order_of_the_table():
    modules = list(dict.fromkeys(rule.module.rpartition(".")[2] for rule in GENERAL))
    assert modules == list(ORDER)


def test_two_rules_of_one_name_are_refused():
    def no_time_limit(job):
        yield from ()

    with pytest.raises(ValueError, match="rules.spot has a rule no-time-limit, too; rename one"):
        rule("error", select=get_document, reason="", fix="", source="")(no_time_limit)


def replaced(value: Any, others: Iterator[Any]) -> Iterator[Any]:
    """Replace one member of ``value`` after the other, at any depth, by the next of ``others``."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in list(items):
        value[key] = next(others)
        yield value
        value[key] = item
        if isinstance(item, dict | list):
            yield from replaced(item, others)


def test_what_is_known_only_at_run_time_breaks_no_rule():
    later = {"Get": "Steps.Shard.ProcessingJobName"}
    definition = valid()
    for step in definition["Steps"][:4]:
        job = step["Arguments"].get("TrainingJobDefinition", step["Arguments"])
        resources = job.get("ResourceConfig") or job["ProcessingResources"]["ClusterConfig"]
        resources |= dict.fromkeys(resources, later)
        if step["Name"] == "Train":
            job["HyperParameters"] = dict.fromkeys(job["HyperParameters"], later)
            job["StoppingCondition"]["MaxRuntimeInSeconds"] = later
    assert list(findings(document(definition))) == []


@pytest.mark.parametrize(
    "junk",
    [(None, 7, {}, ["x"]), *(pytest.param((one,), marks=SWEEP) for one in (None, 7, {}, ["x"]))],
    ids=repr,
)
def test_junk_in_the_arguments_or_the_retries_is_no_crash(junk: tuple[Any, ...]):
    others = itertools.cycle(junk)
    definition = valid()
    for step in definition["Steps"]:
        if step["Name"] in ("Shard", "Train", "Tune", "Score"):
            own = {"RetryPolicies": step.get("RetryPolicies", [])}
            for _ in itertools.chain(replaced(step["Arguments"], others), replaced(own, others)):
                list(findings(document(definition)))
