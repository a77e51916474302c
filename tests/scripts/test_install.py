"""What installs the environment heeds pip's configuration, though uv does not read it."""

from pathlib import Path

import pytest

from scripts.install import _told


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pip is told of a mirror, in its file and in the environment."""
    file = tmp_path / "pip.conf"
    file.write_text(
        "[global]\nindex-url = https://mirror.example/simple\ncert = /etc/of-the-file.pem\n"
        "[install]\nextra-index-url =\n    https://one.example\n    https://two.example\n"
    )
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL", "PIP_TRUSTED_HOST", "PIP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(file))
    monkeypatch.setenv("PIP_CERT", "/etc/of-the-environment.pem")
    monkeypatch.setenv("PIP_FIND_LINKS", "/wheels https://links.example")
    monkeypatch.setenv("HOME", str(tmp_path))


def test_uv_is_told_what_pip_is_told(configured: None):
    told = _told()
    assert told == {
        "UV_DEFAULT_INDEX": "https://mirror.example/simple",
        "UV_INDEX": "https://one.example https://two.example",
        "UV_FIND_LINKS": "/wheels,https://links.example",
        "SSL_CERT_FILE": "/etc/of-the-environment.pem",
    }
