"""The dataset is the union of its manifests, whichever instances wrote them."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.data.manifest import Field, Manifest, Raw, Shards, Source, format_manifest
from training.data.manifest_columns import Columns, parse_manifest
from training.data.merged_manifests import merge_manifests
from trainyard.common.errors import DataError

FIELDS = {"x": Field(dtype="uint16", shape=(3,))}


def manifest(objects: dict[str, list[int]], **kind) -> Columns:
    """Create a manifest of units with their shards, each given by a number in place of its hash."""
    shards = Shards()
    for index, (name, contents) in enumerate(objects.items()):
        for number, content in enumerate(contents):
            shards.file.append(f"{name}-{number}.npy")
            shards.samples.append(content + 1)
            shards.bytes.append(100 + content)
            shards.sha256.append(f"{content:064x}")
            shards.source.append(index)
    sources = [Source(name=n, records=1, samples=sum(c) + len(c)) for n, c in objects.items()]
    given = {"split": "train", "fields": FIELDS, "workload": {"kind": "test"}} | kind
    written = Manifest(sources=sources, shards=shards, **given)
    return parse_manifest("m", format_manifest(written))


contents = st.lists(st.integers(0, 10_000), max_size=4)


@given(
    objects=st.dictionaries(st.text("abcdef", min_size=1, max_size=3), contents, max_size=8),
    data=st.data(),
)
def test_it_does_not_matter_who_wrote_what(objects, data):
    instances = data.draw(st.integers(1, 4))
    owner = {name: data.draw(st.integers(0, instances - 1)) for name in objects}
    shuffled = data.draw(st.permutations(list(objects)))
    parts = {
        f"manifest-{instance}.json": manifest(
            {name: objects[name] for name in shuffled if owner[name] == instance}
        )
        for instance in range(instances)
    }
    alone = merge_manifests("here", {"manifest-x.json": manifest(objects)})
    spread = merge_manifests("here", parts)
    assert alone.fingerprint == spread.fingerprint
    assert alone.sources == spread.sources
    for column in ("files", "samples", "bytes", "sha256"):
        assert (getattr(alone, column) == getattr(spread, column)).all()
    assert all(alone.bytes[:, 0] - 99 == alone.samples)  # rows stay together
    rows = [(row.tobytes(), name) for [row], name in zip(spread.sha256, spread.files, strict=True)]
    assert rows == sorted(rows)


TWO = {"x": Field(dtype="uint16"), "y": Field(dtype="uint16")}


def test_the_fingerprint_names_the_content_and_what_a_sample_is():
    """The order of fields is part of a sample; the names of files are not."""
    base = {"a": [1, 2], "b": [3]}
    others = [
        manifest({"a": [1, 2], "b": [4]}),
        manifest({"a": [1, 2]}),
        manifest({"a": [1, 2], "b": [3, 3]}),
        manifest(base, split="test"),
        manifest(base, workload={"kind": "other"}),
        manifest(base, fields={"x": Field(dtype="uint32", shape=(3,))}),
        manifest(base, fields={"y": FIELDS["x"]}),
        *(manifest({}, fields=dict(order)) for order in permutations(TWO.items())),
    ]
    found = [merge_manifests("here", {"m": m}).fingerprint for m in [manifest(base), *others]]
    assert len(set(found)) == len(found)
    renamed = merge_manifests("here", {"m": manifest({"c": [2, 1], "d": [3]})})
    assert renamed.fingerprint == found[0]


@pytest.mark.parametrize(("second", "expected"), [
    (manifest({"b": [2]}, units=3), "its 2 manifests list 2 of 3 units; copy"),
    (manifest({"b": [2]}, units=1), "its 2 manifests list 2 of 1 units; copy"),
    (manifest({"b": [2]}, units=2, raw=[Raw(name="x", records=1)]), "about the raw objects, so"),
])  # fmt: skip
def test_what_an_instance_wrote_must_be_there_and_of_the_same_data(second, expected):
    with pytest.raises(DataError, match=expected):
        merge_manifests("here", {"m-1": manifest({"a": [1]}, units=second.units), "m-2": second})
    whole = {"m-1": manifest({"a": [1]}, units=2), "m-2": manifest({"b": [2]}, units=2)}
    assert len(merge_manifests("here", whole).sources) == 2


def test_the_same_unit_in_two_manifests_is_read_once():
    """A run with other instances follows one that was lost, on a file system shared by both."""
    parts = {"m-1": manifest({"a": [1], "b": [2]}), "m-2": manifest({"b": [2], "c": [3]})}
    alone = {"m": manifest({"a": [1], "b": [2], "c": [3]})}
    assert merge_manifests("here", parts).fingerprint == merge_manifests("here", alone).fingerprint


@pytest.mark.parametrize(("second", "expected"), [
    (manifest({"b": [3]}), "two manifests disagree about b"),
    (manifest({"b": [0, 1]}), "name b-0.npy with different hashes"),
    (manifest({}, split="test"), "m-1, m-2 disagree about what a sample is"),
    (manifest({}, workload={"kind": "other"}), "disagree about what a sample is"),
    (manifest({}, fields={"x": Field(dtype="uint32")}), "disagree about what a sample is"),
])  # fmt: skip
def test_manifests_of_two_runs_are_refused(second, expected):
    with pytest.raises(DataError, match=expected):
        merge_manifests("here", {"m-1": manifest({"a": [1], "b": [2]}), "m-2": second})
