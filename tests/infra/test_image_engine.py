"""infra/buildspec/image.yml with a real container engine and a real registry on this machine.

Theirs are build, run, login and push, and the digests. Three things are not the engine's own:
buildx is asked of the registry (podman has none), a build gets the network and pip's settings of
this machine, and what was pushed is told to moto, whose ECR is no registry.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer

from scripts.build_image import iter_mounts, read_pip_settings
from tests.container_images import make_base, needs_engine
from trainyard.emulator.containers.container_engine import (
    build_limit_options,
    find_engine,
    select_client_variables,
)

REGISTRY = shutil.which("docker-registry")
NAME = "trainyard-training"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
pytestmark = [
    pytest.mark.sweep,  # torch and its like: minutes, and 2 GB
    needs_engine,
    pytest.mark.skipif(not REGISTRY, reason="no docker-registry on PATH: apt install it"),
    pytest.mark.timeout(1800),
]
CLIENT = """#!{python}
import json, os, subprocess, sys, urllib.request
engine, build, run = json.loads({settings!r})

def find_manifest(image):
    host, _, name = image.partition("/")
    repository, _, tag = name.partition(":")
    url = f"http://{{host}}/v2/{{repository}}/manifests/{{tag}}"
    request = urllib.request.Request(url, headers={{"Accept": {manifest!r}}})
    with urllib.request.urlopen(request, timeout=20) as answer:
        return repository, tag, answer.headers["Docker-Content-Digest"], answer.read().decode()

match sys.argv[1:]:
    case ["buildx", "imagetools", "inspect", image, *_]:
        print(find_manifest(image)[2])
    case ["build", *rest]:
        os.execv(engine, [engine, "build", *build, *rest])
    case ["run", *rest]:
        os.execv(engine, [engine, "run", *run, *rest])
    case ["push", image]:
        subprocess.run([engine, "push", image], check=True)
        repository, tag, digest, manifest = find_manifest(image)
        names = ["--repository-name", repository]
        put = ["aws", "ecr", "put-image", *names, "--image-tag", tag, "--image-digest", digest]
        subprocess.run([*put, "--image-manifest", manifest], check=True)
        scan = ["aws", "ecr", "start-image-scan", *names, "--image-id", f"imageTag={{tag}}"]
        subprocess.run(scan, check=True)
    case rest:
        os.execv(engine, [engine, *rest])
"""


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    """Host and port of a registry on this machine."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    config = {
        "version": 0.1,
        "storage": {"filesystem": {"rootdirectory": str(tmp_path / "images")}},
        "http": {"addr": address},
    }
    (tmp_path / "registry.yml").write_text(json.dumps(config))
    serve = [str(REGISTRY), "serve", str(tmp_path / "registry.yml")]
    with subprocess.Popen(serve, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        yield address
        process.terminate()
    images = find_engine().call("images", "--format", "{{.Repository}}:{{.Tag}}").stdout.split()
    find_engine().call("rmi", *[image for image in images if image.startswith(address)])


@pytest.fixture
def ecr() -> Iterator:
    server = ThreadedMotoServer("127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "us-east-1"}
    client = boto3.client("ecr", endpoint_url=f"http://{host}:{port}", **keys)
    client.create_repository(repositoryName=NAME)
    yield client
    server.stop()


def make_client(folder: Path) -> Path:
    """Write ``docker``, which starts the engine; return its folder."""
    engine = find_engine()
    limits = build_limit_options() if engine.is_podman else []
    options = ["--network", "host", *limits]
    if engine.is_podman:
        for mount in iter_mounts(read_pip_settings(), folder / "pip.conf"):
            options += ["--volume", f"{mount}:ro"]
    text = json.dumps([engine.command, options, limits])
    client = folder / "client/docker"
    client.parent.mkdir()
    client.write_text(CLIENT.format(python=sys.executable, settings=text, manifest=MANIFEST))
    client.chmod(0o755)
    return client.parent


def test_the_image_is_built_pushed_and_named_by_the_registrys_digest(
    codebuild: Callable, registry: str, ecr, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, base = find_engine(), make_base()
    open_registry = f'[[registry]]\nlocation = "{registry}"\ninsecure = true\n'
    (tmp_path / "registries.conf").write_text(open_registry)
    own = {
        "CONTAINERS_REGISTRIES_CONF": str(tmp_path / "registries.conf"),
        "REGISTRY_AUTH_FILE": str(tmp_path / "auth.json"),
    }
    (tmp_path / "auth.json").write_text("{}")
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    for arguments in (("tag", base, f"{registry}/base:1"), ("push", f"{registry}/base:1")):
        done = engine.call(*arguments)
        assert done.returncode == 0, done.stderr
    built = codebuild(
        "infra/buildspec/image.yml",
        seconds=1500,
        PATH=f"{make_client(tmp_path)}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        BASE_TAG=f"{registry}/base:1",
        REPOSITORY_URI=f"{registry}/{NAME}",
        CODEBUILD_BUILD_NUMBER="1",
        AWS_ENDPOINT_URL_ECR=ecr.meta.endpoint_url,
        AWS_DEFAULT_REGION="us-east-1",
        **{name: value for name, value in select_client_variables().items() if name in own},
    )
    assert built.status == 0, built.output[-3000:]
    [image] = [line.removeprefix("IMAGE=") for line in built.exported]
    digest = image.partition("@")[2]
    manifest = json.loads(fetch(f"http://{registry}/v2/{NAME}/manifests/{digest}"))
    settings_url = f"http://{registry}/v2/{NAME}/blobs/{manifest['config']['digest']}"
    labels = json.loads(fetch(settings_url))["config"]["Labels"]
    assert labels["org.opencontainers.image.base.digest"] in built.output
    assert f"images: {{training: {image}}}" in built.output


def fetch(url: str) -> bytes:
    request = urllib.request.Request(url, headers={"Accept": MANIFEST})
    with urllib.request.urlopen(request, timeout=20) as answer:
        return answer.read()
