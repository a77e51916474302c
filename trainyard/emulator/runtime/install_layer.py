"""What a job installs goes into a layer of its own, over the interpreter that it runs with.

The layer is a virtual environment of that interpreter's in the node's home, and the interpreter's
own packages are seen through it: what they satisfy is satisfied, what pip installs lies above them,
and is gone with the job. Programs beside the interpreter, e.g. ``torchrun``, see it by PYTHONPATH,
and their pip installs there, too.
"""

import functools
import json
import os
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

from trainyard.emulator.runtime.node import Node

NAME = "layer"
_ASK = """
import json, sys, sysconfig
paths = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
base = getattr(sys, "_base_executable", None) or sys.executable
print(json.dumps([base, "%d.%d" % sys.version_info[:2], paths, sys.prefix]))
"""
OFFLINE = {
    "PIP_NO_INDEX": "1",  # there is no way to one: pip would only try five times
    "PIP_NO_BUILD_ISOLATION": "0",  # pip's way to say --no-build-isolation, whose tools it fetches
}
"""pip's settings, unless the node's environment has others."""


MPI = Path("lib/libmpi.so.40")


@dataclass(frozen=True, slots=True)
class _Interpreter:
    base: Path
    """What a virtual environment's ``python`` is a link to."""
    version: str
    packages: list[str]
    """Where its own packages are."""
    prefix: Path
    """Its own ``sys.prefix``, which a program in the layer does not have."""


def add_layer(node: Node, home: str) -> None:
    """Make the layer, and puts it before all else in the node's environment.

    ``home``: how the job sees the node's home.
    """
    root, inside = node.home / NAME, f"{home}/{NAME}"
    interpreter = _interpreter(node.python)
    packages = f"lib/python{interpreter.version}/site-packages"
    _make(root, root / packages, interpreter)
    path = [f"{inside}/{packages}", node.environment.get("PYTHONPATH", "")]
    node.environment = OFFLINE | _found_by_prefix(interpreter) | node.environment
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
    """Where what the job installs lies."""
    return next((node.home / NAME / "lib").glob("python*/site-packages"))


@functools.cache
def _interpreter(python: Path) -> _Interpreter:
    command = [str(python), "-I", "-c", _ASK]
    base, version, packages, prefix = json.loads(subprocess.check_output(command, text=True))
    return _Interpreter(Path(base), version, packages, Path(prefix))


def _found_by_prefix(interpreter: _Interpreter) -> dict[str, str]:
    """Where packages below find what they look for in ``sys.prefix``: mpi4py the MPI of a wheel,
    which Lightning imports wherever it is installed.
    """
    mpi = interpreter.prefix / MPI
    return {"MPI4PY_LIBMPI": str(mpi)} if mpi.exists() else {}


def _make(root: Path, packages: Path, interpreter: _Interpreter) -> None:
    (root / "bin").mkdir(parents=True)
    packages.mkdir(parents=True)
    (root / "bin/python").symlink_to(interpreter.base)
    for name in ("python3", f"python{interpreter.version}"):
        (root / "bin" / name).symlink_to("python")
    (root / "pyvenv.cfg").write_text(
        f"home = {interpreter.base.parent}\ninclude-system-site-packages = false\n"
    )
    calls = [f"site.addsitedir({path!r})" for path in interpreter.packages]
    (packages / "_below.pth").write_text("; ".join(["import site", *calls]) + "\n")


def online() -> dict[str, str]:
    """How pip is configured where a job has a network: as on this machine, with the user's file."""
    names = [name for name in os.environ if name.startswith("PIP_")]
    file = Path.home() / ".config/pip/pip.conf"
    theirs = {"PIP_CONFIG_FILE": str(file)} if file.is_file() else {}
    isolated = {"PIP_NO_INDEX": "0", "PIP_NO_BUILD_ISOLATION": "1"}
    return isolated | theirs | {name: os.environ[name] for name in names}
