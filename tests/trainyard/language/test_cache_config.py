"""How long a cached result is good for."""

import pytest

from trainyard.language.definition_document import parse_duration


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
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "P", "PT", "30", "1x", None, 30, "T5d"])
def test_what_is_no_duration(text: object) -> None:
    with pytest.raises(ValueError, match="ISO 8601"):
        parse_duration(text)
