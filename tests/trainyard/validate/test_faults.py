"""Every seeded fault is caught, with the right rule, at the right place."""

import copy
import json
import math
import random
import sys
from collections import Counter

import pytest

from tests.trainyard.validate.corpus import LISTS
from tests.trainyard.validate.corpus_generated import FAULTS as GENERATED
from tests.trainyard.validate.faults import FOLDER, errors, get, load, put
from tests.trainyard.validate.mutations import BASES, KINDS, draw, mutate, nodes
from trainyard.validate import check

pytestmark = pytest.mark.long

FAULTS = [fault for faults in LISTS.values() if faults is not GENERATED for fault in faults]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_is_caught(fault):
    found = fault.found()
    assert fault.caught(), [(f.rule, f.severity, f.path, f.problem) for f in found]
    for finding in found:
        assert all((finding.problem, finding.why, finding.fix, finding.source)), finding


def test_every_member_misspelt_or_of_another_type_is_caught():
    assert len(GENERATED) > 900
    assert [fault.name for fault in GENERATED if not fault.caught()] == []


def test_faults_are_distinct_and_many():
    twice = [name for name, n in Counter(fault.name for fault in FAULTS).items() if n > 1]
    assert not twice
    assert len(FAULTS) >= 120


def test_random_mutations_never_crash_and_most_are_caught():
    drawn, caught = Counter(), Counter()
    for base, kind, path in draw(seed=5, count=800):
        drawn[kind] += 1
        caught[kind] += bool(errors(json.dumps(mutate(base, kind, path))))
    share = {kind: caught[kind] / drawn[kind] for kind in KINDS}
    # What passes: optional members, names in maps, free text (python -m …validate.mutations).
    assert share["rename"] > 0.95 and share["retype"] > 0.95
    assert share["double"] > 0.6 and share["drop"] > 0.55 and share["misspell"] > 0.45


def test_whatever_stands_anywhere_there_is_an_answer():
    rng = random.Random(7)
    odd = [None, [], {}, 7, "x", True, [None], [[{}]], {"a": None}, -1, math.inf, {"Get": None}]
    odd += [
        get("Steps.Train"),
        {"Std:Join": None},
        {"Std:JsonGet": []},
        {"Std:Join": {"Values": 3}},
    ]
    for _ in range(600):
        document = copy.deepcopy(load(rng.choice(BASES)))
        for _ in range(rng.randint(1, 6)):
            path, _ = rng.choice(list(nodes(document)))
            put("/".join(map(str, path)), rng.choice(odd))(document)
        assert isinstance(check(json.dumps(document)), list)


BODY = (FOLDER / "training.json").read_text()


@pytest.mark.parametrize(
    ("body", "rule", "said"),
    [
        ("", "not-json", "line 1 column 1"),
        ("{", "not-json", "line 1 column 2"),
        ("[]", "not-json", "not a JSON object"),
        (BODY.replace("3600", "NaN"), "not-json", "NaN"),
        (BODY.replace("3600", "Infinity"), "not-json", "Infinity"),
        (BODY.replace('"Metadata"', '"Version": "x", "Metadata"'), "duplicate-key", "Version"),
        (BODY.replace('"Parameters": [', '"Parameters": [,'), "not-json", "line"),
        ("[" * 100_000, "not-json", ""),
    ],
)
def test_text_that_is_no_json(body: str, rule: str, said: str):
    assert any(finding.rule == rule and said in finding.problem for finding in check(body))


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
    found = check(BODY.replace(right, wrong))
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
    found = [f.severity for f in check(json.dumps(document))]
    assert found == sorted(found) and set(found) == {"error", "warning"}


def test_a_long_chain_of_steps_is_no_recursion_error():
    step = load("processing_chain")["Steps"][0]
    names = [f"S{n}" for n in range(sys.getrecursionlimit() + 50)]
    steps = [dict(step, Name=name) for name in names]
    for before, after in zip(names, steps[1:], strict=False):
        after["DependsOn"] = [before]
    document = dict(load("processing_chain"), Steps=steps)
    body = json.dumps(document, separators=(",", ":"))
    assert {finding.rule for finding in errors(body)} <= {"quota"}
