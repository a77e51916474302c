"""Every seeded fault is caught, with the right rule, at the right place."""

import copy
import json
import math
import random
import sys

import pytest

from tests.trainyard.validate.corpus import FAULTS
from tests.trainyard.validate.faults import BASES, FOLDER, Fault, errors, get, inside, load
from tests.trainyard.validate.mutations import mistakes, mutate, nodes
from trainyard.validate import check_definition

pytestmark = pytest.mark.long


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.rule}-{fault.path}")
def test_fault_is_caught(fault: Fault):
    found = fault.find_findings()
    assert (fault.rule, fault.severity, fault.path) in {(f.rule, f.severity, f.path) for f in found}
    for finding in found:
        assert all((finding.problem, finding.why, finding.fix, finding.source)), finding


@pytest.mark.parametrize("names", [2, pytest.param(99, marks=pytest.mark.sweep)])
def test_every_member_misspelt_or_of_another_type_is_caught(names: int):
    made = list(mistakes(names))
    assert len(made) > 500
    assert [each for each in made if not errors(json.dumps(mutate(*each)))] == []


def test_whatever_stands_anywhere_there_is_an_answer():
    rng = random.Random(7)
    odd = [None, [], {}, 7, "x", True, [None], [[{}]], {"a": None}, -1, math.inf, {"Get": None}]
    odd += [get("Steps.Train"), *({name: None} for name in ("Std:Join", "Std:JsonGet"))]
    odd += [{"Std:JsonGet": []}, {"Std:Join": {"Values": 3}}]
    for _ in range(300):
        document = copy.deepcopy(load(rng.choice(BASES)))
        for _ in range(rng.randint(1, 6)):
            (*before, last), _ = rng.choice(list(nodes(document)))
            inside(document, before)[last] = copy.deepcopy(rng.choice(odd))
        assert isinstance(check_definition(json.dumps(document)), list)


BODY = (FOLDER / "training.json").read_text()


@pytest.mark.parametrize(
    ("body", "rule", "said"),
    [
        ("", "not-json", "line 1 column 1"),
        ("[]", "not-json", "not a JSON object"),
        (BODY.replace("3600", "NaN"), "not-json", "NaN"),
        (BODY.replace("3600", "Infinity"), "not-json", "Infinity"),
        (BODY.replace('"Metadata"', '"Version": "x", "Metadata"'), "duplicate-key", "Version"),
        ("[" * 100_000, "not-json", ""),
    ],
)
def test_text_that_is_no_json(body: str, rule: str, said: str):
    assert any(
        finding.rule == rule and said in finding.problem for finding in check_definition(body)
    )


@pytest.mark.parametrize(
    ("right", "wrong", "rule", "fix"),
    [
        ("StoppingCondition", "StopingCondition", "unknown-member", "use StoppingCondition"),
        ("Parameters.Kind", "Parameters.Kid", "unknown-parameter", "use Kind"),
        ("Parameters.Kind", "Parameter.Kind", "expression", "use Parameters"),
        ("PipelineExecutionId", "PipelineExecutionID", "expression", "use PipelineExecutionId"),
        ('"ml.g5.xlarge"', '"ml.g5.xlrage"', "enum", "use ml.g5.xlarge"),
    ],
)
def test_a_misspelt_name_is_answered_with_the_nearest(right, wrong, rule, fix):
    found = check_definition(BODY.replace(right, wrong))
    assert {finding.fix for finding in found if finding.rule == rule} == {fix}


def test_a_nested_branch_may_refer_to_the_branch_that_holds_it():
    document = copy.deepcopy(load("nested_conditions"))
    outer = document["Steps"][0]["Arguments"]
    first = copy.deepcopy(outer["IfSteps"][0]["Arguments"]["IfSteps"][0])
    outer["IfSteps"].insert(0, first | {"Name": "First"})
    long = outer["IfSteps"][1]["Arguments"]["IfSteps"][0]
    long["Arguments"]["HyperParameters"] = {"job": get("Steps.First.TrainingJobName")}
    long["DependsOn"] = ["First"]
    assert errors(json.dumps(document)) == []


def test_errors_come_before_warnings():
    document = json.loads(BODY)
    document["Parameters"].append({"Name": "Idle", "Type": "String"})
    document["Steps"][0]["Arguments"]["RoleArn"] = "x"
    found = [f.severity for f in check_definition(json.dumps(document))]
    assert found == sorted(found) and set(found) == {"error", "warning"}


def test_a_long_chain_of_steps_is_no_recursion_error():
    step = load("processing_chain")["Steps"][0]
    steps = [step | {"Name": f"S{n}", "DependsOn": [f"S{n - 1}"][: n and 1]} for n in range(350)]
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(300)
    try:
        assert errors(json.dumps(dict(load("processing_chain"), Steps=steps))) == []
    finally:
        sys.setrecursionlimit(before)
