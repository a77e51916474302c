"""Build the training image with the engine that is here: make image BASE=python:3.12-slim-bookworm.

python -m scripts.build_image BASE [--tag NAME]

Podman mounts this machine's pip settings and certificates, and the folders that they name, for
the build only, so no layer contains them. With docker, the build uses its own settings.
"""

import argparse
import configparser
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from trainyard.common.errors import EmulatorError
from trainyard.emulator.containers.container_engine import Engine, build_limit_options, find_engine

CHECKOUT = Path(__file__).resolve().parents[1]
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


def read_pip_settings() -> dict[str, str]:
    """Return {name: value} of this machine's pip settings, from files and environment variables."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line)
    return {key.rpartition(".")[2]: value.strip("'") for key, value in pairs}


def iter_mounts(settings: dict[str, str], file: Path) -> Iterator[str]:
    """Write the settings to ``file``; yield the mounts of it and of the paths in the settings."""
    parser = configparser.RawConfigParser()
    parser["global"] = {name: "\n".join(value.split()) for name, value in settings.items()}
    with file.open("w") as stream:
        parser.write(stream)
    yield f"{file}:/etc/pip.conf"
    words = [word for value in settings.values() for word in value.split()]
    # An index on the disk refers to files next to it.
    paths = {Path(w.removeprefix("file://")).parent if "file://" in w else Path(w) for w in words}
    for path in sorted({path for path in paths | {CERTIFICATES} if path.is_absolute()}):
        if path.exists():
            yield f"{path}:{path}"


def build_image(engine: Engine, base: str, tag: str) -> int:
    """Build the Dockerfile's stage ``training``; return the engine's exit status."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["--build-arg", f"BASE={base}", "--target", "training", "--tag", tag]
        options += ["--network", "host", "--file", "containers/training/Dockerfile"]
        if engine.is_podman:
            options += build_limit_options()
            for mount in iter_mounts(read_pip_settings(), Path(folder, "pip.conf")):
                options += ["--volume", f"{mount}:ro"]
        run = [engine.command, "build", *options, "."]
        return subprocess.run(run, check=False, cwd=CHECKOUT).returncode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("base", help="a Python 3.11 or newer with venv, on Debian")
    parser.add_argument("--tag", default="trainyard-training:1")
    arguments = parser.parse_args()
    try:
        engine = find_engine()
    except EmulatorError as error:
        sys.exit(f"error: {error}")
    status = build_image(engine, arguments.base, arguments.tag)
    if status == 0:
        uri = f"123456789012.dkr.ecr.us-east-1.amazonaws.com/{arguments.tag}"
        print(f"{arguments.tag}; a recipe names it: images: {{training: {uri}}}")
    sys.exit(status)


if __name__ == "__main__":
    main()
