"""An archive's files come out where they belong, and nowhere else."""

import io
import tarfile
from pathlib import Path

import pytest

from tests.conftest import CHECKOUT
from trainyard.common.safe_unpack import unpack_tar


def member(name: str, content: bytes | None = None, link: str = "", **fields) -> tuple:
    """What ``archive`` takes: a file with its content, else what ``fields`` say."""
    entry = tarfile.TarInfo(name)
    entry.linkname, entry.size = link, len(content or b"")
    for field, value in fields.items():
        setattr(entry, field, value)
    return entry, io.BytesIO(content) if content is not None else None


def archive(*members: tuple) -> tarfile.TarFile:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as tar:
        for one in members:
            tar.addfile(*one)
    file.seek(0)
    return tarfile.open(fileobj=file)


def link(name: str, target: str, type: bytes = tarfile.SYMTYPE) -> tuple:
    return member(name, link=target, type=type)


def test_files_folders_links_and_executable_bits_come_out(tmp_path: Path):
    made = archive(
        link("latest", "versions/2/weights"),  # before what it names
        member("versions", type=tarfile.DIRTYPE),
        member("./versions/2/weights", b"2", mode=0o400),
        member("/bin/run", b"old"),
        member("/bin/run", b"#!", mode=0o6755),
        link("versions/2/again", "../../latest"),
        link("hard", "bin/run", tarfile.LNKTYPE),
        link("newest", "versions/2"),
    )
    unpack_tar(made, tmp_path)
    found = {str(p.relative_to(tmp_path)): p for p in tmp_path.rglob("*") if p.is_file()}
    assert {name: path.read_bytes() for name, path in found.items()} == {
        "latest": b"2",
        "versions/2/weights": b"2",
        "versions/2/again": b"2",
        "bin/run": b"#!",
        "hard": b"#!",
        "newest/weights": b"2",
        "newest/again": b"2",
    }
    assert not any(path.is_symlink() for path in found.values())
    assert found["bin/run"].stat().st_mode & 0o7100 == 0o100
    assert found["latest"].stat().st_mode & 0o7700 == 0o600


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ([member("../out", b"")], "outside"),
        ([member("a/../../out", b"")], "outside"),
        ([link("a", "/etc/passwd")], "outside"),
        ([link("a", "../out"), member("a/b", b"")], "outside"),
        ([link("a", "out", tarfile.LNKTYPE)], "not in the archive"),
        ([link("a", "b"), link("b", "a")], "not in the archive"),
        ([link("a", "."), member("a/b", b"")], "not in the archive"),
        ([member("a", type=tarfile.FIFOTYPE)], "pipe"),
        ([member("a", type=tarfile.CHRTYPE)], "device"),
        ([member("a", b""), member("a/b", b"")], "a file and a folder"),
        ([member("a/b", b""), member("a", b"")], "a file and a folder"),
    ],
    ids="up around absolute above hard loop folder pipe device under over".split(),
)
def test_what_does_not_belong_is_refused(tmp_path: Path, members: list, said: str):
    assert_unpack_refused(tmp_path, members, said)


def assert_unpack_refused(tmp_path: Path, members: list, said: str | None = None) -> None:
    """Assert that the archive is refused, and that nothing came out beside its folder."""
    folder = tmp_path / "into"
    folder.mkdir()
    with pytest.raises(tarfile.TarError, match=said):
        unpack_tar(archive(*members), folder)
    assert [*tmp_path.iterdir()] == [folder]
    assert not any(path.is_symlink() for path in folder.rglob("*"))


def test_a_link_that_a_path_too_long_hides_leads_nowhere(tmp_path: Path):
    """The way of CVE-2025-4517: links until a path is too long to be resolved, then one upwards."""
    deep, step = "", "d" * 247
    members = []
    for letter in "abcdefghijklmnop":
        members += [member(f"{deep}{step}", type=tarfile.DIRTYPE), link(f"{deep}{letter}", step)]
        deep += f"{letter}/"
    members += [
        link(f"{deep}{'l' * 254}", "../" * 16),
        link("escape", f"{deep}{'l' * 254}/../../out"),
        link("written", "escape", tarfile.LNKTYPE),
        member("written", b"theirs"),
    ]
    assert_unpack_refused(tmp_path, members)


def test_nothing_of_ours_unpacks_a_tar_in_another_way():
    rooms = ("trainyard", "training", "steps", "pipelines", "conditions")
    texts = {path: path.read_text() for room in rooms for path in (CHECKOUT / room).rglob("*.py")}
    found = [path for path, text in texts.items() if "tarfile" in text and ".extractall(" in text]
    assert found == []


@pytest.mark.parametrize("torn", [100, 511])
def test_an_archive_that_ends_inside_a_header_is_cut_off(tmp_path: Path, torn: int):
    """``tarfile`` takes such an end for the archive's own, and the files after it for absent."""
    place = tmp_path / "torn.tar"
    with tarfile.open(place, "w", format=tarfile.USTAR_FORMAT) as tar:
        for name in ("a", "b"):
            (tmp_path / name).write_text(name)
            tar.add(tmp_path / name, name)
    place.write_bytes(place.read_bytes()[: 1024 + torn])  # a's header and block, a torn header
    with tarfile.open(place) as tar, pytest.raises(tarfile.ReadError, match="is cut off"):
        unpack_tar(tar, tmp_path / "out")
