"""Tests of raw data in every format: suffixes, compression, limits, broken files."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from steps.shard.readers import FORMATS, read_records
from tests.steps.shard.readings import (
    TEXT,
    compress_content,
    limits,
    plain,
    read_all,
    reasons,
    tar,
    write,
)
from trainyard.common.errors import DataError

TEXTS = ["one", "zwei ✓", "3,5 km", "a\tb", "NA", "true", "2013-01-01", '"', "-"]
LINES = "".join(f"{text}\n" for text in TEXTS)
JSON = "".join(json.dumps({"z": [1], "text": text}) + "\n" for text in TEXTS)
CSV = "z,text\n" + "".join('0,"{}"\n'.format(text.replace('"', '""')) for text in TEXTS)
CONTENT = {
    ".txt": LINES, ".jsonl": JSON, ".ndjson": JSON, ".csv": CSV,
    ".tsv": CSV.replace('0,"', '0\t"').replace("z,", "z\t"),
}  # fmt: skip


def content(suffix: str) -> bytes:
    """``TEXTS`` as a file of that suffix."""
    if suffix.startswith(".tar"):
        members = {f"{n:03d}.{end}": text for n, text in enumerate(TEXTS) for end in ("text", "z")}
        return compress_content(tar(members), suffix)
    if suffix == ".parquet":
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"z": [0] * len(TEXTS), "text": TEXTS}), sink)
        return sink.getvalue().to_pybytes()
    return compress_content(CONTENT[plain(suffix)].encode(), suffix)


@pytest.mark.parametrize("suffix", FORMATS)
def test_every_format_gives_the_same_records_and_names_a_missing_file(tmp_path: Path, suffix: str):
    path = write(tmp_path, f"data.v1{suffix.upper()}", content(suffix))
    rows, lines, bad = read_all(path)
    assert rows == [(text,) for text in TEXTS]
    assert (lines, bad) == (list(range(1, len(TEXTS) + 1)), [])
    with pytest.raises(DataError, match=f"gone{suffix}: cannot be read"):
        read_all(tmp_path / f"gone{suffix}")


@pytest.mark.parametrize("name", ["data.json", "data", "data.parquet.gz", "x.jsonl~"])
def test_unknown_suffix_is_an_error_before_anything_is_read(tmp_path: Path, name: str):
    with pytest.raises(DataError, match=r"read; known suffixes: \.csv, .*\.parquet, .*zst\."):
        read_records(tmp_path / name, TEXT)


@pytest.mark.parametrize("suffix", [s for s in FORMATS if s[:4] not in (".par", ".tar")])
def test_a_file_without_a_byte_gives_no_batch(tmp_path: Path, suffix: str):
    for body in (b"", compress_content(b"", suffix), compress_content(b"\n\r\n\n", suffix)):
        assert list(read_records(write(tmp_path, f"a{suffix}", body), TEXT)) == []


@pytest.mark.parametrize("suffix", [s for s in FORMATS if s.endswith((".gz", ".zst", "quet"))])
def test_a_file_cut_off_anywhere_is_an_error(tmp_path: Path, suffix: str):
    whole = content(suffix)
    for size in {1, 2, 4, 5, 11, 20, len(whole) // 2, len(whole) - 9, len(whole) - 1}:
        path = write(tmp_path, f"data{suffix}", whole[:size])
        with pytest.raises(DataError, match=r"data\..*cannot be read .*to its end .*copy it again"):
            read_all(path)


def test_what_is_not_compressed_as_its_name_says_and_any_flipped_byte_is_an_error(tmp_path: Path):
    """Bytes of the header that do not affect the content (time, system, level) are left out."""
    whole = content(".csv.gz")
    for place in {0, 1, 2, *range(10, len(whole))}:
        flipped = whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :]
        with pytest.raises(DataError, match="cannot be read to its end"):
            read_all(write(tmp_path, "data.csv.gz", flipped))
    for suffix in (".csv.gz", ".jsonl.zst"):
        with pytest.raises(DataError, match="cannot be read to its end"):
            read_all(write(tmp_path, f"data{suffix}", CONTENT[plain(suffix)]))


@pytest.mark.parametrize("suffix", [".txt.gz", ".jsonl.gz", ".csv.zst", ".tsv"])
def test_byte_order_mark_is_dropped_and_compressed_files_may_be_joined(tmp_path: Path, suffix: str):
    marked = b"\xef\xbb\xbf" + CONTENT[plain(suffix)].encode()
    parts = [compress_content(part, suffix) for part in (marked[:50], marked[50:])]
    rows, _, bad = read_all(write(tmp_path, f"data{suffix}", b"".join(parts)))
    assert (rows[0], len(rows), bad) == (("one",), len(TEXTS), [])


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32", "utf-32-be"])
@pytest.mark.parametrize("suffix", [".txt", ".jsonl.gz", ".csv"])
def test_utf16_is_refused_as_a_whole(tmp_path: Path, suffix: str, encoding: str):
    mark = "" if encoding in ("utf-16", "utf-32") else "\ufeff"
    text = mark + CONTENT[plain(suffix)]
    path = write(tmp_path, f"a{suffix}", compress_content(text.encode(encoding), suffix))
    with pytest.raises(DataError, match=r"a\..* holds UTF-(16|32).*convert it to UTF-8: iconv"):
        read_all(path)


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_compressed_data_without_its_suffix_is_named(tmp_path: Path, suffix: str):
    path = write(tmp_path, "data.csv", compress_content(CSV.encode(), suffix))
    with pytest.raises(DataError, match=f"add {suffix} to its name"):
        read_all(path)


@pytest.mark.parametrize("suffix", [".txt", ".jsonl", ".csv", ".tsv"])
@pytest.mark.parametrize("chunk", [1, 3, 64])
def test_records_do_not_depend_on_where_chunks_end(tmp_path: Path, suffix: str, chunk: int):
    lines = CONTENT[suffix].encode().splitlines(keepends=True)
    lines[3:3] = [b"\xff\xfe\r\n", b"\r\n", b"\n"]
    path = write(tmp_path, f"data{suffix}", b"".join(lines).removesuffix(b"\n"))
    whole = read_all(path)
    assert whole[2] and len(whole[0]) == len(TEXTS)
    with limits(chunk=chunk, piece=40):
        assert read_all(path) == whole


LONG = 200
GIANTS = {".txt": b"%b\n", ".jsonl": b'{"text": "%b"}\n', ".csv": b'0,"%b"\n', ".tsv": b"0\t%b\r\n"}


@pytest.mark.parametrize("suffix", GIANTS)
@pytest.mark.parametrize("chunk", [1, LONG])
@pytest.mark.parametrize("end", [b"\n", b""])
def test_a_giant_record_costs_only_itself(tmp_path: Path, suffix: str, chunk: int, end: bytes):
    row = GIANTS[suffix]
    fits = b"f" * (LONG - len((row % b"").rstrip(b"\r\n")))
    rows = [row % text for text in (b"before", b"g" * (LONG + 1), b"after", fits, fits + b"g")]
    header = {".csv": b"z,text\n", ".tsv": b"z\ttext\n"}.get(suffix, b"")
    path = write(tmp_path, f"a{suffix}", header + b"".join(rows).rstrip(b"\r\n") + end)
    with limits(chunk=chunk, piece=chunk, record=LONG):
        found, lines, bad = read_all(path)
    assert found == [("before",), ("after",), (fits.decode(),)]
    assert lines == [1, 3, 4]
    assert reasons(bad) == {line: f"longer than {LONG} bytes" for line in (2, 5)}
    assert all(one.excerpt == rows[one.line - 1].decode().rstrip()[:200] for one in bad)


def test_batches_are_bounded(tmp_path: Path):
    path = write(tmp_path, "a.txt", b"".join(b"%099d\n" % i for i in range(1000)))
    with limits(chunk=1000):
        batches = list(read_records(path, TEXT))
    assert max(batch.records.nbytes for batch in batches) < 1600
    assert [line for batch in batches for line in batch.lines] == list(range(1, 1001))


MEASURE = """
import re, sys
from pathlib import Path
from steps.shard.readers import read_records
from training.workloads import Column
columns = {"text": Column("text", required=False)}
for path in sys.argv[1:]:
    rows = sum(len(batch.records) for batch in read_records(Path(path), columns))
    # not getrusage: its peak is that of the process before exec, the tests' own
    print(rows, re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
"""


def test_memory_does_not_grow_with_the_file(tmp_path: Path, run_python):
    """Peak memory (kB) of one process over a small and then a large file of each format."""
    line = b'{"text": "%b"}\n' % (b"x" * 1000)
    small, large = line * 15_000, line * 60_000
    texts = pa.array(["x" * 900 + str(i) for i in range(60_000)])
    paths = []
    for name, part in (("small", small), ("large", large)):
        paths.append(write(tmp_path, f"{name}.jsonl.gz", compress_content(part, ".gz")))
        table = b"text\n" + part.replace(b'"', b"")
        paths.append(write(tmp_path, f"{name}.csv.zst", compress_content(table, ".zst")))
        table = pa.table({"text": texts.slice(0, len(part) // len(line))})
        paths.append(tmp_path / f"{name}.parquet")
        pq.write_table(table, paths[-1], row_group_size=len(table), use_dictionary=False)
    output = run_python("-c", MEASURE, *map(str, paths)).stdout
    rows, peaks = zip(*(map(int, line.split()) for line in output.splitlines()), strict=True)
    assert rows == (15_000,) * 3 + (60_000,) * 3
    assert peaks[-1] - peaks[2] < 30_000, f"{peaks} kB: the large files have 60 MB each"
