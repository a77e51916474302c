"""Create an environment with another torch, such as that of AWS's images.

python scripts/torch_environment.py 2.8.0

It is created in .venv-torch-2.8.0, next to .venv, which is not changed. The lock's packages are
checked against the lock's hashes. The lock has no hashes of another torch: torch and its
dependencies come from the index by version alone, as wheels, so that none of their code runs during
the installation.
"""

import os
import subprocess
import sys
import venv
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
BEST = "--index-strategy=unsafe-best-match"  # of several indexes, as pip and scripts/install.py do
sys.path.insert(0, str(CHECKOUT))

from pipelines.compile.package_lock import PACKAGES, parse_lock  # noqa: E402
from scripts.install import make_uv_variables  # noqa: E402
from training.strategy_table import OPTIONS, parse_release  # noqa: E402


def main() -> None:
    """Create the environment, unless it is already complete; print the path of its Python."""
    [torch] = sys.argv[1:]
    folder = CHECKOUT / f".venv-torch-{torch}"
    python, marker = folder / "bin/python", folder / "whole"
    if not marker.exists():
        venv.create(folder, clear=True)
        too_old = parse_release(torch) < parse_release(OPTIONS["float8"].least_torch)
        lock = (CHECKOUT / PACKAGES).read_text(encoding="utf-8")
        # It cannot be imported there, and transformers would try to.
        left_out = {"torchao"} if too_old else set()
        entries = [entry for entry in parse_lock(lock, PACKAGES) if entry.name not in left_out]
        ours = folder / "packages.txt"
        ours.write_text("".join(entry.line for entry in entries), encoding="utf-8")
        _install_packages(python, "--only-binary=:all:", f"torch=={torch}")
        _install_packages(python, "--no-deps", "--require-hashes", f"--requirement={ours}")
        marker.touch()
    print(python)


def _install_packages(python: Path, *words: str) -> None:
    """Run uv pip install for ``python``, with the uv that ``make .venv/installed`` installed."""
    uv = Path(sys.executable).with_name("uv")
    command = [str(uv), "pip", "install", "--quiet", f"--python={python}", BEST, *words]
    subprocess.run(command, check=True, env={**make_uv_variables(), **os.environ})


if __name__ == "__main__":
    main()
