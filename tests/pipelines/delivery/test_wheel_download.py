"""Wheels are downloaded for another Python by pip itself, from a folder in place of an index."""

import base64
import hashlib
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from pipelines.compile.compilation import Requirements, Wheelhouse
from pipelines.delivery.wheel_download import is_uploaded, refuse_missing_wheels, upload_wheels
from trainyard.common.errors import DefinitionError


def wheel(folder: Path, name: str, version: str, *needs: str, tag: str = "py3-none-any") -> Path:
    """Write a wheel that holds one module."""
    info = f"{name}-{version}.dist-info"
    lines = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
    files = {
        f"{name}.py": f"VERSION = {version!r}\n",
        f"{info}/METADATA": "\n".join([*lines, *(f"Requires-Dist: {n}" for n in needs)]) + "\n",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    path = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        record = ""
        for file, text in files.items():
            archive.writestr(file, text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=")
            record += f"{file},sha256={digest.decode()},{len(text)}\n"
        archive.writestr(f"{info}/RECORD", f"{record}{info}/RECORD,,\n")
    return path


@pytest.fixture
def index(tmp_path: Path, monkeypatch) -> Path:
    """A folder that pip asks in place of an index."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return folder


@pytest.fixture
def s3(emulator, monkeypatch) -> Iterator:
    for name, value in emulator.env.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3")
    client.create_bucket(Bucket="bkt")
    return client


def house(text: str, python: str = "3.12") -> Wheelhouse:
    files = {"requirements.txt": text.encode()}
    return Wheelhouse("bkt", "code/wheels", (Requirements("requirements.txt", files),), (python,))


def read_stored_wheels(s3, house: Wheelhouse) -> dict[str, bytes]:
    found = s3.list_objects_v2(Bucket="bkt", Prefix=f"{house.key}/").get("Contents", ())
    names = [item["Key"].rpartition("/")[2] for item in found]
    return {n: s3.get_object(Bucket="bkt", Key=f"{house.key}/{n}")["Body"].read() for n in names}


def test_dependencies_are_resolved_and_torch_is_the_images(s3, index):
    wheel(index, "happy", "1.0", "torch", "calm>=2")
    wheel(index, "calm", "2.5")
    wheel(index, "torch", "2.13.0", "cuda")
    wheel(index, "cuda", "1.0")
    asked = house("happy\n")
    with pytest.raises(
        DefinitionError, match=r"no wheels at s3://bkt/code/wheels/\S+ yet: first run "
    ):
        refuse_missing_wheels(s3, [asked])
    number, size = upload_wheels(s3, asked, None)
    there = read_stored_wheels(s3, asked)
    assert {*there} == {"happy-1.0-py3-none-any.whl", "calm-2.5-py3-none-any.whl"}
    assert (number, size) == (2, sum(map(len, there.values())))
    refuse_missing_wheels(s3, [asked])
    manifest = json.loads(s3.get_object(Bucket="bkt", Key=asked.manifest)["Body"].read())
    assert manifest["wheels"] == {n: hashlib.sha256(b).hexdigest() for n, b in there.items()}


def test_locked_requirements_are_taken_by_hash_for_the_images_python(s3, index):
    """Markers are those of the job's Python, not of the one that downloads."""
    new = wheel(index, "happy", "1.0", tag="cp314-cp314-manylinux_2_28_x86_64")
    old = wheel(index, "sad", "1.0")
    line = "{}==1.0 ; python_version {} '3.14' --hash=sha256:{}\n"
    digest = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (new, old)]
    text = line.format("happy", ">=", digest[0]) + line.format("sad", "<", digest[1])
    asked = house(text, "3.14")
    upload_wheels(s3, asked, None)
    assert {*read_stored_wheels(s3, asked)} == {new.name}
    other = house(text.replace(digest[0], "0" * 64), "3.14")
    with pytest.raises(DefinitionError, match="pip finds no wheels for Python 3.14: ERROR: THESE"):
        upload_wheels(s3, other, None)
    assert not is_uploaded(s3, other)


def test_a_wheel_for_any_older_glibc_is_taken_and_one_for_another_system_is_not(s3, index):
    """As NVIDIA's are tagged: neither manylinux2014 nor one of the round numbers."""
    path = wheel(index, "happy", "1.0", tag="py3-none-manylinux_2_18_x86_64")
    wheel(index, "sad", "1.0", tag="cp310-cp310-win_amd64")
    asked = house("happy==1.0\n")
    upload_wheels(s3, asked, None)
    assert {*read_stored_wheels(s3, asked)} == {path.name}
    with pytest.raises(DefinitionError, match=r"requirements.txt: pip finds no wheels.*sad"):
        upload_wheels(s3, house("sad==1.0\n"), None)
