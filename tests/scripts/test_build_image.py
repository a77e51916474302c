"""The training image, built on a base of Debian's packages."""

import configparser
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.build_image import iter_mounts
from tests.conftest import CHECKOUT
from tests.container_images import make_base, needs_engine
from trainyard.emulator.containers.container_engine import (
    build_limit_options,
    find_engine,
    select_client_variables,
)

TAG = "trainyard-tests/training:1"


def test_a_build_gets_pips_settings_and_what_they_name(tmp_path: Path) -> None:
    index, wheels = tmp_path / "index", tmp_path / "wheels"
    for folder in (index / "simple", wheels):
        folder.mkdir(parents=True)
    named = {
        "find-links": f"{wheels} {tmp_path}/gone",
        "extra-index-url": f"https://example.com/simple file://{index}/simple",
    }
    found = list(iter_mounts(named, tmp_path / "pip.conf"))
    assert found[0] == f"{tmp_path}/pip.conf:/etc/pip.conf"
    assert {f"{wheels}:{wheels}", f"{index}:{index}"} <= set(found)
    assert not any("gone" in mount or "example.com" in mount for mount in found)
    parser = configparser.RawConfigParser()
    parser.read(tmp_path / "pip.conf")
    assert parser["global"]["extra-index-url"].split() == named["extra-index-url"].split()


@pytest.mark.sweep  # torch and its like: minutes, and 2 GB
@needs_engine
@pytest.mark.timeout(1800)
def test_the_training_image_holds_what_jobs_import_and_no_compiler() -> None:
    base = make_base()
    run = [sys.executable, "-m", "scripts.build_image", base, "--tag", TAG]
    done = subprocess.run(run, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    engine = find_engine()
    limits = build_limit_options() if engine.is_podman else []
    start = [engine.command, "run", "--rm", "--network", "none", *limits, TAG]
    imports = "import numpy, pyarrow, safetensors, torch, torch.distributed"
    subprocess.run([*start, "python", "-c", imports], check=True, env=select_client_variables())
    look = "command -v cc gcc g++ clang nvcc"
    assert subprocess.run(
        [*start, "sh", "-c", look], check=False, env=select_client_variables()
    ).returncode
