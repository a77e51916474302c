"""The container engine, podman or docker, by the command line that both have: which works, whether
it has an image, and what an emulator that was killed left in it.
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
"""Variable with the mode: ``auto``, in the engine what this Python cannot stand in for; ``always``;
``never``."""
PROGRAMS = ("docker", "podman")
LABEL = "trainyard.state"
"""Label of our containers and networks; its value is the state directory."""
MARK = "containers"
"""File in a state directory that has had containers."""
SETTINGS = ("PATH", "HOME", "USER", "LANG", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR")
PREFIXES = ("CONTAINER", "DOCKER_", "XDG_", "REGISTRY_")
PID_MAX = Path("/proc/sys/kernel/pid_max")
REGISTRY_PATIENCE, PULL_PATIENCE = 20.0, 3600.0  # seconds
log = logging.getLogger(__name__)
_MISSING = ("no such image", "image not known")
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True)
class Image:
    """An image that the engine has. ``name``: as the engine knows it; ``user``: empty for root."""

    name: str
    digest: str
    architecture: str
    user: str


@dataclass(frozen=True, slots=True)
class Engine:
    """A container engine that works. ``command``: its program, with its path."""

    command: str
    is_podman: bool

    @property
    def name(self) -> str:
        return Path(self.command).name

    def call(
        self, *arguments: str, seconds: float | None = 120
    ) -> subprocess.CompletedProcess[str]:
        """Run the engine's command line. Raises :class:`EmulatorError` after ``seconds``."""
        try:
            return subprocess.run(
                [self.command, *arguments],
                capture_output=True,
                text=True,
                env=settings(),
                timeout=seconds,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired:
            call_name = " ".join(arguments[:2])
            raise EmulatorError(
                f"{self.name} {call_name} gave no answer in {seconds:g} s"
            ) from None

    def image(self, uri: str) -> Image | None:
        """Return the image that the engine has for the URI: of that name, else of its repository
        and tag without the registry; None if it has neither.

        Raises :class:`EmulatorError` if the engine fails.
        """
        form = "{{.Id}}|{{.Architecture}}|{{.Config.User}}"
        own, *built = local_names(uri)
        if self.is_podman:  # its short name would also mean an image of another registry
            built = [f"localhost/{name}" for name in built]
        for name in (own, *built):
            result = self.call("image", "inspect", "--format", form, "--", name)
            if result.returncode == 0:
                digest, architecture, user = result.stdout.strip().split("|")
                digest = f"sha256:{digest.removeprefix('sha256:')}"
                return Image(name, digest, architecture, user)
            if not any(text in result.stderr.lower() for text in _MISSING):
                raise EmulatorError(
                    f"{self.name} does not say whether it has {name}: {error_line(result)}"
                )
        return None

    def refusal(self, uri: str) -> str | None:
        """Return why the image cannot run here, with the fix; None if it is here or in a registry
        that the engine reaches.
        """
        if image := self.image(uri):
            own = _MACHINES.get(platform.machine(), platform.machine())
            if image.architecture in (own, "") or _is_emulated(image.architecture):
                return None
            return (
                f"image {image.name} is for {image.architecture}, this machine is {own}: build it "
                f"with {self.name} build --platform linux/{own}"
            )
        names = local_names(uri)
        build = f"{self.name} build -t {names[-1]} ."
        if len(names) == 1:
            return f"{self.name} has no image {uri}, which names no registry: {build}"
        result = self.call("manifest", "inspect", "--", uri, seconds=REGISTRY_PATIENCE)
        if result.returncode == 0:
            return None
        return (
            f"{self.name} has no image {' or '.join(names)}, and no registry gave it "
            f"({error_line(result).rpartition(': ')[2]}): {build} or, logged in there, "
            f"{self.name} pull {uri}"
        )

    def pull(self, uri: str) -> Image:
        """Return the image, from its registry if it is not here. Raises :class:`EmulatorError`."""
        if image := self.image(uri):
            return image
        result = self.call("pull", "--quiet", "--", uri, seconds=PULL_PATIENCE)
        image = self.image(uri) if result.returncode == 0 else None
        if not image:
            raise EmulatorError(f"{self.name} pull {uri}: {error_line(result)}")
        return image

    @property
    def removal(self) -> list[str]:
        """Command that removes the containers named behind it, running or not."""
        # podman first sends SIGTERM and waits ten seconds, unless it is told not to; docker does
        # not.
        at_once = ["-t", "0"] if self.is_podman else []
        return [self.command, "rm", "--force", "--volumes", *at_once]


def settings() -> dict[str, str]:
    """Return what the engine's client needs of this process's environment: no keys of AWS."""
    return {k: v for k, v in os.environ.items() if k in SETTINGS or k.startswith(PREFIXES)}


def resource_limits() -> list[str]:
    """Return podman's options that ask for no higher limits than this process may give: without
    CAP_SYS_RESOURCE its own defaults are refused (``error setting rlimit``).
    """
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    processes = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    most = int(PID_MAX.read_text())
    processes = most if processes == resource.RLIM_INFINITY else min(processes, most)
    return [f"--ulimit=nofile={files}:{files}", f"--ulimit=nproc={processes}:{processes}"]


def error_line(result: subprocess.CompletedProcess[str]) -> str:
    """Return the last line that the engine wrote about its failure."""
    lines = [line.strip() for line in result.stderr.splitlines() if line.strip()]
    return lines[-1].removeprefix("Error: ") if lines else f"exit status {result.returncode}"


def local_names(uri: str) -> list[str]:
    """Return the names that an image of the URI may have here: its own, and the one that it is
    built under, ``my-image:1`` of ``123456789012.dkr.ecr.us-east-1.amazonaws.com/my-image:1``.
    """
    registry, slash, name = uri.partition("/")
    return [uri, name] if slash and ("." in registry or ":" in registry) else [uri]


def read_mode() -> Mode:
    """Return the mode that VARIABLE names. Raises :class:`EmulatorError` for an unknown one."""
    mode = os.environ.get(VARIABLE) or "auto"
    if mode not in get_args(Mode):
        raise EmulatorError(f"{VARIABLE}={mode}: expected auto, always or never")
    return cast(Mode, mode)


@contextmanager
def use_mode(mode: Mode | None) -> Iterator[None]:
    """Set the mode until the block ends; None: as VARIABLE says. Raises :class:`EmulatorError` for
    ``always`` without an engine.
    """
    before = os.environ.get(VARIABLE)
    if mode:
        os.environ[VARIABLE] = mode
    try:
        if read_mode() == "always":
            find_engine()
        yield
    finally:
        if mode and before is None:
            del os.environ[VARIABLE]
        elif mode and before is not None:
            os.environ[VARIABLE] = before


@functools.cache
def find_engine() -> Engine:
    """Return the first engine on PATH that answers. Raises :class:`EmulatorError` if none does."""
    if sys.platform != "linux":
        raise EmulatorError("containers run on Linux only: a job would not reach this endpoint")
    reasons = []
    for path in filter(None, map(shutil.which, PROGRAMS)):
        version = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
        engine = Engine(path, version.stdout.startswith("podman"))
        result = engine.call("ps", "--quiet", seconds=30)
        if result.returncode == 0 and not (engine.is_podman and os.geteuid()):
            return engine
        rootless = "rootless, its networks are out of the endpoint's reach: run as root, or docker"
        reasons.append(f"{path}: {rootless if result.returncode == 0 else error_line(result)}")
    raise EmulatorError(
        f"no container engine works here ({'; '.join(reasons)}): start it, or let this user use it "
        "(docker: sudo usermod -aG docker $USER)"
        if reasons
        else "there is no container engine on PATH: install docker (docs.docker.com/engine/install)"
        " or podman (apt install podman netavark)"
    )


def remove_remains(state: Path) -> None:
    """Remove the containers and networks of an emulator of the state directory that was killed."""
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
        subprocess.run([*engine.removal, *names], capture_output=True, env=settings(), check=False)
    if names := engine.call("network", "ls", *selection).stdout.split():
        engine.call("network", "rm", *names)
    mark.unlink()


def _is_emulated(architecture: str) -> bool:
    """Return whether the kernel runs that architecture's programs by an emulator (binfmt_misc)."""
    kernel_name = {of: name for name, of in _MACHINES.items()}.get(architecture, architecture)
    return Path(f"/proc/sys/fs/binfmt_misc/qemu-{kernel_name}").exists()
