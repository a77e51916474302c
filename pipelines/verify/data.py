"""The dataset behind a model: its fingerprint from the manifests, and its bytes."""

from collections.abc import Callable

from errors import DataError
from pipelines.verify.checks import SHOWN, Mismatch, same
from pipelines.verify.evidence import Evidence


def split(name: str, *, deep: bool) -> Callable[[Evidence], str]:
    """A check of split ``train`` or ``test``: fingerprint and sizes; ``deep``: every byte."""

    def check(evidence: Evidence) -> str:
        from training.data.union import Union  # pyarrow and numpy: for those who ask

        uri = evidence.job_inputs("Evaluate").get(name, {}).get("S3Uri", "")
        union: Union = _union(evidence, uri)
        expected = evidence.provenance.get(f"{name}_fingerprint")
        same(f"fingerprint of the {name} split", union.fingerprint, expected, "provenance.json")
        checked = _check_files(evidence, uri, union, deep)
        return f"{union.fingerprint[:SHOWN]}, {checked} files" + (", every byte" if deep else "")

    return check


def _union(evidence: Evidence, uri: str):
    from training.data.columns import parse_manifest
    from training.data.union import unite

    names = [n for n in evidence.listed(uri) if n.startswith("manifest-") and n.endswith(".json")]
    try:
        parsed = {n: parse_manifest(f"{uri}/{n}", evidence.read(f"{uri}/{n}")) for n in names}
        return unite(uri, parsed)
    except DataError as error:
        raise Mismatch(str(error)) from None


def _check_files(evidence: Evidence, uri: str, union, deep: bool) -> int:
    """How many files the manifests name; each is there, of its size, and with its bytes."""
    from training.data.verify import file_names

    there, count = evidence.listed(uri), 0
    for file, sizes, hashes in zip(union.files, union.bytes, union.sha256, strict=True):
        for name, size, sha256 in zip(file_names(file, union), sizes, hashes, strict=True):
            same(f"size of shard {uri}/{name}", there.get(name, "missing"), int(size),
                 "its manifest")  # fmt: skip
            if deep:
                found = evidence.sha256(f"{uri}/{name}")
                same(f"SHA-256 of shard {uri}/{name}", found, sha256.tobytes().hex(),
                     "its manifest")  # fmt: skip
            count += 1
    return count
