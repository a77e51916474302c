"""Manifests are checked to the last value, column by column."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.data.manifest import Field, Files, Manifest, Raw, Shards, Source, format_manifest
from training.data.manifest_columns import parse_manifest
from training.data.merged_manifests import merge_manifests
from trainyard.common.errors import DataError

pytestmark = pytest.mark.long

FIELDS = {"x": Field(dtype="uint16", shape=(3,)), "text": Field(dtype="uint8", shape=None)}
RAW = [Raw(name="a.jsonl", records=6, duplicates=1), Raw(name="b.jsonl", records=4, quarantined=2)]
SOURCES = [
    Source(name="000000-of-000002", records=3, samples=5, statistics={"rows": 3}),
    Source(name="000001-of-000002", records=4, samples=6),
]


def encode_manifest(names: list[str]) -> bytes:
    """Return a manifest of shards with these names."""
    rows = range(len(names))
    values = Files(bytes=[200 + n for n in rows], sha256=[f"{1000 + n:064x}" for n in rows])
    shards = Shards(
        file=names,
        samples=[row + 1 for row in rows],
        source=[row % 2 for row in rows],
        bytes=[100 + row for row in rows],
        sha256=[f"{row:064x}" for row in rows],
        values={"text": values},
    )
    known = {"workload": {"kind": "test"}, "raw": RAW, "units": 2, "sources": SOURCES}
    return format_manifest(Manifest(split="train", fields=FIELDS, shards=shards, **known))


def make_manifest_document() -> dict:
    return json.loads(encode_manifest([f"unit-{row:05d}.npy" for row in range(3)]))


def read(changed: dict):
    return parse_manifest("folder/manifest-x.json", json.dumps(changed).encode())


MISSING = object()


def refuse(path: str, change, said: str) -> None:
    """Check what is said of a manifest whose value at ``path`` is another one.

    ``change`` is the value, or a function of what stands there.
    """
    manifest = make_manifest_document()
    *outer, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    table = manifest
    for part in outer:
        table = table[part]
    if change is MISSING:
        del table[last]
    else:
        table[last] = change(table[last]) if callable(change) else change
    with pytest.raises(DataError, match=said):
        read(manifest)


def test_columns_are_what_was_written():
    columns = read(make_manifest_document())
    assert (columns.split, columns.workload) == ("train", {"kind": "test"})
    assert columns.fields == FIELDS
    rows = zip(*columns.sources.values(), strict=True)
    assert [Source(**dict(zip(columns.sources, row, strict=True))) for row in rows] == SOURCES
    assert columns.files.tolist() == [b"unit-00000.npy", b"unit-00001.npy", b"unit-00002.npy"]
    assert columns.samples.tolist() == [1, 2, 3]
    assert columns.source.tolist() == [0, 1, 0]
    assert columns.bytes.tolist() == [[100, 200], [101, 201], [102, 202]]
    hashes = [[part.tobytes().hex() for part in row] for row in columns.sha256]
    assert hashes == [[f"{row:064x}", f"{1000 + row:064x}"] for row in range(3)]


NAME = st.from_regex(r"[!-.0-\[\]-~]{1,20}\.npy", fullmatch=True)


@given(st.lists(NAME, unique=True, max_size=8))
def test_every_name_of_whatever_width_comes_back(names: list[str]):
    columns = parse_manifest("m", encode_manifest(names))
    assert [name.decode() for name in columns.files.tolist()] == names
    merged = merge_manifests("here", {"m": columns})
    assert sorted(merged.files) == sorted(names)
    assert [100 + names.index(name) for name in merged.files] == merged.bytes[:, 0].tolist()


NUMBERS = (
    "raw.records", "raw.duplicates", "raw.quarantined", "sources.records", "sources.samples",
    "shards.samples", "shards.bytes", "shards.source", "shards.values.text.bytes",
)  # fmt: skip
HASHES = ("shards.sha256", "shards.values.text.sha256")
KEYS = (
    "split", "fields", "workload", "raw", "sources", "shards", "fields.x.dtype", "raw.name",
    "sources.name", "sources.statistics", "shards.file", "shards.values", "shards.values.text",
    *NUMBERS, *HASHES,
)  # fmt: skip
ODD = st.none() | st.floats(allow_nan=False) | st.text(max_size=3) | st.just([1]) | st.just({})


@given(
    path=st.sampled_from(NUMBERS),
    row=st.integers(0, 1),
    wrong=ODD | st.integers(max_value=-1) | st.integers(min_value=2**63),
)
def test_what_is_no_count_is_refused_and_named(path: str, row: int, wrong):
    refuse(f"{path}.{row}", wrong, rf"^folder/manifest-x.json: {path}\.{row}: ")


@pytest.mark.parametrize("wrong", [MISSING, None, 7, True, []])
def test_a_key_that_is_missing_or_of_another_type_is_named(wrong):
    for path in KEYS:
        refuse(path, wrong, rf"^folder/manifest-x.json: {path.partition('.')[0]}")


@pytest.mark.parametrize("change", [lambda c: c[:-1], lambda c: [*c, c[-1]]])
def test_columns_of_different_lengths_are_refused(change):
    for path in (*NUMBERS, "raw.name", "sources.name", "sources.statistics"):
        refuse(path, change, "expected")


# A lone surrogate cannot stand in JSON at all.
LETTERS = st.characters(exclude_characters="0123456789abcdefABCDEF", exclude_categories=["Cs"])


@pytest.mark.parametrize("path", HASHES)
@given(place=st.integers(0, 191), letter=LETTERS)
def test_what_is_no_hash_is_refused(path: str, place: int, letter: str):
    said = f"{path}: .* hexadecimal digits"
    refuse(path, lambda text: text[:place] + letter + text[place + 1 :], said)


TABLES = ("fields.x", "raw", "sources", "shards", "shards.values", "shards.values.text")


@pytest.mark.parametrize(("path", "change", "said"), [
    ("shards.source.1", 2, r"shards.source: 2; expected a row of sources, .* are 2"),
    *(("format", found, r"format: .*4; shard the data again") for found in (3, "4", None)),
    *((path, lambda h: h[1:], f"{path}: .* 64 for each of the 3 shards") for path in HASHES),
    *((path, lambda h: h + "0" * 64, f"{path}: .* 64 for each") for path in HASHES),
    ("surprise", 1, "surprise"),
    *((path, lambda table: table | {"surprise": 1}, "surprise") for path in TABLES),
])  # fmt: skip
def test_what_a_manifest_cannot_say_is_refused_and_named(path: str, change, said: str):
    refuse(path, change, rf"^folder/manifest-x.json: .*{said}")


@pytest.mark.parametrize("name", [
    "../evil.npy", "a\\b.npy", "unit-00000", ".npy", "", "naïve.npy", "zero\0.npy",
    "unit-0000xnpy", "unit.npy\n",
])  # fmt: skip
def test_a_name_that_leads_elsewhere_or_to_no_shard_is_refused(name: str):
    for row in (0, 2):
        refuse(
            "shards.file",
            lambda text, at=row: " ".join([*text.split()[:at], name, *text.split()[at + 1 :]]),
            r"shards.file: .*expected names like",
        )


@pytest.mark.parametrize("name", ["a/b", "..\\b", ""])
def test_a_field_does_not_lead_elsewhere_either(name: str):
    changed = make_manifest_document()
    changed["fields"][name] = changed["fields"].pop("text")
    changed["shards"]["values"][name] = changed["shards"]["values"].pop("text")
    with pytest.raises(DataError, match="fields"):
        read(changed)


@given(cut=st.integers(0, 10**6))
def test_what_is_no_manifest_and_what_was_cut_off_is_refused(cut: int):
    content = json.dumps(make_manifest_document()).encode()
    for damaged in (content[: cut % len(content)], b"", b"[]", b"null", b"\xff{}"):
        with pytest.raises(DataError, match="^m: file: "):
            parse_manifest("m", damaged)


def test_shards_of_one_name_are_of_two_runs():
    with pytest.raises(DataError, match=r"two manifests name 7\.npy with different hashes"):
        merge_manifests(
            "here", {"m": parse_manifest("m", encode_manifest(["7.npy", "8.npy", "7.npy"]))}
        )
