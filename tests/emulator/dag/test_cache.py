"""The signature of a step, and how long it is good for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.api import ApiError
from emulator.dag.cache import ATTRIBUTES, duration, signature
from emulator.dag.definition import Step
from tests.emulator.harness import process_step, train_step

CACHED = {"Enabled": True, "ExpireAfter": "P30D"}


def step(document: dict) -> Step:
    return Step(document["Name"], document["Type"], document["Arguments"], document)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("P30D", 30 * 86400),
        ("30d", 30 * 86400),
        ("5y", 5 * 365 * 86400),
        ("T16m", 960),
        ("30dT5h", 30 * 86400 + 5 * 3600),
        ("PT1H30M", 5400),
        ("P2W", 14 * 86400),
        ("P1M", 30 * 86400),
    ],
)
def test_durations_of_the_developer_guide(text: str, seconds: int) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "P", "PT", "30", "1x", None, 30, "T5d"])
def test_what_is_no_duration(text: object) -> None:
    with pytest.raises(ApiError, match="ISO 8601"):
        duration(text)


@given(st.sampled_from(["AppSpecification", "Environment", "ProcessingInputs", "RoleArn", "Tags"]))
def test_only_the_documented_attributes_of_processing_count(name: str) -> None:
    document = process_step("A", "true", CacheConfig=CACHED)
    one = signature(step(document), document["Arguments"])
    other = signature(step(document), document["Arguments"] | {name: "changed"})
    assert (one != other) == (name in ATTRIBUTES["Processing"])


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
