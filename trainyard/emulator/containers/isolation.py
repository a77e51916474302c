"""Two ways to give a job the container's ``/opt/ml``: namespaces, or relocation without them.

With namespaces (Linux) a job gets its own user, network, pid and mount namespaces, and each node a
mount and UTS namespace. ``/opt/ml`` and ``/etc/hosts`` are mounted there, so AWS's drivers and any
script run unmodified, port 7777 never collides, and no process outlives the job. The emulator's
state is covered and its environment is not passed on. Everything that is not the job's own is
read-only.
"""

import contextlib
import functools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Protocol

from trainyard.common.errors import EmulatorError
from trainyard.emulator.containers.container_entry import SHARED_MEMORY
from trainyard.emulator.containers.install_layer import (
    Relocation,
    add_package_layer,
    list_interpreter_folders,
    list_package_folders,
    remove_temporary_folder,
    write_login_profile,
)
from trainyard.emulator.containers.node import LOOPBACK, OWN_FOLDERS, OWN_PYTHON, Mount, Node
from trainyard.emulator.containers.proxy import find_network_tool
from trainyard.emulator.iam import access_keys

VARIABLE = "TRAINYARD_EMULATOR_ISOLATION"
"""Environment variable that forces ``namespaces`` or ``relocate``. If it is unset, namespaces are
used if they work.
"""
MODULE_FOLDER = Path(__file__).parent
PACKAGE = MODULE_FOLDER.parent.parent
PYTHON = [str(OWN_PYTHON), "-I", "-S"]  # isolated, without site: starts in about 15 ms
JOB = ["unshare", "--user", "--map-root-user", "--net", "--pid", "--mount", "--mount-proc"]
NODE = ["unshare", "--mount", "--uts", "--ipc", "--"]
COVERED_FOLDERS = (*OWN_FOLDERS.values(), SHARED_MEMORY)
"""Folders of this machine that a job does not see, because it has its own folders there."""


class Isolation(Protocol):
    """A way to isolate jobs; for the methods see :class:`Namespaces`.

    ``notice`` is a text for the job's log, or None. ``loopback`` says whether the job has its own
    network, which has only a loopback. ``interface`` is the network interface of its nodes. ``url``
    is the endpoint's URL for the job, or empty if it is the same as outside.
    """

    @property
    def notice(self) -> str | None: ...

    @property
    def loopback(self) -> bool: ...

    @property
    def interface(self) -> str: ...

    @property
    def url(self) -> str: ...

    def supervisor(self, spec: Path) -> list[str]: ...

    def setup(self, job: Path) -> list[list[str]]: ...

    def prepare(self, node: Node, hosts: list[str]) -> None: ...


class Namespaces:
    """Run a job in its own namespaces."""

    notice = None
    loopback = True
    interface, url = LOOPBACK, ""

    def supervisor(self, spec: Path) -> list[str]:
        """Return the command that runs the supervisor with the file ``spec``."""
        fork = ["--fork", "--kill-child=SIGKILL", "--"]
        return [*JOB, *fork, *PYTHON, str(MODULE_FOLDER / "supervisor.py"), str(spec)]

    def setup(self, job: Path) -> list[list[str]]:
        """Return the mount commands that add ``/opt/ml`` and ``/opt/home`` to the contents of this
        machine's /opt.
        """
        # The emulator may not create /opt/ml there, so /opt becomes a folder of the job into which
        # everything in /opt is mounted. The folders may exist already if a container is started
        # again.
        opt = job / "opt"
        for name in ("ml", "home"):
            (opt / name).mkdir(parents=True, exist_ok=True)
        mounts = []
        for entry in Path("/opt").iterdir():
            target = opt / entry.name
            if entry.is_symlink() and not target.is_symlink():
                target.symlink_to(os.readlink(entry))
            elif not entry.is_symlink() and entry.name not in ("ml", "home"):
                target.mkdir(exist_ok=True) if entry.is_dir() else target.touch()
                mounts.append(["mount", "--rbind", str(entry), str(target)])
        mounts.append(["mount", "--rbind", str(opt), "/opt"])
        # A job must not find the user's credentials by their path.
        if (credentials := Path.home() / ".aws").is_dir():
            (job / "empty").mkdir(exist_ok=True)
            mounts.append(["mount", "--bind", str(job / "empty"), str(credentials)])
        return mounts

    def prepare(self, node: Node, hosts: list[str]) -> None:
        """Change the node's command so that it starts in its own namespaces."""
        table, names = node.root / "hosts", " ".join(hosts)
        table.write_text(
            f"127.0.0.1 localhost {names}\n::1 localhost\n::ffff:127.0.0.1 localhost\n"
        )
        for mount in node.mounts:
            Path(mount.target).mkdir()
        enter = [
            *build_program_command("container_entry"),
            json.dumps(_build_mount_spec(node, table)),
        ]
        node.command = [*NODE, *build_mount_command(node.mounts), *enter, *node.command]
        node.environment |= {"HOME": "/opt/home"}
        add_package_layer(node, "/opt/home")
        prefix = node.python.parent.parent
        # AWS's scripts do not quote paths, so they get the interpreter by a path that needs no
        # quotes.
        if needs_quoting(prefix):
            (node.home / "python").symlink_to(prefix)
            path = node.environment["PATH"].replace(f"{prefix}/", "/opt/home/python/")
            node.environment["PATH"] = path
        write_login_profile(node)


