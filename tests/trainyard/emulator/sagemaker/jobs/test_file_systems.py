"""What jobs see of file systems: the folders that stand in for them."""

from pathlib import Path
from typing import Any

import botocore.exceptions
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainyard.emulator.harness import Cloud, training
from trainyard.emulator.containers.isolation import VARIABLE as ISOLATION
from trainyard.emulator.containers.isolation import explain_missing_namespaces
from trainyard.emulator.sagemaker.jobs.training_job import VARIABLE, StandIn, find_stand_in

pytestmark = pytest.mark.long

SYSTEM = "fs-0123456789abcdef0"
isolated = pytest.mark.skipif(
    explain_missing_namespaces() is not None, reason=f"namespaces: {explain_missing_namespaces()}"
)


def source(kind: str = "EFS", directory: str = "/data", **more: str) -> dict[str, str]:
    named = {"FileSystemId": SYSTEM, "FileSystemType": kind, "DirectoryPath": directory}
    return {**named, "FileSystemAccessMode": "ro", **more}


def make_file_system_channels(*systems: dict[str, str]) -> dict[str, Any]:
    sources = [{"FileSystemDataSource": system} for system in systems]
    channels = enumerate(sources)
    return {"InputDataConfig": [{"ChannelName": f"c{n}", "DataSource": s} for n, s in channels]}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file system's content: /data/a/x, /data/y."""
    (tmp_path / "data/a").mkdir(parents=True)
    (tmp_path / "data/a/x").write_text("deep\n")
    (tmp_path / "data/y").write_text("flat\n")
    monkeypatch.setenv(VARIABLE, f"{SYSTEM}={tmp_path}")
    return tmp_path


@pytest.mark.parametrize(
    ("kind", "directory", "found"),
    [("EFS", "/", ""), ("EFS", "/data/a/", "data/a"), ("EFS", "/../data/../../data/a", "data/a"),
     ("FSxLustre", "/mount/data", "data"), ("FSxLustre", "/mount", "")],
)  # fmt: skip
def test_a_folder_is_found_below_the_root_or_the_mount_name(folder, kind, directory, found):
    place = str((folder / found).resolve())
    assert find_stand_in(source(kind, directory)) == StandIn(place, writable=False)


def test_the_nearest_folder_above_stands_in(folder, monkeypatch):
    mirror = f"{SYSTEM}/mount/mirror=s3://bkt/root/"
    monkeypatch.setenv(VARIABLE, f"{SYSTEM}={folder},{mirror},fs-0a1b2c3d=/")
    assert (
        find_stand_in(source("FSxLustre", "/mount/mirror/runs/1")).location
        == "s3://bkt/root/runs/1"
    )
    assert find_stand_in(source("FSxLustre", "/mount/data")).location == str(folder / "data")


@pytest.mark.parametrize(
    ("value", "system", "said"),
    [
        ("", source(), f"EFS file system {SYSTEM} does not exist on this machine: set {VARIABLE}="),
        ("fs-0a1b2c3d=/tmp", source(), f"file system {SYSTEM} does not exist on this machine"),
        (f"{SYSTEM}={{}}", source(directory="/date"), "/date does not exist: "),
        (f"{SYSTEM}={{}}", source(directory="/data/y"), "y is not a folder of this machine"),
        (f"{SYSTEM}/other={{}}", source(), f"has {SYSTEM}/other"),
        (f"{SYSTEM}", source(), f"'{SYSTEM}': expected"),
        (f"{SYSTEM}=here", source(), "here': expected"),
        (f"{SYSTEM}={{}}?ms=2", source(), "?ms=2/data is not a folder of this machine"),
        (f"{SYSTEM}=s3://bkt", source(FileSystemAccessMode="rw"), "use ro"),
    ],
)
def test_what_cannot_be_mounted_is_refused_by_its_name(
    aws, folder, monkeypatch, value, system, said
):
    monkeypatch.setenv(VARIABLE, value.format(folder))
    with pytest.raises(botocore.exceptions.ClientError) as refused:
        aws.train("refused", "true", **make_file_system_channels(system))
    assert "channel 'c0': " in str(refused.value) and said in str(refused.value)


@given(st.lists(st.sampled_from(["data", "a", "..", ".", ""]), max_size=6))
def test_no_path_leads_out_of_the_folder(parts):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, f"{SYSTEM}=s3://bkt/root")
        found = find_stand_in(source(directory="/" + "/".join(parts))).location
    assert found.startswith("s3://bkt/root/") and ".." not in found


@isolated
def test_two_nodes_read_a_folder_and_can_write_only_where_the_request_says_so(aws: Cloud, folder):
    script = "cd /opt/ml/input/data; cat c0/a/x; echo mine > c0/z || echo refused; echo ok > c1/z"
    systems = make_file_system_channels(
        source(), source(directory="/data/a", FileSystemAccessMode="rw")
    )
    done = aws.train("two", "", **training(script, nodes=2), **systems)
    assert done["TrainingJobStatus"] == "Completed"
    for node in ("algo-1", "algo-2"):
        log = aws.log("Training", "two", node)
        assert log[0] == "deep" and log[-1] == "refused"
    assert (folder / "data/a/z").read_text() == "ok\n" and not (folder / "data/z").exists()


def test_an_associated_bucket_is_what_the_job_sees(aws: Cloud, monkeypatch):
    aws.put("root/runs/1/x", "from the bucket")
    monkeypatch.setenv(VARIABLE, f"{SYSTEM}/mount/mirror=s3://bkt/root")
    script = "cat /opt/ml/input/data/c0/x; touch /opt/ml/input/data/c0/z || true"
    lustre = source("FSxLustre", "/mount/mirror/runs/1")
    aws.train("mirrored", "", **training(script, nodes=2), **make_file_system_channels(lustre))
    assert "from the bucket" in "".join(aws.log("Training", "mirrored", "algo-2"))
    assert aws.keys("root/") == ["root/runs/1/x"]
    gone = aws.train(
        "gone", "true", **make_file_system_channels(source("FSxLustre", "/mount/mirror/runs/2"))
    )
    assert "No S3 objects found" in gone["FailureReason"]


def test_without_namespaces_a_folder_is_linked(aws, folder, monkeypatch):
    monkeypatch.setenv(ISOLATION, "relocate")
    done = aws.train("linked", "cat /opt/ml/input/data/c0/y", **make_file_system_channels(source()))
    assert done["TrainingJobStatus"] == "Completed" and aws.log("Training", "linked") == ["flat"]
