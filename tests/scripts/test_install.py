"""The installer heeds pip's configuration, which uv does not read, and runs nothing unhashed."""

import hashlib
import io
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from scripts import install
from scripts.install import make_uv_variables
from tests.scripts.wheels import files, wheel


@pytest.fixture(autouse=True)
def asked_anew():
    install.make_uv_variables.cache_clear()
    yield
    install.make_uv_variables.cache_clear()


def test_uv_is_told_what_pip_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A mirror in pip's file, and what is in the environment."""
    file = tmp_path / "pip.conf"
    file.write_text(
        "[global]\nindex-url = https://mirror.example/simple\ncert = /etc/of-the-file.pem\n"
        "[install]\nextra-index-url =\n    https://one.example\n    https://two.example\n"
    )
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL", "PIP_TRUSTED_HOST", "PIP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    given = {"PIP_CERT": "/etc/env.pem", "PIP_FIND_LINKS": "/wheels https://links.example"}
    for name, value in (given | {"PIP_CONFIG_FILE": str(file), "HOME": str(tmp_path)}).items():
        monkeypatch.setenv(name, value)
    assert make_uv_variables() == {
        "UV_DEFAULT_INDEX": "https://mirror.example/simple",
        "UV_INDEX": "https://one.example https://two.example",
        "UV_FIND_LINKS": "/wheels,https://links.example",
        "SSL_CERT_FILE": "/etc/env.pem",
    }


BACKEND = """
import os, pathlib, zipfile
def build_wheel(folder, settings=None, metadata=None):
    {code}
    with zipfile.ZipFile(os.path.join(folder, {wheel!r}), "w") as made:
        for name, text in {files!r}.items():
            made.writestr(name, text)
    return {wheel!r}
"""


def sdist(folder: Path, name: str, version: str, requires: list[str], code: str = "pass") -> str:
    """Write an sdist that runs ``code`` when it is built; its hash."""
    made = f"{name}-{version}-py3-none-any.whl"
    backend = BACKEND.format(code=code, wheel=made, files=files(name, version))
    system = f'[build-system]\nrequires = {requires}\nbuild-backend = "b"\nbackend-path = ["."]\n'
    path = folder / f"{name}-{version}.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for member, text in (
            ("pyproject.toml", system),
            ("b.py", backend),
            ("PKG-INFO", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"),
        ):
            entry = tarfile.TarInfo(f"{name}-{version}/{member}")
            entry.size = len(text.encode())
            tar.addfile(entry, io.BytesIO(text.encode()))
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all that pip's configuration leads to."""
    folder = tmp_path / "links"
    folder.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def lock(path: Path, **pinned: str) -> Path:
    """A lock of packages: name → hash; all at version 1.0."""
    lines = (f"{name}==1.0 \\\n    --hash=sha256:{value}\n" for name, value in pinned.items())
    path.write_text("".join(lines))
    return path


def test_an_sdist_that_outranks_the_wheel_does_not_run(tmp_path: Path, links: Path):
    ran = tmp_path / "ran"
    hashed = wheel(links, "torch", "1.0")
    sdist(links, "torch", "1.0+zzz", [], f"pathlib.Path({str(ran)!r}).touch()")
    torch = lock(tmp_path / "torch.txt", torch=hashed)
    chosen = install._download_wheel(torch, tmp_path / "into")
    assert chosen.name == "torch-1.0-py3-none-any.whl" and not ran.exists()


def test_an_sdist_is_built_with_the_lock_s_setuptools(tmp_path: Path, links: Path, monkeypatch):
    """A newer one lies there that no lock names; isolated builds take it, and run it."""
    ran = tmp_path / "ran"
    hashes = {
        "setuptools": wheel(links, "setuptools", "1.0", setuptools=""),
        "odd": sdist(links, "odd", "1.0", ["setuptools"], "import setuptools"),
    }
    evil = f"import pathlib; pathlib.Path({str(ran)!r}).touch()"
    wheel(links, "setuptools", "9999.0", setuptools=evil)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    (tmp_path / "env/bin/uv").symlink_to(Path(sys.executable).with_name("uv"))
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"file://{tmp_path}/none")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    install.make_uv_variables()  # which asks the pip of this environment
    monkeypatch.setattr(sys, "executable", str(tmp_path / "env/bin/python"))
    install._install_lock(lock(tmp_path / "lock.txt", **hashes))
    assert [*tmp_path.glob("env/lib/*/site-packages/odd-1.0.dist-info")] and not ran.exists()
