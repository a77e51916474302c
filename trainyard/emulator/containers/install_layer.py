"""A layer for the packages that a job installs, on top of the interpreter with which it runs.

The layer is a virtual environment in the node's home folder, through which the interpreter's own
packages are visible, so pip does not install what they satisfy. Packages that pip does install go
into the layer and are deleted with the job. Programs of the interpreter such as ``torchrun`` find
the layer by PYTHONPATH, and their pip installs there, too.
"""

import functools
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from trainyard.emulator.containers.node import LOOPBACK, OWN_PYTHON, Node

NAME = "layer"
_ASK = """
import json, sys, sysconfig
paths = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
base = getattr(sys, "_base_executable", None) or sys.executable
folders = [sys.prefix, sys.base_prefix, *sys.path]
print(json.dumps([base, "%d.%d" % sys.version_info[:2], paths, folders]))
"""
OFFLINE = {
    "PIP_NO_INDEX": "1",  # no index is reachable: pip would try five times in vain
    # 0 means --no-build-isolation; otherwise pip would try to download the build tools.
    "PIP_NO_BUILD_ISOLATION": "0",
}
"""pip's settings for a job without a network. The node's environment overrides them."""


MPI = Path("lib/libmpi.so.40")


@dataclass(frozen=True, slots=True)
class _Interpreter:
    """An interpreter, and the folders that it needs."""

    base: Path
    """Target of the link ``python`` in the virtual environment."""
    version: str
    packages: list[str]
    """Folders of its own packages."""
    folders: list[str]
    """All folders that it needs, the first being its ``sys.prefix`` (a program in the layer has
    another one).
    """

    @property
    def prefix(self) -> Path:
        return Path(self.folders[0])


def add_package_layer(node: Node, home: str) -> None:
    """Create the folder for packages of the job, and put it first on PATH and PYTHONPATH.

    ``home`` is the path of the node's home folder as the job sees it.
    """
    root, inside = node.home / NAME, f"{home}/{NAME}"
    interpreter = _inspect_interpreter(node.python)
    packages = f"lib/python{interpreter.version}/site-packages"
    (root / "bin").mkdir(parents=True)
    (root / packages).mkdir(parents=True)
    (root / "bin/python").symlink_to(interpreter.base)
    for name in ("python3", f"python{interpreter.version}"):
        (root / "bin" / name).symlink_to("python")
    (root / "pyvenv.cfg").write_text(
        f"home = {interpreter.base.parent}\ninclude-system-site-packages = false\n"
    )
    # addsitedir instead of a plain path, because it also reads the .pth files in the folder.
    calls = [f"site.addsitedir({path!r})" for path in interpreter.packages]
    (root / packages / "_below.pth").write_text("; ".join(["import site", *calls]) + "\n")
    path = [f"{inside}/{packages}", node.environment.get("PYTHONPATH", "")]
    # Packages that search sys.prefix do not find the interpreter's files. By this variable mpi4py
    # finds the MPI of a wheel, and Lightning imports mpi4py if it is installed.
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


def write_login_profile(node: Node) -> None:
    """Write the node's .profile, so that login shells (``bash -l``, as in notebook jobs) use the
    node's PATH instead of this machine's.
    """
    path = shlex.quote(node.environment["PATH"])
    (node.home / ".profile").write_text(f"PATH={path}\nexport PATH\n")


def locate_layer_packages(node: Node) -> Path:
    """Return the folder for the packages that the job installs."""
    return next((node.home / NAME / "lib").glob("python*/site-packages"))


@functools.cache
def _inspect_interpreter(python: Path) -> _Interpreter:
    command = [str(python), "-I", "-c", _ASK]
    base, version, packages, folders = json.loads(subprocess.check_output(command, text=True))
    return _Interpreter(Path(base), version, packages, folders)


def list_package_folders(python: Path) -> list[str]:
    """Return the folders of the interpreter's own packages."""
    return _inspect_interpreter(python).packages


def list_interpreter_folders(python: Path) -> list[str]:
    """Return the folders that contain the interpreter and its packages."""
    return _inspect_interpreter(python).folders


def build_pip_settings() -> dict[str, str]:
    """Return pip's settings for a job with a network: those of this machine, with the user's
    configuration file.
    """
    names = [name for name in os.environ if name.startswith("PIP_")]
    file = Path.home() / ".config/pip/pip.conf"
    config_variables = {"PIP_CONFIG_FILE": str(file)} if file.is_file() else {}
    pip_variables = {"PIP_NO_INDEX": "0", "PIP_NO_BUILD_ISOLATION": "1"}
    return pip_variables | config_variables | {name: os.environ[name] for name in names}


