"""Install a lock's packages in this Python's environment: python scripts/install.py locks/run.txt.

uv unpacks in seconds what takes pip minutes. It does not read pip's configuration, so it is given
pip's indexes, proxies and certificates; your own variables (UV_…) come first.
Nothing is resolved, and `uv pip check` runs last.

No code runs without a hash in a lock: every file is checked against the lock's hashes, and a
package without a wheel is built with the lock's setuptools in this environment, not with an
index's.

A terminal shows uv's and pip's own progress; a log gets a line for each of the three parts.

pip chooses the build of torch, since its configuration may name a folder or an index for it. The
build says whether it needs CUDA's libraries. Bytecode is written when a module is imported for the
first time: most never are.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

LOCKS = Path(__file__).resolve().parents[1] / "locks"
HASHED = ("--no-deps", "--require-hashes")
WHEELS = "--only-binary=:all:"
EXACTLY = (*HASHED, "--index-strategy=unsafe-best-match", "--no-build-isolation")
"""Options of uv that install exactly the lock. With hashes it matters little which of several
indexes a file comes from."""
SETTINGS = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "proxy": "ALL_PROXY",
}
"""Setting of pip → the variable that gives uv the same."""


def main() -> None:
    """Install torch and the named lock; exit with the status of the first command that fails."""
    [lock] = sys.argv[1:]
    try:
        _run_pip("install", *HASHED, WHEELS, f"--requirement={LOCKS / 'uv.txt'}")
        _install_torch()
        _print_line(f"installing the packages of {lock}: 0.9 GB")
        _install_lock(Path(lock))
        if any(line.startswith("nvidia-") for line in requires("torch") or ()):
            _print_line(
                "this torch is for CUDA: 4 GB more (docs/running.md has the one for the CPU)"
            )
            _run_uv("install", *EXACTLY, f"--requirement={LOCKS / 'cuda.txt'}")
        _run_uv("check")
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)


def _install_torch() -> None:
    lock = _read_entry(LOCKS / "torch.txt", "torch")
    wanted = lock.partition("==")[2].split(maxsplit=1)[0]
    if _read_installed_version("torch").partition("+")[0] == wanted:
        return
    _print_line(f"installing torch {wanted}: 0.7 GB")
    folder = Path(sys.prefix, "torch")
    shutil.rmtree(folder, ignore_errors=True)  # left by an interrupted run
    wheel = _download_wheel(LOCKS / "torch.txt", folder)
    # uv knows a build for the CPU, 2.13.0+cpu, by its whole version only.
    exact = lock.replace(f"=={wanted}", f"=={wheel.name.split('-')[1]}")
    here = ("--no-index", f"--find-links={folder}")
    _run_uv("install", *EXACTLY, WHEELS, *here, "--requirement=-", stdin=exact)
    shutil.rmtree(folder)


def _download_wheel(lock: Path, folder: Path) -> Path:
    """Download a wheel of the only package of ``lock`` into ``folder``, and return its path. Given
    hashes, pip prefers an index, so the folders of its configuration are tried first.
    """
    command = ("download", *HASHED, WHEELS, f"--requirement={lock}", f"--dest={folder}")
    if "UV_FIND_LINKS" not in make_uv_variables() or not _run_pip(
        *command, "--no-index", may_fail=True
    ):
        _print_line("no folder of pip's configuration has a wheel of it: asking the index")
        _run_pip(*command)
    [wheel] = folder.iterdir()
    return wheel


def _read_entry(lock: Path, name: str) -> str:
    """Return the lines of ``lock`` that pin the package ``name`` and list its hashes."""
    text = lock.read_text(encoding="utf-8")
    found = re.search(rf"^{name}==(?:.*\\\n)*.*\n", text, re.MULTILINE)
    return found[0] if found else sys.exit(f"{lock}: does not pin {name}; run make lock")


def _install_lock(lock: Path) -> None:
    """Install the packages of ``lock``: first setuptools, which builds those without a wheel."""
    builder = _read_entry(lock, "setuptools")
    _run_uv("install", *EXACTLY, WHEELS, "--requirement=-", stdin=builder)
    _run_uv("install", *EXACTLY, f"--requirement={lock}")


def _read_installed_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _print_line(line: str) -> None:
    print(line, flush=True)  # before what pip and uv print


def _choose_quiet_option() -> list[str]:
    """Return the option --quiet of pip and uv, or no option if stderr is a terminal."""
    return [] if sys.stderr.isatty() else ["--quiet"]


def _run_pip(*words: str, may_fail: bool = False) -> bool:
    """Run pip; return whether it succeeded. With ``may_fail``, a failure does not raise."""
    silent = ["--quiet"] if may_fail else _choose_quiet_option()
    command = [sys.executable, "-m", "pip", *silent, "--disable-pip-version-check", *words]
    errors = subprocess.DEVNULL if may_fail else None
    return not subprocess.run(command, check=not may_fail, stderr=errors).returncode


def _run_uv(verb: str, *words: str, stdin: str | None = None) -> None:
    """Run uv pip; ``stdin`` is the text of the requirements file ``-``."""
    uv = Path(sys.executable).with_name("uv")
    command = [str(uv), "pip", verb, *_choose_quiet_option(), f"--python={sys.executable}", *words]
    environment = {**make_uv_variables(), **os.environ}
    subprocess.run(command, check=True, env=environment, input=stdin, text=True)


@lru_cache(maxsize=1)
def make_uv_variables() -> dict[str, str]:
    """Return pip's configuration as environment variables of uv."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    settings = dict(line.split("=", 1) for line in listed.splitlines())
    variables = {}
    for section in ("global.", "install.", ":env:."):  # the last one counts
        for setting, variable in SETTINGS.items():
            if section + setting in settings:
                values = ast.literal_eval(settings[section + setting]).split()
                variables[variable] = ("," if variable == "UV_FIND_LINKS" else " ").join(values)
    return variables


if __name__ == "__main__":
    main()
