"""Images for tests of containers, made once on a machine: a base of Debian's packages, and one that
trains and serves.
"""

import fcntl
import subprocess
import tempfile
from pathlib import Path

import pytest

from trainyard.common.errors import EmulatorError
from trainyard.emulator.containers.container_engine import find_engine, select_client_variables

BASE = "trainyard-tests/base:bookworm"
OWN = "trainyard-tests/own:1"
URI = f"123456789012.dkr.ecr.us-east-1.amazonaws.com/{OWN}"
PACKAGES = "python3,python3-venv,ca-certificates"
MIRROR = "http://deb.debian.org/debian"
PROGRAMS = Path(__file__).parent / "own_image"


try:
    find_engine()
    WHY = ""
except EmulatorError as error:
    WHY = str(error)
needs_engine = pytest.mark.skipif(bool(WHY), reason=WHY)


def build(folder: Path, name: str, *options: str) -> str:
    """Build the folder's Dockerfile; return the image's name."""
    engine = find_engine()
    run = [engine.command, "build", "--quiet", *options, "--tag", name, str(folder)]
    done = subprocess.run(
        run, capture_output=True, text=True, env=select_client_variables(), check=False
    )
    assert done.returncode == 0, done.stderr
    return name


def make_base() -> str:
    """Return the base image's name; make it first if this machine does not have it: a minute."""
    engine = find_engine()
    with (Path(tempfile.gettempdir()) / "trainyard-tests-base.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one of pytest's workers makes it
        if engine.find_image(BASE) is None:
            with tempfile.TemporaryDirectory() as folder:
                run = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}"]
                subprocess.run([*run, "bookworm", folder, MIRROR], check=True, capture_output=True)
                tar = subprocess.Popen(["tar", "-C", folder, "-c", "."], stdout=subprocess.PIPE)
                load = [engine.command, "import", "-", BASE]
                subprocess.run(load, stdin=tar.stdout, check=True, env=select_client_variables())
                assert tar.wait() == 0
        if engine.find_image(OWN) is None:
            build(PROGRAMS, OWN, "--build-arg", f"BASE={BASE}")
    return BASE
