"""Every rule: what breaks it is found, what does not is left alone."""

import importlib
import pkgutil
import re
from collections import Counter
from typing import Any

import pytest

import trainyard.validate.rules as table
from tests.trainyard.validate.rules.definitions import document, valid
from tests.trainyard.validate.rules.fault import Fault
from tests.trainyard.validate.rules.faults import FAULTS, NEAR
from trainyard.validate.findings import Finding
from trainyard.validate.rules import RULES, findings
from trainyard.validate.rules.rule import Rule

BY_NAME = {rule.name: rule for rule in RULES}


def named(faults: tuple[Fault, ...]) -> Any:
    return pytest.mark.parametrize("fault", faults, ids=[fault.name for fault in faults])


def found(fault: Fault) -> list[Finding]:
    return list(BY_NAME[fault.rule].findings(document(fault.apply())))


def at(definition: Any, path: str) -> Any:
    """What stands at a finding's JSON path; the last part may be missing there."""
    value = definition
    *before, _ = re.findall(r"\.(\w+)|\[(\d+)\]|\['([^']*)'\]", path)
    for name, index, quoted in before:
        value = value[int(index)] if index else value[name or quoted]
    return value


def test_the_valid_definition_breaks_no_rule():
    assert list(findings(document(valid()))) == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_each_rule_has_what_breaks_it_and_what_does_not(rule: Rule):
    assert rule.name in {fault.rule for fault in FAULTS}
    assert rule.name in {fault.rule for fault in NEAR}


@named(FAULTS)
def test_a_fault_is_found(fault: Fault):
    definition = fault.apply()
    broken = [f for f in findings(document(definition)) if f.rule == fault.rule]
    assert broken, "the rule said nothing"
    for finding in broken:
        assert finding.problem and finding.why and finding.fix and finding.source
        assert at(definition, finding.path) is not None


@named(NEAR)
def test_what_is_near_a_fault_is_left_alone(fault: Fault):
    assert found(fault) == []


def test_faults_have_names_of_their_own():
    names = Counter(fault.name for fault in (*FAULTS, *NEAR))
    assert [name for name, count in names.items() if count > 1] == []


def test_every_rule_of_the_modules_is_in_the_table():
    modules = [
        importlib.import_module(f"{table.__name__}.{info.name}")
        for info in pkgutil.iter_modules(table.__path__)
    ]
    written = {v.name for m in modules for v in vars(m).values() if isinstance(v, Rule)}
    assert written == set(BY_NAME)
    assert len(BY_NAME) == len(RULES)


def replaced(value: Any, other: Any) -> Any:
    """Each copy of ``value`` with one member, at whatever depth, replaced by ``other``."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in list(items):
        value[key] = other
        yield value
        value[key] = item
        if isinstance(item, dict | list):
            yield from replaced(item, other)


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


@pytest.mark.parametrize("junk", [None, 7, {}, ["x"]], ids=repr)
def test_junk_in_the_arguments_is_no_crash(junk: Any):
    definition = valid()
    for step in definition["Steps"]:
        if step["Name"] in ("Shard", "Train", "Tune", "Score"):
            for _ in replaced(step["Arguments"], junk):
                list(findings(document(definition)))
