"""What is called different differs; code is found, and archives are read without harm."""

import gzip
import io
import tarfile
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.language.definition_document import iter_steps
from trainyard.language.expressions import resolve_parameters
from trainyard.runs import run_differences
from trainyard.runs.run_differences import (
    build_parameter_fields,
    collect_step_inputs,
    compare_versions,
    make_comparison_key,
    split_code_and_data,
)


def pack_members(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
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
    assert {*found.code} == {*"sagemaker_submit_directory code sm_drivers input-2 payload".split()}
    assert set(found.data) == {"train", "model"}
    assert "OutputDataConfig.S3OutputPath" not in found.paths


def test_only_regular_files_of_an_archive_count_and_none_reaches_the_disk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    link, device = tarfile.TarInfo("link.py"), tarfile.TarInfo("tty")
    link.type, link.linkname, device.type = tarfile.SYMTYPE, "/etc/passwd", tarfile.CHRTYPE
    members = [(tarfile.TarInfo("./a.py"), b"1"), (tarfile.TarInfo("../../evil.py"), b"2")]
    found = run_differences.read_archive(pack_members(*members, (link, b""), (device, b"")))
    assert list(found.files) == ["a.py", "../../evil.py"]
    assert found.fault == "" and list(tmp_path.iterdir()) == []


def test_an_archive_that_unpacks_to_too_much_is_read_no_further(monkeypatch):
    monkeypatch.setattr(run_differences, "UNPACKED", 200_000)
    bomb = pack_members(
        (tarfile.TarInfo("a.py"), b"x"), (tarfile.TarInfo("zeros"), bytes(10_000_000))
    )
    found = run_differences.read_archive(bomb)
    assert list(found.files) == ["a.py"]
    assert "200,000" in found.fault
    monkeypatch.setattr(run_differences, "MOST_FILES", 1)
    two = pack_members((tarfile.TarInfo("a"), b""), (tarfile.TarInfo("b"), b""))
    assert (
        len(run_differences.read_archive(two).files) == 1
        and run_differences.read_archive(two).fault
    )


@given(st.binary(max_size=2_000), st.booleans(), st.data())
def test_no_bytes_break_the_reading_and_a_damaged_archive_says_so(
    content: bytes, zipped: bool, data
):
    archive = gzip.compress(content) if zipped else content
    run_differences.read_archive(archive)
    run_differences.read_archive_file(archive, "a.py")
    whole = bytearray(pack_members((tarfile.TarInfo("a.py"), b"print(1)\n" * 50)))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    found = run_differences.read_archive(bytes(whole))
    assert found.fault or len(found.files) <= 1


LINES = st.lists(st.sampled_from(["a", "b", "", "  c", "\x1b[1m", "<b>"]), max_size=12)


@given(LINES, LINES)
def test_a_diff_holds_the_old_file_and_the_new_one(old: list[str], new: list[str]):
    before, after = "\n".join(old), "\n".join(new)
    with mock.patch.object(run_differences, "CONTEXT", 100):
        found = compare_versions(before.encode(), after.encode())
    if before == after:
        assert found.lines == ()
    else:
        for text, signs in ((before, " -"), (after, " +")):
            lines = [line[1:] for line in found.lines if line[0] in signs]
            assert lines == (text.split("\n") if text else [])


@pytest.mark.parametrize("content", [b"\0", b"\xff\xfe", b"x" * (run_differences.LARGEST_TEXT + 1)])
def test_what_is_no_text_has_no_lines(content: bytes):
    found = compare_versions(content, b"text")
    assert found.lines == () and found.note


def test_a_diff_is_not_longer_than_a_page_and_a_reader_bear(monkeypatch):
    monkeypatch.setattr(run_differences, "MOST_LINES", 3)
    monkeypatch.setattr(run_differences, "LONGEST_LINE", 5)
    found = compare_versions(None, b"123456789\n2\n3\n4")
    assert len(found.lines) == 3 and "2 further lines" in found.note
    assert found.lines[1] == "+1234"
    monkeypatch.setattr(run_differences, "MOST_PAIRS", 10)  # to be lined up
    found = compare_versions(b"same\n1\n2\n3\n4\nend", b"same\n5\n6\n7\n8\nend")
    assert found.lines == () and "too long" in found.note


def test_names_of_the_run_say_nothing():
    mine = {"abc123def456": "{execution id}", "pipelines-abc123def456-Train-x1": "{job name}"}
    yours = {"zzz999yyy888": "{execution id}", "pipelines-zzz999yyy888-Train-q7": "{job name}"}
    for one, other in (
        ("s3://b/abc123def456/ckpt", "s3://b/zzz999yyy888/ckpt"),
        ("job pipelines-abc123def456-Train-x1 died", "job pipelines-zzz999yyy888-Train-q7 died"),
        ("s3://b/p-2026-11-22-21-43-03-123/x", "s3://b/p-2025-01-02-03-04-05-006/x"),
    ):
        assert make_comparison_key(one, mine) == make_comparison_key(other, yours)
    assert make_comparison_key("2026-11-22", mine) != make_comparison_key("2026-11-23", yours)


def _resolve_inputs(document: dict[str, Any], texts: dict[str, str], job: dict[str, Any]):
    step = next(iter_steps(document["Steps"]))
    return collect_step_inputs(step, resolve_parameters(document, texts), job)


def test_a_step_is_told_with_its_runs_values_and_what_others_made_by_name():
    def train(lr: Any, start: Any, uri: Any, place: Any, **more: Any) -> dict[str, Any]:
        source = {"DataSource": {"S3DataSource": {"S3Uri": uri}}}
        return {
            "HyperParameters": {"lr": lr, "from": start},
            "InputDataConfig": [{"ChannelName": "train", **source, **more}],
            "OutputDataConfig": {"S3OutputPath": place},
        }

    place = {
        "Std:Join": {"On": "/", "Values": ["s3://b", {"Get": "Execution.PipelineExecutionId"}]}
    }
    step = {"Name": "Train", "Type": "Training"}
    step["Arguments"] = train(
        {"Get": "Parameters.lr"}, {"Get": "Steps.A.b"}, {"Get": "Steps.Shard.Out"}, place
    )
    lr = {"Name": "lr", "Type": "Float", "DefaultValue": 0.1}
    document = {"Parameters": [lr], "Steps": [step]}
    job = train("0.5", "here", "s3://b/runs/x1/shards", "s3://b/x1", Extra=1)
    found = _resolve_inputs(document, {"lr": "0.5"}, job)
    texts = {path: one.text for path, one in found.fields.items()}
    assert texts["HyperParameters.lr"] == "0.5"
    assert texts["HyperParameters.from"] == "here"
    assert texts["InputDataConfig[train].S3Uri"] == "{Shard.Out}"
    assert texts["OutputDataConfig.S3OutputPath"] == "s3://b/{execution id}"
    assert found.uris["InputDataConfig[train].S3Uri"] == "s3://b/runs/x1/shards"
    before = _resolve_inputs(document, {}, {})
    assert before.fields["HyperParameters.from"].text == "{A.b}"
    assert "InputDataConfig[train].S3Uri" not in before.uris


def test_a_parameter_that_looks_like_a_secret_differs_and_is_hidden():
    one, other = (
        build_parameter_fields({"api_key": text})["api_key"] for text in ("hunter2x", "hunter3x")
    )
    assert make_comparison_key(one.raw, {}) != make_comparison_key(other.raw, {})
    assert "hunter" not in one.text + other.text
