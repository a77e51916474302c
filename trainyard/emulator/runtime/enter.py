"""``python -I enter.py HOST BIND... -- COMMAND...``: becomes COMMAND on a node of its own.

Runs in fresh mount and UTS namespaces; each BIND is two arguments, source and target. Sets the
host name, since libraries look up their own (``/etc/hosts`` has it). Standard library only.
"""

import os
import socket
import subprocess
import sys


def main() -> None:
    host, *rest = sys.argv[1:]
    split = rest.index("--")
    binds, command = rest[:split], rest[split + 1 :]
    socket.sethostname(host)
    for source, target in zip(binds[::2], binds[1::2], strict=True):
        subprocess.run(["mount", "--bind", source, target], check=True)
    os.chdir("/opt/ml")
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"exec: {command[0]!r}: {error.strerror}", file=sys.stderr)
        sys.exit(127)  # what a shell and Docker say to a command that is not there


if __name__ == "__main__":
    main()
