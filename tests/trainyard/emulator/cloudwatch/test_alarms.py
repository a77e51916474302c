"""States of an alarm: AWS's own tables, with the oldest period first as there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.emulator.cloudwatch.alarms import MISSING, evaluate_alarm

RETAIN, NONE = "the state before", "INSUFFICIENT_DATA"
THREE_OF_THREE = {
    "0 - X - X": ("OK", "OK", "OK", "OK"),
    "0 - - - -": ("OK", "OK", "OK", "OK"),
    "- - - - -": (NONE, RETAIN, "ALARM", "OK"),
    "0 X X - X": ("ALARM", "ALARM", "ALARM", "ALARM"),
    "- - X - -": ("ALARM", RETAIN, "ALARM", "OK"),
}
TWO_OF_THREE = {
    "0 - X - X": ("ALARM", "ALARM", "ALARM", "ALARM"),
    "0 0 X 0 X": ("ALARM", "ALARM", "ALARM", "ALARM"),
    "0 - X - -": ("OK", "OK", "ALARM", "OK"),
    "- - - - 0": ("OK", "OK", "ALARM", "OK"),
    "- - - X -": ("ALARM", RETAIN, "ALARM", "OK"),
}
"""Data → states by TreatMissingData missing, ignore, breaching, notBreaching."""
KINDS = ("missing", "ignore", "breaching", "notBreaching")


@pytest.mark.parametrize(
    ("data", "to_alarm", "missing", "expected"),
    [
        (data, to_alarm, missing, state)
        for to_alarm, table in ((3, THREE_OF_THREE), (2, TWO_OF_THREE))
        for data, states in table.items()
        for missing, state in zip(KINDS, states, strict=True)
    ],
)
def test_the_tables_of_the_user_guide(data, to_alarm, missing, expected):
    breaches = [{"X": True, "0": False, "-": None}[each] for each in reversed(data.split())]
    assert evaluate_alarm(breaches, 3, to_alarm, missing, RETAIN) == expected


def test_it_does_not_go_off_on_the_newest_datum_alone():
    assert evaluate_alarm([True, None, None, None], 2, 2, "missing", "OK") == "OK"


@given(st.lists(st.booleans(), min_size=3, max_size=5), st.integers(1, 3), st.sampled_from(MISSING))
def test_with_all_data_nothing_else_counts(breaches, to_alarm, missing):
    found = evaluate_alarm(breaches, 3, to_alarm, missing, RETAIN)
    assert found == ("ALARM" if sum(breaches[:3]) >= to_alarm else "OK")
