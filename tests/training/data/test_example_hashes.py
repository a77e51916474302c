"""Ids of examples by their content."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from training.data.manifest import Field
from training.data.shard_writer import sample_hashes

FIELDS = {
    "flag": Field(dtype="uint8"),
    "numbers": Field(dtype="float32", shape=(3,)),
    "code": Field(dtype="int64", shape=(2,)),
}
numbers = st.floats(width=32)
row = st.tuples(
    st.integers(0, 255), st.tuples(numbers, numbers, numbers), st.tuples(*[st.integers(-9, 9)] * 2)
)


def packed(rows):
    return {
        name: np.array([r[place] for r in rows], field.dtype).reshape(len(rows), *field.shape)
        for place, (name, field) in enumerate(FIELDS.items())
    }


@given(st.lists(row, min_size=1, max_size=20), st.integers(0, 20))
def test_equal_bytes_and_only_those_have_equal_ids_wherever_they_stand(rows, cut):
    samples = packed(rows)
    found = sample_hashes(samples, FIELDS)
    content = [b"".join(samples[name][n].tobytes() for name in FIELDS) for n in range(len(rows))]
    for one, name in zip(content, found.tolist(), strict=True):
        assert [c == one for c in content] == [n == name for n in found.tolist()]
    if part := rows[cut:]:
        assert sample_hashes(packed(part), FIELDS).tolist() == found[cut:].tolist()


def test_an_id_is_the_same_on_every_machine_and_in_every_release():
    """Otherwise scores of different releases could not be compared."""
    samples = packed([(1, (0.5, -2.0, float("nan")), (3, -4))])
    assert sample_hashes(samples, FIELDS).tolist() == [PINNED]


def test_many_ids_are_all_different():
    samples = {"n": np.arange(200_000, dtype=np.int64)}
    assert len(np.unique(sample_hashes(samples, {"n": Field(dtype="int64")}))) == 200_000


PINNED = -3388558823952236829
