"""The container engine, podman or docker, used by the command line that both have.

Find an engine that works, look for and pull images, and remove what a killed emulator left behind.
"""

import functools
import logging
import os
import platform
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast, get_args

from trainyard.common.errors import EmulatorError

Mode = Literal["auto", "always", "never"]
VARIABLE = "TRAINYARD_EMULATOR_CONTAINERS"
"""Environment variable with the mode: ``auto`` (the engine runs only images that this Python cannot
replace), ``always`` or ``never``.
"""
PROGRAMS = ("docker", "podman")
LABEL = "trainyard.state"
"""Label of the emulator's containers and networks. Its value is the state directory."""
MARK = "containers"
"""Name of a file that a state directory contains if containers were started for it."""
SETTINGS = ("PATH", "HOME", "USER", "LANG", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR")
PREFIXES = ("CONTAINER", "DOCKER_", "XDG_", "REGISTRY_")
PID_MAX = Path("/proc/sys/kernel/pid_max")
REGISTRY_PATIENCE, PULL_PATIENCE = 20.0, 3600.0  # maximum seconds
log = logging.getLogger(__name__)
_MISSING = ("no such image", "image not known")
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True)
class Image:
    """An image that the engine has. ``name`` is its name in the engine. ``user`` is empty for
    root.
    """

    name: str
    digest: str
    architecture: str
    user: str


