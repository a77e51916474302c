"""Parquet in S3: its first rows, of which no more is read than they need."""

import io
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest

from tests.trainyard.console.objects.test_preview import beginning
from tests.trainyard.emulator.harness import Cloud
from trainyard.console.objects import seekable
from trainyard.console.objects.preview import preview
from trainyard.console.objects.reading import BYTES

pa = pytest.importorskip("pyarrow")


def written(columns: Any, **how: Any) -> bytes:
    from pyarrow import parquet

    packed = io.BytesIO()
    parquet.write_table(pa.table(columns), packed, **how)
    return packed.getvalue()


@pytest.fixture(scope="module")
def large() -> bytes:
    """Of more than 1 MiB, with its schema at its end."""
    return written({"n": range(300_000), "name": ["x"] * 300_000}, use_dictionary=False)


def test_an_object_of_any_size_has_its_first_rows(cloud: Cloud, client, large: bytes):
    assert len(large) > BYTES
    cloud.put("raw/large.parquet", large)
    page = client.get(f"/object?uri={quote('s3://bkt/raw/large.parquet')}").text
    assert "Parquet: 50 of 300,000 rows" in page, page[-1500:]
    assert "<td>49</td><td>x</td>" in page


def test_where_rows_take_too_much_there_is_the_schema(large: bytes, monkeypatch):
    monkeypatch.setattr(seekable, "MOST", 70_000)  # what the footer takes
    asked = []

    def further(start: int, stop: int) -> bytes:
        asked.append(stop - start)
        return large[start:stop]

    found = preview(replace(beginning(large[:10], size=len(large)), further=further))
    assert found.rows == (("n", "int64"), ("name", "string"))
    assert "300,000 rows, by its schema" in found.said and sum(asked) <= 70_000


def test_values_of_every_kind_are_shown_and_columns_may_share_a_name():
    from pyarrow import parquet

    table = pa.Table.from_arrays(
        [
            pa.array([1, None]),
            pa.array([{"k": [1]}, None]),
            pa.array([10**16, 1], pa.timestamp("ms")),
        ],
        names=["a", "a", "when"],
    )
    packed = io.BytesIO()
    parquet.write_table(table, packed)
    rows = preview(beginning(packed.getvalue())).rows
    assert rows[0][:2] == ("1", "{'k': [1]}") and rows[1][:2] == ("", "")
    assert "1970" in rows[1][2], "beside a time in a year that Python has not"


def test_what_is_broken_or_empty_says_so():
    whole = written({"a": [1]})
    assert "cannot be read" in preview(beginning(whole[:100])).said
    assert preview(beginning(written({"a": pa.array([], pa.int8())}))).rows == (("a", "int8"),)
