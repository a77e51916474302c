"""Signature of a step, and expiry of its results."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainyard.emulator.harness import process_step, train_step
from trainyard.emulator.request_scope import ApiError
from trainyard.emulator.sagemaker.pipelines.checked_definition import Step
from trainyard.emulator.sagemaker.pipelines.step_cache import expiry, signature
from trainyard.language.step_types import STEP_TYPES

CACHED = {"Enabled": True, "ExpireAfter": "P30D"}


def step(document: dict) -> Step:
    return Step(document["Name"], document["Type"], document["Arguments"], document)


def test_an_expiry_that_is_no_duration_is_refused() -> None:
    config = {"Enabled": True, "ExpireAfter": "1x"}
    with pytest.raises(ApiError, match="ISO 8601"):
        expiry(step(process_step("A", "true", CacheConfig=config)))


@given(st.sampled_from(["AppSpecification", "Environment", "ProcessingInputs", "RoleArn", "Tags"]))
def test_only_the_documented_attributes_of_processing_count(name: str) -> None:
    document = process_step("A", "true", CacheConfig=CACHED)
    one = signature(step(document), document["Arguments"])
    other = signature(step(document), document["Arguments"] | {name: "changed"})
    assert (one != other) == (name in STEP_TYPES["Processing"].cache_key)


def test_the_training_hyperparameters_and_the_steps_name_count() -> None:
    document = train_step("T", "true", CacheConfig=CACHED)
    arguments = document["Arguments"]
    one = signature(step(document), arguments)
    assert one != signature(step(document), arguments | {"HyperParameters": {"lr": "1"}})
    assert one != signature(step(document | {"Name": "U"}), arguments)
    assert one == signature(step(document), arguments | {"StoppingCondition": {}})


def test_no_cache_config_no_signature() -> None:
    for config in ({}, {"CacheConfig": {"Enabled": False}}):
        document = process_step("A", "true", **config)
        assert signature(step(document), document["Arguments"]) is None
