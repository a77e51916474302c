"""Install what a lock says into this Python's environment: python scripts/install.py locks/run.txt.

uv unpacks in seconds what takes pip minutes. It does not read pip's configuration, so it is told
what that says of indexes, proxies and certificates; variables of your own (UV_…) are heard first.
Every file is held to the lock's hashes; nothing is resolved, and `uv pip check` has the last word.

Which build of torch is taken says pip: its configuration may name a folder or an index for it. The
build says whether it needs CUDA's libraries. Bytecode is written when a module is imported for the
first time: most never are.
"""

import ast
import os
import shutil
import subprocess
import sys
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

LOCKS = Path(__file__).resolve().parents[1] / "locks"
EXACTLY = ("--no-deps", "--require-hashes", "--index-strategy=unsafe-best-match")
"""As the lock says. With hashes it matters little which of several indexes a file comes from."""
SETTINGS = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "proxy": "ALL_PROXY",
}
"""A setting of pip → the variable that tells uv the same."""


def main() -> None:
    """Install torch and the lock that is named; ends like the first program that fails."""
    [lock] = sys.argv[1:]
    try:
        _pip("install", "--no-deps", "--require-hashes", f"--requirement={LOCKS / 'uv.txt'}")
        _torch()
        _uv("install", *EXACTLY, f"--requirement={lock}")
        if any(line.startswith("nvidia-") for line in requires("torch") or ()):
            print("this torch is for CUDA: 4 GB more (docs/running.md has the one for the CPU)")
            _uv("install", *EXACTLY, f"--requirement={LOCKS / 'cuda.txt'}")
        _uv("check")
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)


def _torch() -> None:
    """Of torch's builds the one that pip likes best: told the hashes, it would like the index's
    better than one in a folder."""
    lock = (LOCKS / "torch.txt").read_text(encoding="utf-8")
    wanted = lock.partition("torch==")[2].split(maxsplit=1)[0]
    if _installed("torch").partition("+")[0] == wanted:
        return
    folder = Path(sys.prefix, "torch")
    shutil.rmtree(folder, ignore_errors=True)  # what was interrupted
    _pip("download", "--no-deps", f"--dest={folder}", f"torch=={wanted}")
    [wheel] = folder.iterdir()
    # uv knows a build for the CPU, 2.13.0+cpu, by its whole version only.
    exact = folder / "torch.txt"
    exact.write_text(lock.replace(f"torch=={wanted}", f"torch=={wheel.name.split('-')[1]}"))
    _uv("install", *EXACTLY, "--no-index", f"--find-links={folder}", f"--requirement={exact}")
    shutil.rmtree(folder)


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _pip(*words: str) -> None:
    quiet = ("--quiet", "--disable-pip-version-check")
    subprocess.run([sys.executable, "-m", "pip", *quiet, *words], check=True)


def _uv(verb: str, *words: str) -> None:
    uv = Path(sys.executable).with_name("uv")
    command = [uv, "pip", verb, "--quiet", f"--python={sys.executable}", *words]
    subprocess.run(command, check=True, env={**_told(), **os.environ})


@lru_cache(maxsize=1)
def _told() -> dict[str, str]:
    """pip's configuration in uv's variables."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    said = dict(line.split("=", 1) for line in listed.splitlines())
    told = {}
    for section in ("global.", "install.", ":env:."):  # the last has the last word
        for setting, variable in SETTINGS.items():
            if section + setting in said:
                values = ast.literal_eval(said[section + setting]).split()
                told[variable] = ("," if variable == "UV_FIND_LINKS" else " ").join(values)
    return told


if __name__ == "__main__":
    main()
