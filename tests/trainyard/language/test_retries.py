"""The table of retry causes, and that whoever speaks of causes speaks of all of them."""

import json

import pytest

from trainyard.emulator.sagemaker.pipelines.step_order import Retries
from trainyard.language.retries import CAUSES, LIMITS
from trainyard.language.step_types import STEP_TYPES
from trainyard.validate import check


@pytest.mark.parametrize("cause", CAUSES.values(), ids=lambda cause: cause.word)
def test_the_emulator_tries_again_after_each(cause):
    for failure in cause.failures:
        retries = Retries([{"ExceptionType": [cause.name]}], start_time=0.0)
        assert retries.delay(f"{failure}: once") == 1


def definition(kind: str, policy: dict) -> str:
    step = {"Name": "S", "Type": kind, "Arguments": {}, "RetryPolicies": [policy]}
    return json.dumps({"Version": "2020-12-01", "Parameters": [], "Steps": [step]})


@pytest.mark.parametrize("kind", STEP_TYPES)
def test_the_checks_agree_which_steps_are_retried(kind: str):
    """The shape of a step and the rule on retries once contradicted each other for four types."""
    policy = {"ExceptionType": ["Step.THROTTLING"], "MaxAttempts": 3}
    found = [f for f in check(definition(kind, policy)) if f.path == "$.Steps[0].RetryPolicies"]
    rules = {finding.rule for finding in found}
    assert rules in (set(), {"unknown-member", "retries-on-unsupported-step"})
    assert bool(rules) != STEP_TYPES[kind].is_retried


@pytest.mark.parametrize("member", LIMITS)
def test_the_checks_agree_how_large_a_limit_is(member: str):
    least, most = LIMITS[member]
    for value, wrong in ((least, False), (most, False), (least - 1, True), (most + 1, True)):
        policy = {"ExceptionType": ["Step.THROTTLING"], member: value}
        where = f"$.Steps[0].RetryPolicies[0].{member}"
        rules = {f.rule for f in check(definition("Training", policy)) if f.path == where}
        assert rules == ({"range", "retry-limit-too-large"} if wrong else set())


def test_the_types_are_those_of_the_guide_of_awss_schema_and_of_the_sdk():
    guide = {"Processing", "Training", "Tuning", "AutoML", "Model", "RegisterModel", "Transform"}
    schema_of_definitions = guide | {"QualityCheck", "ClarifyCheck"}
    sdk = {"EndpointConfig", "EMRServerless", "Job"}
    retried = {name for name, kind in STEP_TYPES.items() if kind.is_retried}
    assert retried == schema_of_definitions | sdk
