"""A layer for the packages that a job installs, over the interpreter that it runs with.

The layer is a virtual environment in the node's home, through which the interpreter's own packages
are visible: pip does not install what they satisfy. Packages that pip does install go into the
layer, and are deleted with the job. Programs beside the interpreter, e.g. ``torchrun``, find the
layer by PYTHONPATH, and their pip also installs there.
"""

import functools
import json
import os
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

from trainyard.emulator.containers.node import Node

NAME = "layer"
_ASK = """
import json, sys, sysconfig
paths = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
base = getattr(sys, "_base_executable", None) or sys.executable
folders = [sys.prefix, sys.base_prefix, *sys.path]
print(json.dumps([base, "%d.%d" % sys.version_info[:2], paths, folders]))
"""
OFFLINE = {
    "PIP_NO_INDEX": "1",  # no index is reachable: pip would only try five times
    "PIP_NO_BUILD_ISOLATION": "0",  # pip's way to say --no-build-isolation, whose tools it fetches
}
"""Settings of pip, unless the node's environment has others."""


MPI = Path("lib/libmpi.so.40")


@dataclass(frozen=True, slots=True)
class _Interpreter:
    base: Path
    """Target of the virtual environment's ``python`` link."""
    version: str
    packages: list[str]
    """Folders of its own packages."""
    folders: list[str]
    """All that it needs: its ``sys.prefix`` (a program in the layer has another one), and so on."""

    @property
    def prefix(self) -> Path:
        return Path(self.folders[0])


def add_layer(node: Node, home: str) -> None:
    """Create the layer, and put it first in the node's environment.

    ``home``: path of the node's home, as the job sees it.
    """
    root, inside = node.home / NAME, f"{home}/{NAME}"
    interpreter = _interpreter(node.python)
    packages = f"lib/python{interpreter.version}/site-packages"
    (root / "bin").mkdir(parents=True)
    (root / packages).mkdir(parents=True)
    (root / "bin/python").symlink_to(interpreter.base)
    for name in ("python3", f"python{interpreter.version}"):
        (root / "bin" / name).symlink_to("python")
    (root / "pyvenv.cfg").write_text(
        f"home = {interpreter.base.parent}\ninclude-system-site-packages = false\n"
    )
    # addsitedir, and no path alone: it also reads the .pth files of the folder.
    calls = [f"site.addsitedir({path!r})" for path in interpreter.packages]
    (root / packages / "_below.pth").write_text("; ".join(["import site", *calls]) + "\n")
    path = [f"{inside}/{packages}", node.environment.get("PYTHONPATH", "")]
    # Packages that search sys.prefix miss the interpreter's: mpi4py finds the MPI of a wheel by
    # this variable, and Lightning imports mpi4py if it is installed.
    mpi = interpreter.prefix / MPI
    mpi_variables = {"MPI4PY_LIBMPI": str(mpi)} if mpi.exists() else {}
    node.environment = OFFLINE | mpi_variables | node.environment
    node.environment |= {
        "PATH": f"{inside}/bin:{node.environment['PATH']}",
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "PIP_PYTHON": f"{inside}/bin/python",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_ROOT_USER_ACTION": "ignore",
    }


def keep_path(node: Node) -> None:
    """Give login shells (``bash -l``, as notebook jobs) the node's PATH, not this machine's."""
    path = shlex.quote(node.environment["PATH"])
    (node.home / ".profile").write_text(f"PATH={path}\nexport PATH\n")


def packages_of(node: Node) -> Path:
    """Return the folder of packages that the job installs."""
    return next((node.home / NAME / "lib").glob("python*/site-packages"))


@functools.cache
def _interpreter(python: Path) -> _Interpreter:
    command = [str(python), "-I", "-c", _ASK]
    base, version, packages, folders = json.loads(subprocess.check_output(command, text=True))
    return _Interpreter(Path(base), version, packages, folders)


def packages_below(python: Path) -> list[str]:
    """Return the folders of the interpreter's own packages."""
    return _interpreter(python).packages


def folders_of(python: Path) -> list[str]:
    """Return the folders that the interpreter and its packages lie in."""
    return _interpreter(python).folders


def online() -> dict[str, str]:
    """Return pip's settings for a job with a network: this machine's, with the user's file."""
    names = [name for name in os.environ if name.startswith("PIP_")]
    file = Path.home() / ".config/pip/pip.conf"
    config_variables = {"PIP_CONFIG_FILE": str(file)} if file.is_file() else {}
    pip_variables = {"PIP_NO_INDEX": "0", "PIP_NO_BUILD_ISOLATION": "1"}
    return pip_variables | config_variables | {name: os.environ[name] for name in names}
