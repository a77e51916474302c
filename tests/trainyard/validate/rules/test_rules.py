"""Every rule: what breaks it is found, what does not is left alone."""

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.trainyard.validate.rules.definitions import document, valid
from tests.trainyard.validate.rules.fault import Fault
from tests.trainyard.validate.rules.faults import FAULTS, NEAR
from trainyard.validate import check_definition
from trainyard.validate.rules import ORDER, apply_rules
from trainyard.validate.rules.rule import RULES, rule, select_document

pytestmark = pytest.mark.long
SWEEP = pytest.mark.sweep


def parametrize_faults(faults: tuple[Fault, ...]) -> Any:
    return pytest.mark.parametrize("fault", faults, ids=[fault.name for fault in faults])


def test_the_valid_definition_breaks_no_rule():
    assert list(apply_rules(document(valid()))) == []


def test_each_rule_has_what_breaks_it_and_what_does_not():
    general = {rule.name for rule in RULES.values() if rule.module.startswith("trainyard.")}
    assert {fault.rule for fault in FAULTS} == {fault.rule for fault in NEAR} == general


@parametrize_faults(FAULTS)
def test_a_fault_is_found(fault: Fault):
    fault.assert_found()


@parametrize_faults(NEAR)
def test_what_is_near_a_fault_is_left_alone(fault: Fault):
    assert fault.findings() == []


@pytest.mark.parametrize("every", [12, pytest.param(1, marks=SWEEP)])
def test_a_definition_is_checked_with_the_rules(every: int):
    for fault in list({fault.rule: fault for fault in FAULTS}.values())[::every]:
        found = check_definition(json.dumps(fault.apply()))
        assert fault.rule in {finding.rule for finding in found}, fault.name


def test_findings_are_told_in_the_order_of_the_table():
    modules = [rule.module for rule in RULES.values() if rule.module.startswith("trainyard.")]
    assert [module.rpartition(".")[2] for module in dict.fromkeys(modules)] == list(ORDER)


def test_two_rules_of_one_name_are_refused():
    def no_time_limit(job):
        yield from ()

    with pytest.raises(ValueError, match="rules.spot has a rule no-time-limit, too; rename one"):
        rule("error", select=select_document, reason="", fix="", source="")(no_time_limit)


def iter_replacements(value: Any, others: Iterator[Any]) -> Iterator[Any]:
    """Replace one member of ``value`` after the other, at any depth, by the next of ``others``."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in list(items):
        value[key] = next(others)
        yield value
        value[key] = item
        if isinstance(item, dict | list):
            yield from iter_replacements(item, others)


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
    assert list(apply_rules(document(definition))) == []


@pytest.mark.parametrize(
    "junk",
    [(None, 7, {}, ["x"]), *(pytest.param((one,), marks=SWEEP) for one in (None, 7, {}, ["x"]))],
    ids=repr,
)
def test_junk_in_the_arguments_or_the_retries_is_no_crash(junk: tuple[Any, ...]):
    """Of all kinds, in steps by themselves; of one kind at every place, among the others."""
    others = itertools.cycle(junk)
    definition = valid()
    for step in definition["Steps"]:
        if step["Name"] in ("Shard", "Train", "Tune", "Score"):
            own = {"RetryPolicies": step.get("RetryPolicies", [])}
            for _ in itertools.chain(
                iter_replacements(step["Arguments"], others), iter_replacements(own, others)
            ):
                steps = [step] if len(junk) > 1 else definition["Steps"]
                list(apply_rules(document({**definition, "Steps": steps})))
