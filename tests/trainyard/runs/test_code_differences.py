"""Code is found where the SDKs put it, and archives of anybody are read without harm."""

import gzip
import io
import tarfile
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.runs import run_differences
from trainyard.runs.run_differences import diff, split_code_and_data


def packed(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    found = io.BytesIO()
    with tarfile.open(fileobj=found, mode="w:gz") as tar:
        for member, content in members:
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return found.getvalue()


def test_code_and_data_are_told_apart_by_where_the_sdks_put_them():
    found = split_code_and_data(
        {
            "HyperParameters.sagemaker_submit_directory": "s3://b/job/source/sourcedir.tar.gz",
            "StaticHyperParameters.sagemaker_submit_directory": "s3://b/t/source/sourcedir.tar.gz",
            "InputDataConfig[code].S3Uri": "s3://b/c/",
            "InputDataConfig[sm_drivers].S3Uri": "s3://b/d/",
            "InputDataConfig[train].S3Uri": "s3://b/train/",
            "ProcessingInputs[input-2].S3Uri": "s3://b/helper.py",
            "ProcessingInputs[payload].S3Uri": "s3://b/j/source/sourcedir.tar.gz",
            "ProcessingInputs[model].S3Uri": "s3://b/model.tar.gz",
            "OutputDataConfig.S3OutputPath": "s3://b/out",
        }
    )
    assert set(found.code) == {
        "sagemaker_submit_directory",
        "code",
        "sm_drivers",
        "input-2",
        "payload",
    }
    assert set(found.data) == {"train", "model"}
    assert "OutputDataConfig.S3OutputPath" not in found.paths


def test_only_regular_files_of_an_archive_count_and_none_reaches_the_disk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    link, device = tarfile.TarInfo("link.py"), tarfile.TarInfo("tty")
    link.type, link.linkname, device.type = tarfile.SYMTYPE, "/etc/passwd", tarfile.CHRTYPE
    found = run_differences.contents(
        packed(
            (tarfile.TarInfo("./a.py"), b"1"),
            (tarfile.TarInfo("../../evil.py"), b"2"),
            (link, b""),
            (device, b""),
        )
    )
    assert list(found.files) == ["a.py", "../../evil.py"]
    assert found.fault == "" and list(tmp_path.iterdir()) == []


def test_an_archive_that_unpacks_to_too_much_is_read_no_further(monkeypatch):
    monkeypatch.setattr(run_differences, "UNPACKED", 200_000)
    bomb = packed((tarfile.TarInfo("a.py"), b"x"), (tarfile.TarInfo("zeros"), bytes(10_000_000)))
    found = run_differences.contents(bomb)
    assert list(found.files) == ["a.py"]
    assert "200,000" in found.fault
    monkeypatch.setattr(run_differences, "MOST_FILES", 1)
    two = packed((tarfile.TarInfo("a"), b""), (tarfile.TarInfo("b"), b""))
    assert len(run_differences.contents(two).files) == 1 and run_differences.contents(two).fault


@given(st.binary(max_size=2_000), st.booleans())
def test_no_bytes_break_the_reading(content: bytes, in_gzip: bool):
    archive = gzip.compress(content) if in_gzip else content
    run_differences.contents(archive)
    run_differences.file(archive, "a.py")


@given(st.data())
def test_a_damaged_archive_says_so_or_is_read(data):
    whole = bytearray(packed((tarfile.TarInfo("a.py"), b"print(1)\n" * 50)))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    found = run_differences.contents(bytes(whole))
    assert found.fault or len(found.files) <= 1


LINES = st.lists(st.sampled_from(["a", "b", "", "  c", "\x1b[1m", "<b>"]), max_size=12)


@given(LINES, LINES)
def test_a_diff_holds_the_old_file_and_the_new_one(old: list[str], new: list[str]):
    before, after = "\n".join(old), "\n".join(new)
    with mock.patch.object(run_differences, "CONTEXT", 100):
        found = diff(before.encode(), after.encode())
    if before == after:
        assert found.lines == ()
    else:
        for text, signs in ((before, " -"), (after, " +")):
            lines = [line[1:] for line in found.lines if line[0] in signs]
            assert lines == (text.split("\n") if text else [])


@pytest.mark.parametrize("content", [b"\0", b"\xff\xfe", b"x" * (run_differences.LARGEST_TEXT + 1)])
def test_what_is_no_text_has_no_lines(content: bytes):
    found = diff(content, b"text")
    assert found.lines == () and found.note


def test_files_that_have_nothing_in_common_are_not_lined_up(monkeypatch):
    monkeypatch.setattr(run_differences, "MOST_PAIRS", 10)
    found = diff(b"same\n1\n2\n3\n4\nend", b"same\n5\n6\n7\n8\nend")
    assert found.lines == () and "too long" in found.note


def test_a_diff_is_not_longer_than_a_page_bears(monkeypatch):
    monkeypatch.setattr(run_differences, "MOST_LINES", 3)
    monkeypatch.setattr(run_differences, "LONGEST_LINE", 5)
    found = diff(None, b"123456789\n2\n3\n4")
    assert len(found.lines) == 3 and "2 further lines" in found.note
    assert found.lines[1] == "+1234"
