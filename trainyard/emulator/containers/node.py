"""A node of a job: its directory, whose ``ml`` the job sees as ``/opt/ml``, and its environment."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from trainyard.common.errors import EmulatorError
from trainyard.image_packages import InstalledPackage

# The Python that replaces container images: check that it runs, and which packages it has.

OWN_PYTHON = Path(sys.executable).absolute()  # sys.executable may be relative
_FIND = """
import os, sys
from importlib.util import find_spec
specs = {name: find_spec(name) for name in sys.argv[1:]}
print(*(name for name, spec in specs.items() if not spec))
files = {name: spec.cached for name, spec in specs.items() if spec}
print(*(name for name, file in files.items() if file and not os.path.exists(file)))
"""

_VERSIONS = """
import json, platform, sys
from importlib.metadata import PackageNotFoundError, distribution
found = {}
for name in sys.argv[1:]:
    try:
        package = distribution(name)
    except PackageNotFoundError:
        continue
    top = (package.read_text("top_level.txt") or "").split()
    top = top or sorted({file.parts[0].partition(".")[0] for file in package.files or ()})
    found[name] = [package.version, top]
print(json.dumps([platform.python_version(), found]))
"""


def resolve_python(python: Path) -> Path:
    """Return ``python`` as an absolute path.

    Raises:
        EmulatorError: the interpreter does not run.
    """
    # Links are not resolved, because the interpreter of a virtual environment is a link.
    path = python.expanduser().absolute()
    if path == OWN_PYTHON:
        return path
    try:
        subprocess.run([path, "-I", "-c", ""], check=True, capture_output=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as failure:
        raise EmulatorError(
            f"--python {python}: expected a Python interpreter, but it does not run: {failure}"
        ) from None
    return path


def list_missing_modules(python: Path, modules: Iterable[str]) -> list[str]:
    """Return the top-level ``modules`` that ``python`` cannot import, sorted."""
    return find_missing_and_uncompiled_modules(python, modules)[0]


def find_missing_and_uncompiled_modules(
    python: Path, modules: Iterable[str]
) -> tuple[list[str], list[str]]:
    """Return the top-level ``modules`` that ``python`` cannot import, and those that have no
    bytecode, each sorted.
    """
    command = [str(python), "-I", "-c", _FIND, *sorted(modules)]
    process = subprocess.run(command, check=True, capture_output=True, text=True)
    missing, uncompiled_modules = process.stdout.splitlines()
    return missing.split(), uncompiled_modules.split()


def find_installed_packages(
    python: Path, packages: Iterable[str]
) -> tuple[str, dict[str, InstalledPackage]]:
    """Return the interpreter's version, and the version and modules of each package that is
    installed.
    """
    command = [str(python), "-I", "-c", _VERSIONS, *sorted(packages)]
    process = subprocess.run(command, check=True, capture_output=True, text=True)
    version, versions = json.loads(process.stdout)
    return version, {
        name: InstalledPackage(own_version, tuple(top))
        for name, (own_version, top) in versions.items()
    }


SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"
OWN_FOLDERS = {"tmp": "/tmp", "var-tmp": "/var/tmp", "run": "/run"}
"""Folder below a node's root to this machine's folder that it hides from the job. ``/run`` contains
sockets of services that obey everyone who can reach them, such as Docker's.
"""
PROCESSOR = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_CBWR")
"""Variables that limit PyTorch and its libraries to some of the processor's instructions."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder ``source`` of this machine that a node sees at another path.

    ``target`` is the mount point of that path, as a path on this machine.
    """

    source: str
    target: str
    read_only: bool


@dataclass(slots=True)
class Node:
    """A node. ``name`` is SageMaker's name for it (``algo-1``). ``root`` contains ``ml/``, which is
    its /opt/ml, and its other folders.

    ``python`` is the interpreter that replaces the image.
    """

    name: str
    root: Path
    command: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    python: Path = OWN_PYTHON
    mounts: list[Mount] = field(default_factory=list)
    may_write: bool = True
    """Whether the job may write to ``/opt/ml``."""

    image: str = ""
    """The image that a container engine runs. Empty if the node is a process of ``python``."""

    digest: str = ""
    """The digest of the image, once the node is prepared."""

    own_entrypoint: bool = False
    """Whether ``command`` has only arguments, for the image's own entrypoint."""

    address: str = ""
    """Address of its container, which this machine can reach."""

    @property
    def ml(self) -> Path:
        return self.root / "ml"

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def tmp(self) -> Path:
        return self.root / "tmp"

    def to_host_path(self, path: str) -> Path:
        """Return this machine's path for the path that the job sees, e.g. ``/opt/ml/model``.

        Raises ValueError if ``path`` is outside ``/opt/ml``.
        """
        target = Path(os.path.normpath(path))
        return self.ml / target.relative_to("/opt/ml")

    def make_directories(self, *paths: str) -> None:
        for name in ("home", *OWN_FOLDERS):
            self.root.joinpath(name).mkdir(parents=True, exist_ok=True)
        for path in paths:
            self.to_host_path(path).mkdir(parents=True, exist_ok=True)


def list_host_names(count: int) -> list[str]:
    return [f"algo-{number}" for number in range(1, count + 1)]


def build_base_environment(
    region: str, nodes: int, python: Path | None = OWN_PYTHON, interface: str = LOOPBACK
) -> dict[str, str]:
    """Return the variables that every container gets, which the job's own Environment may override.

    Of the user's environment only the variables in PROCESSOR are passed on: no credentials, no
    HOME, and no virtual environment.

    Args:
        region: region of the job.
        nodes: number of nodes that share this machine's cores.
        python: interpreter whose folder is first on PATH; None for an image with a PATH of its own.
        interface: network interface through which the nodes reach each other.
    """
    path = {"PATH": f"{python.parent}:{SYSTEM_PATH}"} if python else {}
    return (
        path
        | {name: os.environ[name] for name in PROCESSOR if name in os.environ}
        | {
            "LANG": "C.UTF-8",
            "PYTHONUNBUFFERED": "1",  # otherwise a script's log arrives only at its end
            "AWS_REGION": region,
            "AWS_DEFAULT_REGION": region,
            "AWS_EC2_METADATA_DISABLED": "true",  # boto3 would wait for a metadata service
            "GLOO_SOCKET_IFNAME": interface,
            # An equal share of this machine's cores for each node. It depends only on the job's own
            # nodes, because results differ in their last digits with the number of threads, and
            # must not depend on other work.
            "OMP_NUM_THREADS": str(max(1, count_cores() // nodes)),
            # Other jobs or another emulator may be running, so a thread that waits for its team
            # must sleep. By default it would spin, which takes the core from the thread that it
            # waits for, and made work on a shared machine about 20 times slower. On idle cores,
            # sleeping costs 7 % for a batch of 16 small samples, and for a single sample the entire
            # gain of a second thread.
            "OMP_WAIT_POLICY": "passive",
            # OpenBLAS, which NumPy and SciPy contain, has its own threads, which never sleep.
            "OPENBLAS_NUM_THREADS": "1",
        }
    )


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