@dataclass(frozen=True, slots=True)
class Engine:
    """A container engine that works. ``command`` is the path of its program."""

    command: str
    is_podman: bool

    @property
    def name(self) -> str:
        return Path(self.command).name

    def call(
        self, *arguments: str, seconds: float | None = 120
    ) -> subprocess.CompletedProcess[str]:
        """Run the engine's command line. Raises :class:`EmulatorError` if it takes more than
        ``seconds``.
        """
        try:
            return subprocess.run(
                [self.command, *arguments],
                capture_output=True,
                text=True,
                env=select_client_variables(),
                timeout=seconds,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired:
            call_name = " ".join(arguments[:2])
            raise EmulatorError(
                f"{self.name} {call_name} did not answer within {seconds:g} s"
            ) from None

    def find_image(self, uri: str) -> Image | None:
        """Return the engine's image for the URI: the one with that name, else the one with its
        repository and tag but without the registry. Return None if it has neither.

        Raises :class:`EmulatorError` if the engine fails.
        """
        form = "{{.Id}}|{{.Architecture}}|{{.Config.User}}"
        own, *built = list_local_names(uri)
        if self.is_podman:  # a short name would also match images of other registries
            built = [f"localhost/{name}" for name in built]
        for name in (own, *built):
            result = self.call("image", "inspect", "--format", form, "--", name)
            if result.returncode == 0:
                digest, architecture, user = result.stdout.strip().split("|")
                digest = f"sha256:{digest.removeprefix('sha256:')}"
                return Image(name, digest, architecture, user)
            if not any(text in result.stderr.lower() for text in _MISSING):
                raise EmulatorError(
                    f"{self.name} cannot tell whether it has {name}: {extract_error_line(result)}"
                )
        return None

    def explain_missing_image(self, uri: str) -> str | None:
        """Return why the image cannot run here and how to fix it. Return None if the engine has it,
        or if it is in a registry that the engine can reach.
        """
        if image := self.find_image(uri):
            own = _MACHINES.get(platform.machine(), platform.machine())
            if image.architecture in (own, "") or _is_emulated(image.architecture):
                return None
            return (
                f"image {image.name} is for {image.architecture}, this machine is {own}: build it "
                f"with {self.name} build --platform linux/{own}"
            )
        names = list_local_names(uri)
        build = f"{self.name} build -t {names[-1]} ."
        if len(names) == 1:
            return f"{self.name} has no image {uri}, whose name has no registry: {build}"
        result = self.call("manifest", "inspect", "--", uri, seconds=REGISTRY_PATIENCE)
        if result.returncode == 0:
            return None
        return (
            f"{self.name} has no image {' or '.join(names)}, and none was found in a registry "
            f"({extract_error_line(result).rpartition(': ')[2]}): {build} or, logged in there, "
            f"{self.name} pull {uri}"
        )

    def pull(self, uri: str) -> Image:
        """Return the image, pulled from its registry if the engine does not have it. Raises
        :class:`EmulatorError` if that fails.
        """
        if image := self.find_image(uri):
            return image
        result = self.call("pull", "--quiet", "--", uri, seconds=PULL_PATIENCE)
        image = self.find_image(uri) if result.returncode == 0 else None
        if not image:
            raise EmulatorError(f"{self.name} pull {uri}: {extract_error_line(result)}")
        return image

    @property
    def removal_command(self) -> list[str]:
        """Command that removes containers, running or not. The containers' names must be
        appended.
        """
        # Without ``-t 0``, podman first sends SIGTERM and waits ten seconds. docker kills at once.
        at_once = ["-t", "0"] if self.is_podman else []
        return [self.command, "rm", "--force", "--volumes", *at_once]


def select_client_variables() -> dict[str, str]:
    """Return the part of this process's environment that the engine's client needs. It contains no
    AWS keys.
    """
    return {k: v for k, v in os.environ.items() if k in SETTINGS or k.startswith(PREFIXES)}


def build_limit_options() -> list[str]:
    """Return podman's options that set limits no higher than those of this process. Without
    CAP_SYS_RESOURCE, podman's own defaults are refused (``error setting rlimit``).
    """
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    processes = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    maximum = int(PID_MAX.read_text())
    processes = maximum if processes == resource.RLIM_INFINITY else min(processes, maximum)
    return [f"--ulimit=nofile={files}:{files}", f"--ulimit=nproc={processes}:{processes}"]


def extract_error_line(result: subprocess.CompletedProcess[str]) -> str:
    """Return the last line of the engine's error output."""
    lines = [line.strip() for line in result.stderr.splitlines() if line.strip()]
    return lines[-1].removeprefix("Error: ") if lines else f"exit status {result.returncode}"


def list_local_names(uri: str) -> list[str]:
    """Return the names that an image of the URI may have in the engine: the URI itself, and the
    name under which it is built, such as ``my-image:1`` for
    ``123456789012.dkr.ecr.us-east-1.amazonaws.com/my-image:1``.
    """
    registry, slash, name = uri.partition("/")
    return [uri, name] if slash and ("." in registry or ":" in registry) else [uri]


def read_container_mode() -> Mode:
    """Return the mode in the variable VARIABLE. Raises :class:`EmulatorError` if it is unknown."""
    mode = os.environ.get(VARIABLE) or "auto"
    if mode not in get_args(Mode):
        raise EmulatorError(f"{VARIABLE}={mode}: expected auto, always or never")
    return cast(Mode, mode)


@contextmanager
def use_container_mode(mode: Mode | None) -> Iterator[None]:
    """Set the mode inside the ``with`` block. With None, it remains the one in VARIABLE.

    Raises :class:`EmulatorError` if the mode is ``always`` and there is no engine.
    """
    before = os.environ.get(VARIABLE)
    if mode:
        os.environ[VARIABLE] = mode
    try:
        if read_container_mode() == "always":
            find_engine()
        yield
    finally:
        if mode and before is None:
            del os.environ[VARIABLE]
        elif mode and before is not None:
            os.environ[VARIABLE] = before


@functools.cache
def find_engine() -> Engine:
    """Return the first engine on PATH that works. Raises :class:`EmulatorError` if there is
    none.
    """
    if sys.platform != "linux":
        raise EmulatorError("containers run on Linux only: a job would not reach this endpoint")
    reasons = []
    for path in filter(None, map(shutil.which, PROGRAMS)):
        version = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
        engine = Engine(path, version.stdout.startswith("podman"))
        result = engine.call("ps", "--quiet", seconds=30)
        if result.returncode == 0 and not (engine.is_podman and os.geteuid()):
            return engine
        rootless = "rootless, so its networks cannot reach the endpoint: run as root, or use docker"
        reasons.append(
            f"{path}: {rootless if result.returncode == 0 else extract_error_line(result)}"
        )
    raise EmulatorError(
        f"no container engine works here ({'; '.join(reasons)}): start it, or let this user use it "
        "(docker: sudo usermod -aG docker $USER)"
        if reasons
        else "there is no container engine on PATH: install docker (docs.docker.com/engine/install)"
        " or podman (apt install podman netavark)"
    )


def remove_leftover_containers(state: Path) -> None:
    """Remove the containers and networks that a killed emulator of the state directory left
    behind.
    """
    mark = state / MARK
    if not mark.exists():
        return
    try:
        engine = find_engine()
    except EmulatorError as error:
        log.warning("containers of an earlier emulator may be left: %s", error)
        return
    selection = ["--quiet", "--filter", f"label={LABEL}={state}"]
    if names := engine.call("ps", "--all", *selection).stdout.split():
        subprocess.run(
            [*engine.removal_command, *names],
            capture_output=True,
            env=select_client_variables(),
            check=False,
        )
    if names := engine.call("network", "ls", *selection).stdout.split():
        engine.call("network", "rm", *names)
    mark.unlink()


def _is_emulated(architecture: str) -> bool:
    """Return whether the kernel can run that architecture's programs by emulation (binfmt_misc)."""
    kernel_name = {of: name for name, of in _MACHINES.items()}.get(architecture, architecture)
    return Path(f"/proc/sys/fs/binfmt_misc/qemu-{kernel_name}").exists()