def _build_mount_spec(node: Node, hosts: Path) -> dict:
    """Return the SPEC of :mod:`container_entry` for the node."""
    environment, empty, state = (
        node.root / "environment",
        node.root / "empty",
        find_state_directory(node.root),
    )
    environment.touch()  # AWS's MPI driver writes it, with the job's credentials
    empty.mkdir()
    own_binds = {node.root / name: folder for name, folder in OWN_FOLDERS.items()}
    own_binds |= {hosts: "/etc/hosts", environment: "/etc/environment"}
    binds = {node.home: "/opt/home"} | {
        k: path for k, path in own_binds.items() if Path(path).exists()
    }
    writable = (Path(mount.target) for mount in node.mounts if not mount.read_only)
    return {
        "host": node.name,
        "folder": "/opt/ml",
        "cover": [(str(empty), str(state))] if state else [],
        "bind": [
            (str(node.ml), "/opt/ml", node.may_write),
            *((str(source), target, True) for source, target in binds.items()),
        ],
        "keep": _list_hidden_paths(node.python),
        "writable": [f"/opt/ml/{target.relative_to(node.ml)}" for target in writable],
    }


def _list_hidden_paths(python: Path) -> list[str]:
    """Return the paths that a job needs but that its own folders hide. Omit a path below another
    one.
    """
    folders = [PACKAGE, python.parent.parent, *list_interpreter_folders(python), "/etc/resolv.conf"]
    names = {Path(form(path)) for path in folders for form in (os.path.abspath, os.path.realpath)}
    paths = {
        path for path in names if any(Path(folder) in path.parents for folder in COVERED_FOLDERS)
    }
    return sorted(str(path) for path in paths if not paths.intersection(path.parents))


def build_program_command(name: str) -> list[str]:
    """Return the command that runs ``main`` of the module ``name`` of this package. The module's
    arguments must be appended.
    """
    start = "import sys, importlib; sys.path.append(sys.argv.pop(1)); "
    start += "importlib.import_module(sys.argv.pop(1)).main()"
    return [*PYTHON, "-c", start, str(PACKAGE.parent), f"{__package__}.{name}"]


def build_mount_command(mounts: Sequence[Mount]) -> list[str]:
    """Return the command that mounts the folders and then executes the command appended to it."""
    text = json.dumps([astuple(mount) for mount in mounts])
    return [*build_program_command("mounted_folders"), text] if mounts else []


def find_state_directory(directory: Path) -> Path | None:
    """Return the state directory that contains ``directory``, recognized by the emulator's
    credentials. Return None if there is none.
    """
    folders = [path for path in directory.resolve().parents if (path / access_keys.FILE).exists()]
    return folders[-1] if folders else None


def needs_quoting(path: str | Path) -> bool:
    """Return whether ``path`` contains characters that AWS's scripts, which do not quote paths,
    cannot handle.
    """
    return bool(re.search(r"[\s*?[]", str(path)))


