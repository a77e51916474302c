"""Manifests are checked to the last value, column by column."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.data.manifest import Field, Files, Manifest, Raw, Shards, Source, manifest_json
from training.data.manifest_columns import parse_manifest
from training.data.merged_manifests import merge
from trainyard.common.errors import DataError

pytestmark = pytest.mark.long

FIELDS = {"x": Field(dtype="uint16", shape=(3,)), "text": Field(dtype="uint8", shape=None)}
RAW = [
    Raw(name="a.jsonl", records=6, duplicates=1),
    Raw(name="b.jsonl", records=4, quarantined=2),
]
SOURCES = [
    Source(name="000000-of-000002", records=3, samples=5, statistics={"rows": 3}),
    Source(name="000001-of-000002", records=4, samples=6),
]


def shards(count: int = 3) -> Shards:
    return Shards(
        file=[f"unit-{row:05d}.npy" for row in range(count)],
        samples=[row + 1 for row in range(count)],
        source=[row % 2 for row in range(count)],
        bytes=[100 + row for row in range(count)],
        sha256=[f"{row:064x}" for row in range(count)],
        values={
            "text": Files(
                bytes=[200 + row for row in range(count)],
                sha256=[f"{1000 + row:064x}" for row in range(count)],
            )
        },
    )


def whole() -> dict:
    manifest = Manifest(
        split="train",
        fields=FIELDS,
        workload={"kind": "test"},
        raw=RAW,
        units=2,
        sources=SOURCES,
        shards=shards(),
    )
    return json.loads(manifest_json(manifest))


def read(changed: dict):
    return parse_manifest("folder/manifest-x.json", json.dumps(changed).encode())


def at(manifest: dict, path: str) -> tuple[dict | list, str | int]:
    """Return the container of the value at ``path``, and its key there."""
    *outer, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    for part in outer:
        manifest = manifest[part]
    return manifest, last


def test_columns_are_what_was_written():
    columns = read(whole())
    assert columns.split == "train"
    assert columns.fields == FIELDS
    assert columns.workload == {"kind": "test"}
    rows = zip(*columns.sources.values(), strict=True)
    assert [Source(**dict(zip(columns.sources, row, strict=True))) for row in rows] == SOURCES
    assert columns.files.tolist() == [b"unit-00000.npy", b"unit-00001.npy", b"unit-00002.npy"]
    assert columns.samples.tolist() == [1, 2, 3]
    assert columns.source.tolist() == [0, 1, 0]
    assert columns.bytes.tolist() == [[100, 200], [101, 201], [102, 202]]
    hashes = [[part.tobytes().hex() for part in row] for row in columns.sha256]
    assert hashes == [[f"{row:064x}", f"{1000 + row:064x}"] for row in range(3)]


@given(
    names=st.lists(
        st.from_regex(r"[!-.0-\[\]-~]{1,20}\.npy", fullmatch=True), unique=True, max_size=8
    )
)
def test_every_name_of_whatever_width_comes_back(names: list[str]):
    table = shards(len(names)).model_copy(update={"file": names})
    written = Manifest(split="train", fields=FIELDS, workload={}, sources=SOURCES, shards=table)
    columns = parse_manifest("m", manifest_json(written))
    assert [name.decode() for name in columns.files.tolist()] == names
    merged = merge("here", {"m": columns})
    assert sorted(merged.files) == sorted(names)
    bytes_ = dict(zip(names, table.bytes, strict=True))
    assert [bytes_[name] for name in merged.files] == merged.bytes[:, 0].tolist()


NUMBERS = (
    "raw.records", "raw.duplicates", "raw.quarantined", "sources.records", "sources.samples",
    "shards.samples", "shards.bytes", "shards.source", "shards.values.text.bytes",
)  # fmt: skip
HASHES = ("shards.sha256", "shards.values.text.sha256")
KEYS = (
    "split", "fields", "workload", "raw", "sources", "shards", "fields.x.dtype", "raw.name",
    "sources.name",
    "sources.statistics", "shards.file", "shards.values", "shards.values.text", *NUMBERS, *HASHES,
)  # fmt: skip
ODD = st.none() | st.floats(allow_nan=False) | st.text(max_size=3) | st.just([1]) | st.just({})


@given(
    path=st.sampled_from(NUMBERS),
    row=st.integers(0, 1),
    wrong=ODD | st.integers(max_value=-1) | st.integers(min_value=2**63),
)
def test_what_is_no_count_is_refused_and_named(path: str, row: int, wrong):
    changed = whole()
    column, key = at(changed, path)
    column[key][row] = wrong
    with pytest.raises(DataError, match=rf"^folder/manifest-x.json: {path}\.{row}: "):
        read(changed)


@given(path=st.sampled_from(KEYS), wrong=st.none() | st.integers() | st.booleans() | st.just([]))
def test_what_is_of_another_type_is_refused_and_named(path: str, wrong):
    changed = whole()
    outer, key = at(changed, path)
    outer[key] = wrong
    with pytest.raises(DataError, match=rf"^folder/manifest-x.json: {path.partition('.')[0]}"):
        read(changed)


@pytest.mark.parametrize("path", KEYS)
def test_a_key_that_is_missing_is_named(path: str):
    changed = whole()
    outer, key = at(changed, path)
    del outer[key]
    with pytest.raises(DataError, match=rf"^folder/manifest-x.json: {path.partition('.')[0]}"):
        read(changed)


@pytest.mark.parametrize("path", ["", "fields.x", "raw", "sources", "shards", "shards.values",
                                  "shards.values.text"])  # fmt: skip
def test_a_key_that_nobody_knows_is_refused(path: str):
    changed = whole()
    outer, key = at(changed, f"{path}.surprise".lstrip("."))
    outer[key] = 1
    with pytest.raises(DataError, match="surprise"):
        read(changed)


@pytest.mark.parametrize("path", [*NUMBERS, "raw.name", "sources.name", "sources.statistics"])
@pytest.mark.parametrize("change", [lambda c: c[:-1], lambda c: [*c, c[-1]]])
def test_columns_of_different_lengths_are_refused(path: str, change):
    changed = whole()
    outer, key = at(changed, path)
    outer[key] = change(outer[key])
    with pytest.raises(DataError, match="expected"):
        read(changed)


# A lone surrogate cannot stand in JSON at all.
LETTERS = st.characters(exclude_characters="0123456789abcdefABCDEF", exclude_categories=["Cs"])


@pytest.mark.parametrize("path", HASHES)
@given(place=st.integers(0, 191), letter=LETTERS)
def test_what_is_no_hash_is_refused(path: str, place: int, letter: str):
    changed = whole()
    outer, key = at(changed, path)
    outer[key] = outer[key][:place] + letter + outer[key][place + 1 :]
    with pytest.raises(DataError, match=f"{path}: .* hexadecimal digits"):
        parse_manifest("m", json.dumps(changed).encode())


@pytest.mark.parametrize("path", HASHES)
@pytest.mark.parametrize("change", [lambda h: h[1:], lambda h: h + "0" * 64, lambda h: h[:-64]])
def test_hashes_of_another_length_are_refused(path: str, change):
    changed = whole()
    outer, key = at(changed, path)
    outer[key] = change(outer[key])
    with pytest.raises(DataError, match=f"{path}: .* 64 for each of the 3 shards"):
        read(changed)


@pytest.mark.parametrize("row", range(3))
@pytest.mark.parametrize(
    "name",
    [
        "../evil.npy", "/etc/evil.npy", "a/b.npy", "a\\b.npy", "unit-00000", "unit.npz", ".npy", "",
        "naïve.npy", "tab\t.npy", "zero\0.npy", "line\n.npy", "unit-0000xnpy", "npy", "unit.npy\n",
    ],
)  # fmt: skip
def test_a_name_that_leads_elsewhere_or_to_no_shard_is_refused(name: str, row: int):
    changed = whole()
    names = changed["shards"]["file"].split()
    changed["shards"]["file"] = " ".join([*names[:row], name, *names[row + 1 :]])
    with pytest.raises(DataError, match=r"shards.file: .*expected names like"):
        read(changed)


@pytest.mark.parametrize("name", ["a/b", "..\\b", ""])
def test_a_field_does_not_lead_elsewhere_either(name: str):
    changed = whole()
    changed["fields"][name] = changed["fields"].pop("text")
    changed["shards"]["values"][name] = changed["shards"]["values"].pop("text")
    with pytest.raises(DataError, match="fields"):
        read(changed)


def test_a_source_that_is_not_there_is_refused():
    changed = whole()
    changed["shards"]["source"][1] = 2
    with pytest.raises(DataError, match=r"shards.source: 2; expected a row of sources, .* are 2"):
        read(changed)


@pytest.mark.parametrize("found", [1, 2, 3, "4", None])
def test_another_format_is_refused(found):
    with pytest.raises(DataError, match=r"manifest-x.json: format: .*4; shard the data again"):
        read(whole() | {"format": found})


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"7", b"\xff{}", b"null", b'{"format": 3'])
def test_what_is_no_manifest_is_refused(content: bytes):
    with pytest.raises(DataError, match=r"^m: (file|split)"):
        parse_manifest("m", content)


@given(cut=st.integers(0, 10**6))
def test_a_manifest_that_was_cut_off_is_refused(cut: int):
    content = json.dumps(whole()).encode()
    with pytest.raises(DataError, match="^m: file: "):
        parse_manifest("m", content[: cut % len(content)])


@pytest.mark.parametrize("width", [5, 12, 16, 31])
def test_shards_of_one_name_are_of_two_runs(width: int):
    changed = whole()
    names = [f"{row:0{width - 4}d}.npy" for row in (7, 8, 7)]
    changed["shards"]["file"] = " ".join(names)
    with pytest.raises(DataError, match=f"two manifests name {names[0]} with different hashes"):
        merge("here", {"m": read(changed)})
