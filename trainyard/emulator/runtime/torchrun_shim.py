"""``torchrun_shim.py PORT ARGS...``: torchrun with its master on this machine, at PORT.

AWS's driver hard-codes algo-1:7777. Without a network namespace that name does not resolve and
that port would collide between jobs. First on PATH as ``torchrun``; standard library only.
"""

import os
import sys
from pathlib import Path

VALUES = {"--master_addr": "127.0.0.1", "--master-addr": "127.0.0.1"}


def rewrite(args: list[str], port: str) -> list[str]:
    """``--master_addr=X`` and ``--master_addr X`` (also with ``-``, and ``port``) replaced."""
    values = VALUES | {"--master_port": port, "--master-port": port}
    out = []
    for number, arg in enumerate(args):
        name, equals, _ = arg.partition("=")
        if equals and name in values:
            out.append(f"{name}={values[name]}")
        elif number and args[number - 1] in values:
            out.append(values[args[number - 1]])
        else:
            out.append(arg)
    return out


if __name__ == "__main__":
    torchrun = str(Path(sys.executable).parent / "torchrun")
    os.execv(torchrun, [torchrun, *rewrite(sys.argv[2:], sys.argv[1])])
