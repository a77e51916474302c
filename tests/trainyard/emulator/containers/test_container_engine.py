"""The container engine: what is said where there is none, or none that works."""

import os
import stat
from pathlib import Path

import pytest

from tests.conftest import call_module
from trainyard.common.errors import EmulatorError
from trainyard.emulator.containers.container_engine import (
    VARIABLE,
    find_engine,
    list_local_names,
    read_container_mode,
    select_client_variables,
    use_container_mode,
)
from trainyard.emulator.sagemaker.jobs.container_images import (
    explain_unusable_image,
    runs_in_engine,
)

AWS = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.6.0-cpu-py312"


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Returns a function that makes a program the only one on PATH; without it PATH is empty."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(VARIABLE, raising=False)
    find_engine.cache_clear()

    def make(name: str, script: str) -> None:
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    yield make
    find_engine.cache_clear()


def test_without_an_engine_the_refusal_says_how_to_install_one(programs) -> None:
    with pytest.raises(EmulatorError, match="no container engine on PATH: install"):
        find_engine()
    assert "apt install podman" in explain_unusable_image("me/own:1")
    assert explain_unusable_image(AWS) is None


DENIED = "permission denied while trying to connect to the Docker daemon socket"


def test_an_engine_that_may_not_be_used_is_named_with_the_fix(programs) -> None:
    programs("docker", f'[ "$1" = --version ] && exit 0; echo "{DENIED}" >&2; exit 1')
    with pytest.raises(EmulatorError) as error:
        find_engine()
    assert DENIED in str(error.value) and "usermod -aG docker" in str(error.value)


def test_an_engine_that_fails_later_does_not_count_as_a_missing_image(programs) -> None:
    ready = '[ "$1" = --version ] || [ "$1" = ps ] && exit 0'
    programs("docker", f'{ready}; echo "Error: no space left on device" >&2; exit 1')
    assert "no space left on device" in explain_unusable_image("me/own:1")
    assert "build -t" not in explain_unusable_image("me/own:1")


def test_the_mode_decides_which_images_run_in_the_engine(monkeypatch) -> None:
    monkeypatch.setenv(VARIABLE, "auto")
    assert runs_in_engine("me/own:1") and not runs_in_engine(AWS)
    monkeypatch.setenv(VARIABLE, "never")
    assert not runs_in_engine("me/own:1")
    assert "container" not in explain_unusable_image("me/own:1")
    monkeypatch.setenv(VARIABLE, "always")
    assert runs_in_engine("me/own:1") and runs_in_engine(AWS)
    monkeypatch.setenv(VARIABLE, "sometimes")
    with pytest.raises(EmulatorError, match="sometimes: expected auto, always or never"):
        read_container_mode()


def test_a_mode_ends_with_its_block(monkeypatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with use_container_mode("never"):
        assert read_container_mode() == "never"
    assert read_container_mode() == "auto" and VARIABLE not in os.environ


def test_always_needs_an_engine_before_anything_starts(programs, tmp_path: Path) -> None:
    run = ["--state", str(tmp_path / "aws"), "--containers", "always", "--", "true"]
    done = call_module("trainyard.commands.run", *run)
    assert done.returncode not in (0, 127)
    assert "there is no container engine on PATH" in done.stderr


def test_the_local_names_of_a_uri() -> None:
    uri = "123456789012.dkr.ecr.us-east-1.amazonaws.com/team/own:1"
    assert list_local_names(uri) == [uri, "team/own:1"]
    assert list_local_names("localhost:5000/a/b:2") == ["localhost:5000/a/b:2", "a/b:2"]
    assert list_local_names("team/own:1") == ["team/own:1"]


def test_the_engine_gets_no_keys_of_aws(monkeypatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("DOCKER_HOST", "unix:///run/docker.sock")
    assert (
        select_client_variables()["DOCKER_HOST"]
        and "AWS_SECRET_ACCESS_KEY" not in select_client_variables()
    )
