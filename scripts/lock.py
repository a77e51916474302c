"""Write locks/: the packages of pyproject.toml's extra dev, resolved, in files for pip.

make lock                       locked versions stay, where pyproject.toml still allows them
make lock LOCK=--upgrade        everything again; LOCK may hold any options of uv pip compile
make lock LOCK=--cpu-index=URL  after a change of torch: with the files of its builds for the CPU

packages.txt    all that runs here or in a job, except torch.txt, cuda.txt and uv.txt
run.txt         the part that make run needs (extra run): the rest is for tests, or recipes' options
image.txt       the part in the training image (extra image; containers/training)
torch.txt       torch; a job uses its image's own, which AWS builds for the machine. Its
                hashes are those of the ordinary builds and of the builds for the CPU, which are on
                an index of PyTorch's own and need no CUDA library
cuda.txt        packages that only builds with CUDA need, gigabytes to download
uv.txt          uv, which installs the others

uv resolves for every Python and platform at once.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from pipelines.compile.package_lock import PACKAGES, Entry, parse_lock

CHECKOUT = Path(__file__).resolve().parents[1]

FILES = {
    "locks/torch.txt": "torch",
    "locks/cuda.txt": "(nvidia|cuda)-.+|triton",
    "locks/uv.txt": "uv",
    PACKAGES: ".+",
}
"""File → the names of its packages; a package goes into the first file that matches."""
PARTS = {"run": "locks/run.txt", "image": "locks/image.txt"}
"""Extra → the file of its part of packages.txt."""
_HEAD = "# Written by `make lock`: see scripts/lock.py.\n"


def main() -> None:
    """Write the locks, or exit with a message if the hashes of torch's CPU builds are unknown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cpu-index", help="URL of PyTorch's package index for the CPU")
    options, further = parser.parse_known_args()
    old = "".join((CHECKOUT / name).read_text() for name in FILES if (CHECKOUT / name).exists())
    project = str(CHECKOUT / "pyproject.toml")
    new = _resolve_lock(["--extra=dev", project, *further], old)
    entries = list(_iter_entries_with_cpu_hashes(new, parse_lock(old, "locks/"), options.cpu_index))
    for name, names in FILES.items():
        ours = [entry for entry in entries if re.fullmatch(names, entry.name)]
        entries = [entry for entry in entries if entry not in ours]
        _write_lock(name, ours)
    for extra, name in PARTS.items():
        part = _resolve_lock([f"--extra={extra}", project, *further], _format_entries(new))
        wanted = {entry.name for entry in part}
        _write_lock(name, [entry for entry in ours if entry.name in wanted])


def _write_lock(name: str, entries: Sequence[Entry]) -> None:
    (CHECKOUT / name).write_text(_HEAD + _format_entries(entries))
    print(f"{name}: {len(entries)} packages")


def _resolve_lock(arguments: Sequence[str], old: str = "") -> tuple[Entry, ...]:
    """Return the packages that uv resolves from ``arguments``, in versions of the lock ``old``."""
    command = ["uv", "pip", "compile", "--quiet", "--no-header", "--universal"]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "lock.txt")
        out.write_text(old)
        subprocess.run(
            [*command, "--python-version=3.11", "--generate-hashes", f"-o={out}", *arguments],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        return parse_lock(out.read_text(), "uv pip compile")


def _iter_entries_with_cpu_hashes(
    new: Sequence[Entry], old: Sequence[Entry], cpu_index: str | None
) -> Iterator[Entry]:
    """Yield the entries ``new``; that of torch also gets the hashes of its builds for the CPU."""
    for entry in new:
        if entry.name != "torch":
            yield entry
            continue
        if cpu_index:
            known = _resolve_cpu_builds(entry.version, cpu_index)
        else:
            known = [e for e in old if (e.name, e.version) == ("torch", entry.version)]
        if not known:
            sys.exit(
                f"torch is now {entry.version}: name PyTorch's index for the CPU, which its page "
                "Get Started has, as make lock LOCK=--cpu-index=URL"
            )
        hashes = {*entry.hashes, *(value for e in known for value in e.hashes)}
        yield replace(entry, hashes=tuple(sorted(hashes)))


def _resolve_cpu_builds(version: str, index: str) -> Sequence[Entry]:
    with tempfile.NamedTemporaryFile("w", suffix=".in") as file:
        print(f"torch=={version}", file=file, flush=True)
        return _resolve_lock(["--no-deps", f"--default-index={index}", file.name])


def _format_entries(entries: Sequence[Entry]) -> str:
    return "".join(f"{e.line}    # via {', '.join(sorted(e.wanted_by))}\n" for e in entries)


if __name__ == "__main__":
    main()
