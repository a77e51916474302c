"""``main`` with arguments SPEC COMMAND...: arrange a node's file system and become COMMAND.

It runs in new mount, UTS and IPC namespaces. SPEC is JSON:

    host      the node's name, because libraries look up their own (``/etc/hosts`` has it)
    cover     [[folder, target], ...]: folders that hide what the job must not see
    bind      [[source, target, writable], ...]: the job's own folders and files
    keep      paths that stay visible although one of these targets covers them
    writable  further targets to which the job may write: mounts below its folders
    folder    the working directory

Everything else becomes read-only. COMMAND runs as root of another user namespace, so it can neither
undo the mounts nor inspect process 1. Uses only the standard library.
"""

import ctypes
import json
import os
import socket
import stat
import sys

NEW_USER = 0x10000000  # linux/sched.h, CLONE_NEWUSER
NO_SUID, NO_DEVICES, BIND, RECURSIVE = 2, 4, 4096, 16384  # linux/mount.h, MS_...
SET_ATTRIBUTES = 442  # mount_setattr: since Linux 5.12, same number on all architectures
READ_ONLY, ALL_BELOW, AT_FDCWD = 1, 0x8000, -100  # MOUNT_ATTR_RDONLY, AT_RECURSIVE, AT_FDCWD
SHARED_MEMORY = "/dev/shm"
KERNEL = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
"""Folders that are read-only in Docker's containers, too, because this machine's root could change
the kernel's settings there.
"""
LIBC = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Arrange the file system, and replace this process by COMMAND."""
    spec, command = json.loads(sys.argv[1]), sys.argv[2:]
    try:
        socket.sethostname(spec["host"])
        arrange_mounts(spec)
        os.chdir(spec["folder"])
        drop_privileges()
    except OSError as error:
        sys.exit(f"the node's file system cannot be arranged: {error}")
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"exec: {command[0]!r}: {error.strerror}", file=sys.stderr)
        sys.exit(127)  # a shell's and Docker's status for a missing command


def arrange_mounts(spec: dict) -> None:
    """Mount the job's folders. Make every mount read-only that the job may not change."""
    # Open the sources first, because a folder that is mounted may cover the path of another source.
    sources = [os.open(source, os.O_PATH) for source, _, _ in spec["bind"]]
    for folder, target in spec["cover"]:
        call_mount(folder, target, BIND)
    visible = {path: os.open(path, os.O_PATH) for path in spec["keep"] if os.path.exists(path)}
    if os.path.isdir(SHARED_MEMORY):
        call_mount("tmpfs", SHARED_MEMORY, NO_SUID | NO_DEVICES, "tmpfs", "mode=1777")
    targets = [target for _, target, _ in spec["bind"]]
    mounts = [*zip(targets, sources, strict=True), *visible.items()]
    # Outer folders first, because a mounted folder hides what was mounted below it before.
    for path, source in sorted(mounts, key=lambda mount: mount[0].count("/")):
        if not os.path.exists(path):
            make_mount_point(path, os.fstat(source).st_mode)
        bind_mount(source, path)
    # /proc is writable, so these parts of it are made mounts of their own, which become read-only.
    for path in KERNEL:
        if os.path.exists(path):
            call_mount(path, path, BIND)
    writable_paths = [target for _, target, writable in spec["bind"] if writable] + spec["writable"]
    protect_mounts(
        [path for path in (*writable_paths, SHARED_MEMORY, "/proc") if is_writable(path)]
    )


def protect_mounts(writable: list[str]) -> None:
    """Make every mount read-only except those at ``writable``."""
    set_attributes("/", ALL_BELOW, set_flags=READ_ONLY)
    for path in writable:
        set_attributes(path, 0, clear_flags=READ_ONLY)


def is_writable(path: str) -> bool:
    """Return whether the mount at the path is writable. Return False if the path does not exist."""
    return os.path.exists(path) and not os.statvfs(path).f_flag & os.ST_RDONLY


def bind_mount(descriptor: int, target: str) -> None:
    """Mount the file or folder that is open as ``descriptor`` at ``target``."""
    call_mount(f"/proc/self/fd/{descriptor}", target, BIND | RECURSIVE)


def make_mount_point(path: str, mode: int) -> None:
    """Create a folder at ``path``, or an empty file if ``mode`` is not that of a folder."""
    if stat.S_ISDIR(mode):
        os.makedirs(path)
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY))


def call_mount(
    source: str, target: str, flags: int, kind: str | None = None, options: str = ""
) -> None:
    """Call mount(2). Raises OSError if the kernel refuses."""
    words = (None if word is None else os.fsencode(word) for word in (source, target, kind))
    check_system_call(LIBC.mount(*words, ctypes.c_ulong(flags), options.encode()), "mount", target)


def set_attributes(path: str, flags: int, set_flags: int = 0, clear_flags: int = 0) -> None:
    """Change the attributes of the mount at the path. Raises OSError if the kernel refuses."""
    attributes = (ctypes.c_uint64 * 4)(set_flags, clear_flags, 0, 0)  # struct mount_attr
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    result = LIBC.syscall(SET_ATTRIBUTES, AT_FDCWD, os.fsencode(path), flags, attributes, size)
    check_system_call(result, "mount_setattr", path)


def drop_privileges() -> None:
    """Become root of a new user namespace that owns none of this process's other namespaces."""
    check_system_call(LIBC.unshare(NEW_USER), "unshare", "a second user namespace")
    # setgroups first: until it is denied, the kernel does not allow a process without privileges to
    # write gid_map.
    for name, text in (("setgroups", "deny"), ("uid_map", "0 0 1"), ("gid_map", "0 0 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def check_system_call(result: int, call: str, subject: str) -> None:
    """Raise OSError if ``result``, which a system call returned, is not 0."""
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}", subject)
