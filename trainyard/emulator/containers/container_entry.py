"""``main`` with arguments SPEC COMMAND...: becomes COMMAND on a separate node.

It runs in fresh mount, UTS and IPC namespaces. SPEC is JSON:

host      the node's name, since libraries look up their own (``/etc/hosts`` has it)
cover     [[folder, target], ...]: folders that hide what the job must not see
bind      [[source, target, writable], ...]: the job's own folders and files
keep      paths that stay visible although one of these targets covers them
writable  further targets to which the job may write: mounts below its folders
folder    the working directory

All else becomes read-only. COMMAND is root of one more user namespace: it can neither undo the
mounts nor look into process 1. Standard library only.
"""

import ctypes
import json
import os
import socket
import stat
import sys

NEW_USER = 0x10000000  # linux/sched.h, CLONE_NEWUSER
NO_SUID, NO_DEVICES, BIND, RECURSIVE = 2, 4, 4096, 16384  # linux/mount.h, MS_...
SET_ATTRIBUTES = 442  # mount_setattr: Linux 5.12, the same number on every processor
READ_ONLY, ALL_BELOW, AT_FDCWD = 1, 0x8000, -100  # MOUNT_ATTR_RDONLY, AT_RECURSIVE, AT_FDCWD
SHARED_MEMORY = "/dev/shm"
KERNEL = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
"""Read-only in a container of Docker's, too: root of this machine may write there."""
LIBC = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    spec, command = json.loads(sys.argv[1]), sys.argv[2:]
    try:
        socket.sethostname(spec["host"])
        arrange(spec)
        os.chdir(spec["folder"])
        leave_privileges()
    except OSError as error:
        sys.exit(f"the node's file system cannot be arranged: {error}")
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"exec: {command[0]!r}: {error.strerror}", file=sys.stderr)
        sys.exit(127)  # a shell's and Docker's status for a missing command


def arrange(spec: dict) -> None:
    """Mount what the job sees; leave everything read-only but what is its own."""
    # Sources are opened first: a folder that is mounted may cover the path of another.
    sources = [os.open(source, os.O_PATH) for source, _, _ in spec["bind"]]
    for folder, target in spec["cover"]:
        mount(folder, target, BIND)
    visible = {path: os.open(path, os.O_PATH) for path in spec["keep"] if os.path.exists(path)}
    if os.path.isdir(SHARED_MEMORY):
        mount("tmpfs", SHARED_MEMORY, NO_SUID | NO_DEVICES, "tmpfs", "mode=1777")
    targets = [target for _, target, _ in spec["bind"]]
    mounts = [*zip(targets, sources, strict=True), *visible.items()]
    # The outer ones first: a folder hides what is mounted below it.
    for path, source in sorted(mounts, key=lambda mount: mount[0].count("/")):
        if not os.path.exists(path):
            make_mount_point(path, os.fstat(source).st_mode)
        bind(source, path)
    # /proc is writable: these parts of it become mounts of their own, which are not.
    for path in KERNEL:
        if os.path.exists(path):
            mount(path, path, BIND)
    writable_paths = [target for _, target, writable in spec["bind"] if writable] + spec["writable"]
    protect([path for path in (*writable_paths, SHARED_MEMORY, "/proc") if is_writable(path)])


def protect(writable: list[str]) -> None:
    """Make every mount read-only but those at ``writable``."""
    set_attributes("/", ALL_BELOW, set_flags=READ_ONLY)
    for path in writable:
        set_attributes(path, 0, clear_flags=READ_ONLY)


def is_writable(path: str) -> bool:
    """Return whether the mount at the path is; False if there is none."""
    return os.path.exists(path) and not os.statvfs(path).f_flag & os.ST_RDONLY


def bind(descriptor: int, target: str) -> None:
    mount(f"/proc/self/fd/{descriptor}", target, BIND | RECURSIVE)


def make_mount_point(path: str, mode: int) -> None:
    """Create a folder, or an empty file."""
    if stat.S_ISDIR(mode):
        os.makedirs(path)
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY))


def mount(source: str, target: str, flags: int, kind: str | None = None, options: str = "") -> None:
    """Mount. Raises: OSError: the kernel refused."""
    words = (None if word is None else os.fsencode(word) for word in (source, target, kind))
    check(LIBC.mount(*words, ctypes.c_ulong(flags), options.encode()), "mount", target)


def set_attributes(path: str, flags: int, set_flags: int = 0, clear_flags: int = 0) -> None:
    """Change attributes of the mount at the path. Raises: OSError: the kernel refused."""
    attributes = (ctypes.c_uint64 * 4)(set_flags, clear_flags, 0, 0)  # struct mount_attr
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    result = LIBC.syscall(SET_ATTRIBUTES, AT_FDCWD, os.fsencode(path), flags, attributes, size)
    check(result, "mount_setattr", path)


def leave_privileges() -> None:
    """Enter, as root, a user namespace that owns none of the other namespaces."""
    check(LIBC.unshare(NEW_USER), "unshare", "a second user namespace")
    # setgroups first: until it is denied, the kernel lets nobody write gid_map.
    for name, text in (("setgroups", "deny"), ("uid_map", "0 0 1"), ("gid_map", "0 0 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def check(result: int, call: str, subject: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}", subject)
