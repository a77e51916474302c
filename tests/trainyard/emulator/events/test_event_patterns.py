"""Event patterns: sixty that AWS has judged are in tests/published; here is what else holds."""

import json

import pytest

from trainyard.emulator.events.event_patterns import parse_event_pattern
from trainyard.emulator.request_scope import ApiError


def matches(pattern: dict, event: dict) -> bool:
    return parse_event_pattern(json.dumps(pattern))(event)


@pytest.mark.parametrize(
    ("pattern", "event", "same"),
    [
        ({"a": [1]}, {"a": 1.0}, True),
        ({"a": [1]}, {"a": True}, False),
        ({"a": ["x"], "b": ["y"]}, {"a": "x"}, False),
        ({"a": {"b": [{"exists": False}]}}, {"a": {"c": 1}}, True),
        ({"a": [{"exists": False}]}, {"a": []}, True),
        ({"a": [{"prefix": "x"}, None]}, {"a": None}, True),
        ({"$or": [{"a": [1]}, {"b": [2]}], "c": [3]}, {"b": 2, "c": 3}, True),
        ({"$or": [{"a": [1]}, {"b": [2]}], "c": [3]}, {"b": 2, "c": 4}, False),
        ({"$or": [1, 2]}, {"$or": 2}, True),
        ({"a": [{"wildcard": "*.c\\*"}]}, {"a": "b.c*"}, True),
        ({"a": [{"wildcard": "*.c\\*"}]}, {"a": "b.cd"}, False),
        ({"a": [{"numeric": [">", 0, "<=", 5]}]}, {"a": [9, 5]}, True),
        ({"a": [{"cidr": "10.0.0.0/24"}]}, {"a": "no address"}, False),
    ],
)
def test_an_event_is_compared_by_its_paths(pattern, event, same):
    assert matches(pattern, event) is same


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "Filter is not valid JSON"),
        ("[]", "Filter is not an object"),
        ('{"a": [{"prefix": "x", "suffix": "y"}]}', "Only one key allowed"),
        ('{"a": [{"exists": "yes"}]}', "must be either true or false"),
        ('{"a": [{"numeric": []}]}', "Invalid member in numeric match"),
        ('{"a": [{"cidr": "10.0.0.0/99"}]}', "mask bits are not of this address"),
    ],
)
def test_a_pattern_that_says_nothing_is_refused(text, reason):
    with pytest.raises(ApiError, match=reason):
        parse_event_pattern(text)
