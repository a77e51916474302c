"""Jobs without namespaces: ``/opt/ml`` moves into the node's directory, by rewriting the job's
copies.

Rewritten are the command, the environment, the contract's JSON files, and the text files of the
code that came with the job (AWS's drivers, the ``code`` channel, the folder of a script that the
command names). Data is never changed. Not possible this way: separate ports for a program other
than torchrun, the names algo-1 ... in DNS, and paths that a program composes at run time.
"""

import re
import shlex
import shutil
import socket
import tempfile
from pathlib import Path

from trainyard.emulator.containers.install_layer import NAME, add_layer, keep_path, packages_of
from trainyard.emulator.containers.interpreter import OWN_PYTHON
from trainyard.emulator.containers.node import LOOPBACK, Node

MODULE_FOLDER = Path(__file__).parent
CODE = (".py", ".sh", ".json", ".yaml", ".yml", ".toml", ".cfg", ".ini", ".env", ".txt")
ROOT = re.compile(r"(?<![\w.-])/opt/ml(?![\w.-])")  # not /data/opt/ml, not /opt/mlflow


class Relocation:
    """Runs a job without isolation; ``why`` is the reason why namespaces are not used."""

    loopback = False
    interface, url = LOOPBACK, ""

    def __init__(self, reason: str) -> None:
        self.notice = (
            f"This job runs without namespaces ({reason}): /opt/ml is relocated by rewriting the "
            "job's copies of code and arguments, ports and temporary folders are shared with this "
            "machine, and the job can write wherever its user may, and read the emulator's state "
            "and environment variables."
        )
        # torchrun's default port would collide between jobs: each gets a free one.
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            self._port = sock.getsockname()[1]

    def supervisor(self, spec: Path) -> list[str]:
        return [str(OWN_PYTHON), "-I", str(MODULE_FOLDER / "supervisor.py"), str(spec)]

    def setup(self, job: Path) -> list[list[str]]:
        return []

    def prepare(self, node: Node, hosts: list[str]) -> None:
        """Point command, environment and code of ``node`` at its own directory."""
        for folder in _code_folders(node):
            _rewrite_tree(folder, node.ml)
        _rewrite_tree(node.ml / "input/config", node.ml)
        _rewrite_tree(node.ml / "config", node.ml)
        for mount in node.mounts:
            Path(mount.target).symlink_to(mount.source)
        node.command = [relocate(word, node.ml) for word in node.command]
        environment = {k: relocate(v, node.ml) for k, v in node.environment.items()}
        # a short path: DataLoader workers use Unix sockets, whose paths have at most 108 bytes
        scratch = tempfile.mkdtemp(prefix="sm-")
        node.tmp.rmdir()
        node.tmp.symlink_to(scratch)
        node.environment = environment | {"HOME": str(node.home), "TMPDIR": scratch}
        add_layer(node, str(node.home))
        shutil.copyfile(
            MODULE_FOLDER / "relocated_imports.py", packages_of(node) / "sitecustomize.py"
        )
        shims = _shims(node, self._port)
        node.environment["PATH"] = f"{shims}:{node.environment['PATH']}"
        keep_path(node)


def relocate(text: str, ml: Path) -> str:
    """Return ``text`` with each path under /opt/ml moved to ``ml``."""
    return ROOT.sub(lambda _: str(ml), text)


def _code_folders(node: Node) -> set[Path]:
    """Return folders of the job's code: AWS's drivers, the code channel, and each script's
    folder.
    """
    folders = {node.ml / "input/data/sm_drivers", node.ml / "input/data/code"}
    for path in re.findall(r"/opt/ml/[\w./-]+", " ".join(node.command)):
        if node.inside(path).is_file():
            folders.add(node.inside(path).parent)
    return folders


def _rewrite_tree(folder: Path, ml: Path) -> None:
    for path in folder.rglob("*"):
        if path.suffix in CODE and path.is_file() and not path.is_symlink():
            old = path.read_bytes()
            # surrogateescape: bytes that are not UTF-8 stay as they are.
            new = ROOT.sub(lambda _: str(ml), old.decode("utf-8", "surrogateescape"))
            if (data := new.encode("utf-8", "surrogateescape")) != old:
                path.write_bytes(data)


def _shims(node: Node, port: int) -> Path:
    """Create a folder for the front of PATH, whose torchrun uses a master port of this job."""
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


def remove_scratch(node: Node) -> None:
    """Remove the node's temporary folder outside its directory, if it has one."""
    if node.tmp.is_symlink():
        shutil.rmtree(node.tmp.readlink(), ignore_errors=True)
