"""Tests that one of equal records stays: the same one, whatever their order and parts."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from steps.shard.duplicate_records import mark_kept_records

records = st.lists(st.tuples(*[st.integers(0, 9)] * 3), max_size=60)


def stay(rows: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    if not rows:
        return []
    order, tie, rank = np.array(rows, np.uint64).T
    kept = mark_kept_records(order, tie, rank)
    return [row for row, one in zip(rows, kept, strict=True) if one]


@given(records)
def test_of_equal_ones_the_lowest_stays(rows):
    expected = {order: min(row for row in rows if row[0] == order) for order, _, _ in rows}
    assert sorted(stay(rows)) == sorted(expected.values())


@given(records, st.data())
def test_neither_order_nor_parts_change_what_stays(rows, data):
    cut = data.draw(st.integers(0, len(rows)))
    shuffled = data.draw(st.permutations(rows))
    in_parts = stay([*stay(shuffled[:cut]), *stay(shuffled[cut:])])
    assert sorted(in_parts) == sorted(stay(rows))
