"""``main`` with arguments MOUNTS COMMAND...: mount a node's folders and become COMMAND.

MOUNTS is JSON, ``[[source, target, read only], ...]``. Uses only the standard library.

This is a separate module because it is a program that runs as a process of its own.
"""

import json
import os
import sys

from trainyard.emulator.containers.container_entry import BIND, RECURSIVE, call_mount

READ_ONLY, REMOUNT = 1, 32  # linux/mount.h, MS_...
# nosuid, nodev and noexec have the same bits in statvfs. A remount must repeat them, because they
# cannot be removed here.
LOCKED_FLAGS = 2 | 4 | 8


def main() -> None:
    """Mount the folders, and replace this process by COMMAND."""
    for source, target, read_only in json.loads(sys.argv[1]):
        call_mount(source, target, BIND | RECURSIVE)
        if read_only:
            flags = os.statvfs(target).f_flag & LOCKED_FLAGS
            call_mount(source, target, REMOUNT | BIND | READ_ONLY | flags)
    os.execv(sys.argv[2], sys.argv[2:])