# Relocation: jobs without namespaces. ``/opt/ml`` becomes the node's directory by rewriting the
# job's copies of everything that contains the path: the command, the environment, the contract's
# JSON files, and the text files of the code that came with the job (AWS's drivers, the ``code``
# channel, the folder of a script that the command names). Data is never changed. Not possible this
# way: separate ports for a program other than torchrun, the names algo-1 ... in DNS, and paths that
# a program composes at run time.

MODULE_FOLDER = Path(__file__).parent
CODE = (".py", ".sh", ".json", ".yaml", ".yml", ".toml", ".cfg", ".ini", ".env", ".txt")
ROOT = re.compile(r"(?<![\w.-])/opt/ml(?![\w.-])")  # not /data/opt/ml, not /opt/mlflow


class Relocation:
    """Run a job without isolation. ``reason`` says why namespaces are not used."""

    loopback = False
    interface, url = LOOPBACK, ""

    def __init__(self, reason: str) -> None:
        self.notice = (
            f"This job runs without namespaces ({reason}): /opt/ml is relocated by rewriting the "
            "job's copies of code and arguments, ports and temporary folders are shared with this "
            "machine, and the job can write wherever its user may, and read the emulator's state "
            "and environment variables."
        )
        # torchrun's default port would collide between jobs, so each job gets a free one.
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            self._port = sock.getsockname()[1]

    def supervisor(self, spec: Path) -> list[str]:
        return [str(OWN_PYTHON), "-I", str(MODULE_FOLDER / "supervisor.py"), str(spec)]

    def setup(self, job: Path) -> list[list[str]]:
        """Return no commands, because nothing is mounted without namespaces."""
        return []

    def prepare(self, node: Node, hosts: list[str]) -> None:
        """Change the node's command, environment and code to use its own directory as /opt/ml."""
        for folder in _find_code_folders(node):
            _relocate_files(folder, node.ml)
        _relocate_files(node.ml / "input/config", node.ml)
        _relocate_files(node.ml / "config", node.ml)
        for mount in node.mounts:
            Path(mount.target).symlink_to(mount.source)
        node.command = [relocate_paths(word, node.ml) for word in node.command]
        environment = {k: relocate_paths(v, node.ml) for k, v in node.environment.items()}
        # A short path, because DataLoader workers use Unix sockets, whose paths have at most 108
        # bytes.
        scratch = tempfile.mkdtemp(prefix="sm-")
        node.tmp.rmdir()
        node.tmp.symlink_to(scratch)
        node.environment = environment | {"HOME": str(node.home), "TMPDIR": scratch}
        add_package_layer(node, str(node.home))
        shutil.copyfile(
            MODULE_FOLDER / "relocated_imports.py", locate_layer_packages(node) / "sitecustomize.py"
        )
        shims = _create_shims(node, self._port)
        node.environment["PATH"] = f"{shims}:{node.environment['PATH']}"
        write_login_profile(node)


def relocate_paths(text: str, ml: Path) -> str:
    """Return ``text`` with each path below /opt/ml changed to a path below ``ml``."""
    return ROOT.sub(lambda _: str(ml), text)


def _find_code_folders(node: Node) -> set[Path]:
    """Return the folders with the job's code: AWS's drivers, the code channel, and the folder of
    each script in the command.
    """
    folders = {node.ml / "input/data/sm_drivers", node.ml / "input/data/code"}
    for path in re.findall(r"/opt/ml/[\w./-]+", " ".join(node.command)):
        if node.to_host_path(path).is_file():
            folders.add(node.to_host_path(path).parent)
    return folders


def _relocate_files(folder: Path, ml: Path) -> None:
    for path in folder.rglob("*"):
        if path.suffix in CODE and path.is_file() and not path.is_symlink():
            old = path.read_bytes()
            # surrogateescape keeps bytes that are not UTF-8 as they are.
            new = ROOT.sub(lambda _: str(ml), old.decode("utf-8", "surrogateescape"))
            if (data := new.encode("utf-8", "surrogateescape")) != old:
                path.write_bytes(data)


def _create_shims(node: Node, port: int) -> Path:
    """Create and return a folder to put first on PATH. Its torchrun uses a master port that only
    this job has.
    """
    folder = node.root / "bin"
    folder.mkdir()
    shim = folder / "torchrun"
    python = str(node.home / NAME / "bin/python")
    command = shlex.join(
        [python, "-I", str(MODULE_FOLDER / "torchrun_shim.py"), str(folder), str(port)]
    )
    shim.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    shim.chmod(0o755)
    return folder


def remove_temporary_folder(node: Node) -> None:
    """Remove the node's temporary folder if it is outside the node's own directory."""
    if node.tmp.is_symlink():
        shutil.rmtree(node.tmp.readlink(), ignore_errors=True)