def check_can_run(state: Path, python: Path = OWN_PYTHON, internet: bool = False) -> None:
    """Raise :class:`EmulatorError` if no job with the interpreter ``python`` could run in
    ``state``.

    ``internet``: also raise it if no job could reach the internet.
    """
    isolation = choose_isolation()
    if internet and isolation.loopback:
        # Called for its error: no tool is installed that gives jobs access to the internet.
        find_network_tool()
    if python.parent.is_relative_to(state) and not isolation.notice:
        raise EmulatorError(
            f"{python} is in the state directory {state}, which is hidden from jobs: choose "
            "another --python or --state"
        )
    wrong = [path for path in (state, python.parent.parent) if needs_quoting(path)]
    if wrong and isolation.notice:
        raise EmulatorError(
            f"{str(wrong[0])!r} contains a space or a wildcard, which AWS's scripts do not allow. "
            f"{isolation.notice} Move it (a checkout with its .venv: clone it elsewhere)"
        )


def choose_isolation() -> Isolation:
    """Return the isolation for a new job. Raises :class:`EmulatorError` if the forced one is
    unavailable.
    """
    choice = os.environ.get(VARIABLE, "")
    if choice not in ("", "namespaces", "relocate"):
        raise EmulatorError(f"{VARIABLE}={choice}: expected 'namespaces' or 'relocate'")
    if choice == "relocate":
        return Relocation(f"{VARIABLE}=relocate")
    reason = explain_missing_namespaces()
    if reason and choice:
        raise EmulatorError(f"{VARIABLE}=namespaces, but this machine has none: {reason}")
    return Relocation(reason) if reason else Namespaces()


@functools.cache
def explain_missing_namespaces() -> str | None:
    """Return why namespaces do not work here. Return None if they do. They are tried only once,
    which takes about 20 ms.
    """
    if sys.platform != "linux":
        return f"{sys.platform} has no namespaces"
    tools = [name for name in ("unshare", "mount") if not shutil.which(name)]
    if tools:
        return f"{' and '.join(tools)} (util-linux) not found on PATH"
    if not Path("/opt").is_dir():
        return "there is no /opt to put /opt/ml in"
    command = [*_build_sandbox_command(["/opt"]), "true"]
    process = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return f"{process.stderr.strip() or process.returncode}" if process.returncode else None


def remove_job_files(directory: Path) -> None:
    """Remove all files of the job in ``directory`` except its record."""
    for root in directory.glob("algo-*"):
        remove_temporary_folder(Node(root.name, root))
        shutil.rmtree(root, ignore_errors=True)
    # This deletes nothing behind a mount: the job's namespaces are not visible here, so the mount
    # targets in ``opt`` and ``empty`` are plain empty folders, and rmdir() keeps a folder with
    # contents.
    for path in [*directory.glob("opt/*"), directory / "opt", directory / "empty"]:
        with contextlib.suppress(OSError):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    for path in directory.iterdir():
        if path.is_file() and path.name != "job.json":
            path.unlink()


def _build_sandbox_command(writable: Iterable[str], visible: list[str] | None = None) -> list[str]:
    """Return a command prefix. The command appended to it can change only the ``writable`` folders.

    ``visible`` are paths that must stay visible in folders that are covered, such as /dev/shm.
    """
    bind, keep = [(folder, folder, True) for folder in writable], visible or []
    spec = {"host": "none", "folder": "/", "cover": [], "bind": bind, "keep": keep, "writable": []}
    return [
        *JOB,
        "--fork",
        "--",
        *NODE,
        *build_program_command("container_entry"),
        json.dumps(spec),
    ]


_COMPILED_MODULES: set[tuple[Path, str]] = set()


def store_bytecode(python: Path, modules: Iterable[str]) -> None:
    """Import the interpreter's ``modules`` once, so that their bytecode is stored.

    A job cannot store it and would compile them in each of its processes. The import runs outside
    of a job: it runs nothing of the user's except these packages, and can change only their
    folders.
    """
    names = [name for name in modules if (python, name) not in _COMPILED_MODULES]
    if not names or choose_isolation().notice:
        return
    _COMPILED_MODULES.update((python, name) for name in names)
    tries = (f"try: import {name}\nexcept Exception: pass\n" for name in names)
    enter = _build_sandbox_command(list_package_folders(python), _list_hidden_paths(python))
    command = [*enter, str(python), "-I", "-c", "".join(tries)]
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(command, capture_output=True, timeout=60, check=False)
