"""What the beginning of an object looks like, whatever somebody has put there."""

import gzip
import io
import itertools
import json
import tarfile
import zlib

import pytest

from tests.trainyard.console.pages_of_steps import PNG
from trainyard.console.objects.packed import INFLATED
from trainyard.console.objects.preview import ROWS, picture_type, preview
from trainyard.console.objects.reading import BYTES, Beginning, Location


def beginning(data: bytes, name: str = "x", size: int | None = None) -> Beginning:
    at = Location("bkt", name)
    return Beginning(at=at, data=data, size=len(data) if size is None else size, modified=None)


def archive(*members: tuple[str, int]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, size in members:
            entry = tarfile.TarInfo(name)
            entry.size = size
            tar.addfile(entry, io.BytesIO(bytes(size)))
    return packed.getvalue()


@pytest.mark.parametrize(
    ("data", "name", "kind"),
    [
        (b"", "x", "empty"),
        (PNG, "x", "picture"),
        (b"\xff\xd8\xff\xe0 jfif", "a.txt", "picture"),
        (b"RIFF\x10\0\0\0WEBPVP8 ", "x", "picture"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "a.svg", "text"),
        (b"<html><script>1</script></html>", "a.html", "text"),
        (b"%PDF-1.7\x00", "a.pdf", "binary"),
        (b'{"a": 1}', "a", "json"),
        (b'{"a": 1', "a.json", "text"),
        (b'{"a": 1}\n{"b": 2}\n', "part-0000", "table"),
        (b"1,2\n3,4\n", "a.csv", "table"),
        ("käse\n".encode(), "a", "text"),
        (b"\xff\xfe\x00", "a", "binary"),
        (gzip.compress(b"1,2\n"), "a.csv.gz", "table"),
        (gzip.compress(b"{}"), "a.json.gz", "json"),
        (b"\x1f\x8b broken", "a.gz", "binary"),
        (archive(("w", 3)), "model.tar.gz", "archive"),
        (b"[" * 100_000, "deep.json", "text"),
        (bytes(10_240), "empty.tar", "archive"),
        ((152).to_bytes(8, "little") + b"{}", "cut.safetensors", "binary"),
        (bytes.fromhex("80049508"), "a.pkl", "binary"),
    ],
    ids=itertools.count(),  # what is compressed holds the time
)
def test_the_kind_follows_from_the_bytes(data: bytes, name: str, kind: str):
    assert preview(beginning(data, name)).kind == kind


def test_a_table_has_the_first_rows_and_says_how_many_there_are():
    data = "".join(json.dumps({"n": n, "v": [n]}) + "\n" for n in range(200)).encode()
    found = preview(beginning(data))
    assert found.columns == ("n", "v")
    assert found.rows[1] == ("1", "[1]") and len(found.rows) == ROWS
    assert found.said == f"JSON lines: {ROWS} of 200 lines"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'a,b\n"one\ntwo",2\n', "comma-separated values: 2 of 2 lines"),
        (b"a;b\none\ntwo;1,5\n".replace(b"one\ntwo", b'"one\ntwo"'), "semicolon-separated"),
        ("a,b\none\ntwo,ü\n".replace("one\ntwo", '"one\ntwo"').encode("utf-16"), "UTF-16"),
        ("a,straße\n".encode("cp1252") + b'"one\ntwo",2\n', "Windows-1252"),
    ],
)
def test_separated_values_are_those_that_programs_write(data: bytes, said: str):
    found = preview(beginning(data, "a.csv"))
    assert found.rows[1][0] == "one\ntwo" and len(found.rows) == 2 and said in found.said


def test_all_members_of_a_compressed_object_are_read():
    assert (
        preview(beginning(gzip.compress(b"one\n") + gzip.compress(b"two\n"))).text == "one\ntwo\n"
    )


def test_a_model_has_its_tensors_and_members():
    numpy = pytest.importorskip("safetensors.numpy")
    np = pytest.importorskip("numpy")
    data = numpy.save({"w": np.zeros((2, 3), dtype="float32")}, {"format": "pt"})
    assert preview(beginning(data)).rows == (("w", "F32", "2 × 3", "24"),)
    packed = io.BytesIO()
    np.savez(packed, w=np.zeros(3))
    assert [name for name, _ in preview(beginning(packed.getvalue())).rows] == ["w.npy"]


def test_what_is_cut_says_so_and_loses_no_more_than_the_cut():
    text = ("ä" * 80 + "\n").encode() * 10_000
    found = preview(beginning(text[: BYTES - 1], size=len(text)))  # amid a character
    assert found.kind == "text" and found.said.startswith("text, its first")
    rows = preview(beginning(b"1,2\n3,4\n5,", "a.csv", size=100))
    assert rows.rows == (("1", "2"), ("3", "4")) and "of many lines" in rows.said


def test_members_of_an_archive_are_listed_as_far_as_its_beginning_goes():
    whole = archive(("model/config.json", 3), ("model/weights", 5_000_000), ("model/last", 1))
    found = preview(beginning(whole))
    assert [name for name, _ in found.rows] == ["model/config.json", "model/weights", "model/last"]
    assert found.said == "tar archive, 3 members"
    cut = preview(beginning(whole[:2_000], size=len(whole)))
    assert [name for name, _ in cut.rows] == ["model/config.json", "model/weights"]
    assert "others come behind" in cut.said


def test_a_small_file_of_very_many_zeros_costs_no_more_than_its_limit():
    machine = zlib.compressobj(1, wbits=zlib.MAX_WBITS | 16)
    bomb = b"".join(machine.compress(bytes(1 << 20)) for _ in range(66)) + machine.flush()
    assert len(bomb) < BYTES and 66 << 20 > INFLATED
    assert preview(beginning(bomb)).kind == "binary"


def test_bytes_are_shown_in_hex_with_the_letters_among_them():
    found = preview(beginning(b"\x00AB\x00<script>" + bytes(9000)))
    assert found.text.splitlines()[0].startswith("00000000  00 41 42 00 3c")
    assert found.text.splitlines()[0].endswith(".AB.<script>....")


def test_only_four_formats_are_pictures():
    assert picture_type(PNG) == "image/png"
    for other in (b"<svg>", b"GIF8", b"BM", b"", b"RIFF1234WAVE"):
        assert picture_type(other) is None
