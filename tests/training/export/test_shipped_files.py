"""Shipped files are complete, and exclude what a package manager or an editor put beside them."""

import sys
from pathlib import Path

from tests.conftest import CHECKOUT
from training.export import shipped_files


def test_every_file_that_the_lists_name_is_there():
    named = {*shipped_files.WITHOUT_EFFECT, *shipped_files.STAYING, *shipped_files.EVERY_STEP}
    named |= {room for rooms in shipped_files.ROOMS.values() for room in rooms}
    assert not {name for name in named if not (CHECKOUT / name).exists()}


def test_a_step_that_has_a_job_has_its_rooms_listed():
    assert {path.parent.name for path in CHECKOUT.glob("steps/*/job.py")} == {*shipped_files.ROOMS}


def test_litter_hidden_files_and_linked_folders_stay(tmp_path: Path):
    for name in ("a.py", "deep/b.txt", ".env", ".git/HEAD", "__pycache__/a.pyc", "x.egg-info/PKG"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "link").symlink_to(tmp_path, target_is_directory=True)
    assert [name for name, _ in shipped_files.iter_files(tmp_path)] == ["a.py", "deep/b.txt"]
    found = {name for name, _ in shipped_files.iter_files(tmp_path, hidden=True)}
    assert found == {"a.py", "deep/b.txt", ".env", ".git/HEAD"}


def test_of_an_installed_package_its_neighbours_stay(tmp_path: Path, monkeypatch):
    """Otherwise all of site-packages would be in every artifact."""
    site = tmp_path / "site-packages"
    for name in ("rented_by_me/__init__.py", "rented_by_me/net.py", "numpy_of_somebody/core.py"):
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text("")
    monkeypatch.syspath_prepend(str(site))
    found = [name for name, _ in shipped_files.list_package_files("rented_by_me.net")]
    assert found == ["rented_by_me/__init__.py", "rented_by_me/net.py"]
    del sys.modules["rented_by_me"]
