"""Folders that several machines manage concurrently, since they share them."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from training.checkpoint.save import clear, make_anew


def test_a_folder_that_another_machine_has_just_made_may_stay(tmp_path: Path, monkeypatch):
    target = tmp_path / "step-00000004"
    target.mkdir()
    with monkeypatch.context() as patched:  # it was not there when this machine looked
        patched.setattr(Path, "is_dir", lambda path: False)
        clear(target)
    assert target.is_dir()


def test_machines_that_share_a_folder_make_place_in_it(tmp_path: Path):
    with ThreadPoolExecutor(8) as machines:
        for _ in machines.map(lambda _: make_anew(tmp_path / "step"), range(400)):
            pass
    assert [*(tmp_path / "step").iterdir()] == []


def test_a_file_or_a_link_in_its_place_goes(tmp_path: Path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there")
    for name in ("file", "link"):
        clear(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
