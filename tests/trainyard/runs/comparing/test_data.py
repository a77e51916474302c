"""Whether two runs read the same data is said only where it is known."""

from hypothesis import given
from hypothesis import strategies as st

from trainyard.runs.comparing.archives import Mark
from trainyard.runs.comparing.data import fingerprint, values

OBJECTS = st.dictionaries(
    st.text("ab/", min_size=1, max_size=4),
    st.builds(Mark, st.integers(0, 9), st.sampled_from("xyz")),
)


@given(OBJECTS, OBJECTS)
def test_prints_are_the_same_when_names_sizes_and_etags_are(one: dict, other: dict):
    found = values([fingerprint("s3://b/one", one), fingerprint("s3://b/two", other)])
    assert (found[0].key == found[1].key) == (one == other)
    assert all(value.known for value in found)


def test_uploads_in_parts_of_the_same_sizes_may_be_the_same():
    one, other = ({"a": Mark(9, etag)} for etag in ("x-2", "y-3"))
    third = {"a": Mark(8, "z-2")}
    found = values([fingerprint("s3://b/x", each) for each in (one, other, third)])
    assert [value.known for value in found] == [False, False, True]
    assert all(value.known for value in values([fingerprint("s3://b/x", one)] * 2))


def test_what_is_gone_is_no_evidence():
    (found,) = values([fingerprint("s3://b/x", {}, "nothing lies there any more")])
    assert not found.known and "cannot be known: nothing" in found.text
    assert values([None]) == [None]
