"""Check whether every byte of a dataset is what its manifests state."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from training.data.merged_manifests import MergedManifests
from training.data.shard_writer import list_variable_fields
from trainyard.common.hashes import hash_file

THREADS = 4  # hashing and reading release the interpreter's lock


@dataclass(frozen=True, slots=True)
class Damage:
    """A file that is not what its manifest says."""

    file: str
    reason: str


def verify_shards(
    folder: Path, manifests: MergedManifests, advance: Callable[[int], None] = lambda size: None
) -> Iterator[Damage]:
    """Hash every file of the split, and yield the damaged ones.

    Args:
        advance: called with the number of bytes that were just read.
    """
    entries = list_files(manifests)

    def check(entry: tuple[str, int, str]) -> str | None:
        """Return what is wrong with the file, or None."""
        name, size, sha256 = entry
        path = folder / name
        if not path.is_file():
            return "is missing"
        if path.stat().st_size != size:
            return f"has {path.stat().st_size} bytes, its manifest says {size}"
        digest = hash_file(path, advance)
        return None if digest == sha256 else f"its SHA-256 is {digest}, its manifest says {sha256}"

    with ThreadPoolExecutor(THREADS) as pool:
        reasons = pool.map(check, entries)
        for (name, _, _), reason in zip(entries, reasons, strict=True):
            if reason:
                yield Damage(name, reason)


def list_files(merged: MergedManifests) -> list[tuple[str, int, str]]:
    """Return (name, bytes, SHA-256) of every file that the manifests list.

    The files of a shard are its rows, then the values of each variable-width field.
    """
    ends = ("", *(f".{name}" for name in list_variable_fields(merged.fields)))
    return [
        (f"{file.removesuffix('.npy')}{end}.npy", int(size), sha256.tobytes().hex())
        for file, sizes, hashes in zip(merged.files, merged.bytes, merged.sha256, strict=True)
        for end, size, sha256 in zip(ends, sizes, hashes, strict=True)
    ]
