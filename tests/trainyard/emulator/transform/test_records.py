"""Records: batches hold all of them in their order, and no request is larger than it may be."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.emulator.transform.records import TooLarge, batches, counted, parts, records
from trainyard.emulator.transform.transformer import Count

LINES = st.lists(st.binary(max_size=9).filter(lambda b: b"\n" not in b), min_size=1)


@given(LINES, st.booleans(), st.integers(9, 40))
def test_batches_keep_every_record_in_its_order_and_fit(lines, many, limit):
    found = list(batches(lines, many, limit))
    assert [record for batch in found for record in batch] == lines
    assert all(len(b"\n".join(batch)) <= limit for batch in found)
    assert many or all(len(batch) == 1 for batch in found)
    if many:  # none could have taken the next one's first record
        for one, two in zip(found, found[1:], strict=False):
            assert len(b"\n".join([*one, two[0]])) > limit


@given(LINES)
def test_a_line_is_a_record_with_or_without_an_end(lines):
    text = b"\n".join(lines) + b"\n"
    assert list(records(io.BytesIO(text), "Line")) == lines
    assert list(records(io.BytesIO(text), "None")) == [text]


def test_a_record_that_is_too_large_is_named():
    with pytest.raises(TooLarge, match="record 1 has 5 bytes"):
        list(batches([b"a", b"aaaaa"], True, 4))


@pytest.mark.parametrize(
    ("answer", "kind", "asked", "expected"),
    [
        (b"1\n2\n", "text/csv", 2, [b"1", b"2"]),
        (b"1\n2", "text/csv; charset=utf-8", 2, [b"1", b"2"]),
        (b"[1, [2]]", "application/json", 2, [b"1", b"[2]"]),
        (b'{"predictions": [1, 2]}', "application/json", 2, [b"1", b"2"]),
        (b'{"a": 1}\n{"a": 2}', "application/json", 2, [b'{"a": 1}', b'{"a": 2}']),
        (b"[1, 2]", "application/json", 1, [b"[1, 2]"]),
    ],
)
def test_an_answer_falls_into_its_records(answer, kind, asked, expected):
    assert parts(answer, kind, asked) == expected
    assert counted(answer, kind, asked) == len(expected)


def test_a_type_without_records_is_not_counted():
    assert counted(b"any", "image/png", 1) is None


@pytest.mark.parametrize(
    ("pairs", "says"),
    [
        ([(2, 2), (1, 1)], "3 records in, 3 out"),
        ([(2, 1)], "2 records in, 1 out: they do not match record by record"),
        ([(None, 40)], "40 records out; what went in is of a type without records"),
        ([(1, 1), (1, None)], "2 records in; what went out is of a type without records"),
        ([(None, None)], "done; what went in is of a type without records"),
    ],
)
def test_what_is_said_of_an_objects_records(pairs, says):
    count = Count()
    for went_in, came_out in pairs:
        count.add(went_in, came_out)
    assert count.shown == says
