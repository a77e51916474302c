"""Filters of DataProcessing: what each operator takes, and what is refused."""

import pytest

from trainyard.emulator.transform.json_path import PathError, compiled

RECORD = {"id": 7, "features": [1, 2, 3, 4, 5, 6], "more": {"a": 1, "b": 2}}
ROW = ["x", "1", "2", "3"]


@pytest.mark.parametrize(
    ("path", "record", "expected"),
    [
        ("$", RECORD, RECORD),
        ("$.features", RECORD, RECORD["features"]),
        ("$.more.b", RECORD, 2),
        ("$['id']", RECORD, 7),
        ("$['id','features']", RECORD, {"id": 7, "features": RECORD["features"]}),
        ("$.more.['a','b']", RECORD, {"a": 1, "b": 2}),
        ("$.more.*", RECORD, [1, 2]),
        ("$.features[*]", RECORD, RECORD["features"]),
        ("$[1:]", ROW, ["1", "2", "3"]),
        ("$[:-1]", ROW, ["x", "1", "2"]),
        ("$[-1]", ROW, "3"),
        ("$[0,2]", ROW, ["x", "2"]),
        ("$[0,2:]", ROW, ["x", "2", "3"]),
        ("$.features[2:5]", RECORD, [3, 4, 5]),
    ],
)
def test_a_filter_takes_what_its_path_says(path, record, expected):
    assert compiled(path)(record) == expected


@pytest.mark.parametrize(
    "path", ["features", "$..x", "$[?(@.a)]", "$[a]", "$['a'", "$" + ".a" * 40]
)
def test_what_is_no_path_is_refused(path):
    with pytest.raises(PathError):
        compiled(path)


@pytest.mark.parametrize(
    ("path", "record", "says"),
    [
        ("$.no", RECORD, "no 'no'"),
        ("$[9]", ROW, "outside an array of 4"),
        ("$[0]", RECORD, "no array"),
    ],
)
def test_a_record_that_the_path_does_not_fit_is_named(path, record, says):
    with pytest.raises(PathError, match=says):
        compiled(path)(record)
