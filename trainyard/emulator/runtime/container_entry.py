"""``python -I container_entry.py HOST BIND... -- COMMAND...``: becomes COMMAND on a separate node.

Runs in fresh mount and UTS namespaces; each BIND is two arguments, source and target. Sets the
host name, since libraries look up their own (``/etc/hosts`` has it). COMMAND is root of one more
user namespace: it can neither undo the mounts nor look into process 1. Standard library only.
"""

import ctypes
import os
import socket
import subprocess
import sys

CLONE_NEWUSER = 0x10000000  # linux/sched.h


def main() -> None:
    host, *rest = sys.argv[1:]
    split = rest.index("--")
    binds, command = rest[:split], rest[split + 1 :]
    socket.sethostname(host)
    for source, target in zip(binds[::2], binds[1::2], strict=True):
        subprocess.run(["mount", "--rbind", source, target], check=True)
    os.chdir("/opt/ml")
    leave_privileges()
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"exec: {command[0]!r}: {error.strerror}", file=sys.stderr)
        sys.exit(127)  # a shell's and Docker's status for a missing command


def leave_privileges() -> None:
    """Enter, as root, a user namespace that owns none of the other namespaces."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWUSER):
        number = ctypes.get_errno()
        raise OSError(number, f"no second user namespace: {os.strerror(number)}")
    for name, text in (("setgroups", "deny"), ("uid_map", "0 0 1"), ("gid_map", "0 0 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


if __name__ == "__main__":
    main()
