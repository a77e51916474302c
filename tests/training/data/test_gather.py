"""Rows by their addresses are the rows."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from training.data.dataset import gather

ROW = np.dtype([("number", "<i8"), ("letters", "u1", (3,))])  # 11 bytes: nothing is aligned


def table(start: int, count: int) -> np.ndarray:
    rows = np.zeros(count, ROW)
    rows["number"] = np.arange(start, start + count)
    rows["letters"] = rows["number"][:, None] % 251
    return rows


pieces = st.tuples(st.integers(0, 5), st.integers(0, 99), st.integers(1, 30))  # table, row, rows


@given(st.lists(pieces, max_size=30))
def test_rows_come_in_the_order_of_their_addresses(chosen):
    tables = [table(100 * number, 130) for number in range(6)]
    runs = [tables[number][row : row + count] for number, row, count in chosen]
    addresses = [run.ctypes.data + np.arange(len(run)) * ROW.itemsize for run in runs]
    found = gather(np.concatenate([*addresses, np.empty(0, np.int64)]), ROW)
    assert found.dtype == ROW
    expected = np.concatenate([*runs, np.empty(0, ROW)])
    assert found.tobytes() == expected.tobytes()
    for run in runs:
        run["number"] = -1  # what was gathered is a copy
    assert found.tobytes() == expected.tobytes()
