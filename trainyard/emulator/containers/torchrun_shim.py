"""``torchrun_shim.py FOLDER PORT ARGS...``: run torchrun with its master on this machine, at PORT.

AWS's driver hard-codes algo-1:7777. Without a network namespace that name does not resolve, and
that port would collide between jobs. This file is the ``torchrun`` in FOLDER, which is first on
PATH, and it runs the next torchrun on PATH. The ranks use the same interpreter as this file. Uses
only the standard library.
"""

import os
import shutil
import sys

VALUES = {"--master_addr": "127.0.0.1", "--master-addr": "127.0.0.1"}


def rewrite_master_address(args: list[str], port: str) -> list[str]:
    """Replace the values of ``--master_addr`` and ``--master_port``, whether written with ``=`` or
    as two arguments, and with ``-`` or ``_``.
    """
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
    shim_folder, port, *args = sys.argv[1:]
    rest = [folder for folder in os.environ["PATH"].split(os.pathsep) if folder != shim_folder]
    torchrun = shutil.which("torchrun", path=os.pathsep.join(rest))
    if not torchrun:
        sys.exit("torchrun: command not found")
    os.execv(sys.executable, [sys.executable, torchrun, *rewrite_master_address(args, port)])
