"""The dataset behind a model: its fingerprint from the manifests, and its bytes."""

import hashlib
from collections.abc import Callable, Iterable

from pipelines.verify import channels
from pipelines.verify.checks import SHOWN, Mismatch, same
from pipelines.verify.evidence import Evidence
from pipelines.verify.files import alone
from trainyard.common.errors import DataError

SUMMARY = ("examples", "sample")
"""The tables of the train split's summary (``steps.shard.summary``)."""


def split(name: str, *, deep: bool) -> Callable[[Evidence], str]:
    """A check of split ``train`` or ``test``: fingerprint and sizes; ``deep``: every byte."""

    def check(evidence: Evidence) -> str:
        from training.data.merged_manifests import (
            MergedManifests,  # pyarrow and numpy: for those who ask
        )

        if channels.scripted(evidence):
            of_script = {"train": channels.trained, "test": channels.tested}[name]
            return of_script(evidence, deep=deep)
        inputs = evidence.job_inputs("Evaluate")
        summarised = name == "train" and "summary" in inputs
        uri = (
            evidence.output("Shard", name) if summarised else inputs.get(name, {}).get("S3Uri", "")
        )
        merged: MergedManifests = _merged(evidence, uri)
        expected = evidence.provenance.get(f"{name}_fingerprint")
        same(f"fingerprint of the {name} split", merged.fingerprint, expected, "provenance.json")
        names, manifests = _check_files(evidence, uri, merged, deep), _manifests(evidence, uri)
        alone(evidence, uri, {*names, *manifests})
        same(f"SHA-256 of the manifests of the {name} split", _sha256(evidence, uri, manifests),
             evidence.provenance.get(f"{name}_manifests_sha256"), "provenance.json")  # fmt: skip
        if summarised:
            _check_summary(evidence, inputs["summary"]["S3Uri"], deep)
        return f"{merged.fingerprint[:SHOWN]}, {len(names)} files" + (
            ", every byte" if deep else ""
        )

    return check


def _merged(evidence: Evidence, uri: str):
    from training.data.columns import parse_manifest
    from training.data.merged_manifests import merge

    names = _manifests(evidence, uri)
    try:
        parsed = {n: parse_manifest(f"{uri}/{n}", evidence.read(f"{uri}/{n}")) for n in names}
        return merge(uri, parsed)
    except DataError as error:
        raise Mismatch(str(error)) from None


def _manifests(evidence: Evidence, uri: str) -> list[str]:
    return [n for n in evidence.listed(uri) if n.startswith("manifest-") and n.endswith(".json")]


def _sha256(evidence: Evidence, uri: str, names: Iterable[str]) -> str:
    """Over the names of these files and their hashes."""
    lines = [f"{n} {hashlib.sha256(evidence.read(f'{uri}/{n}')).hexdigest()}" for n in names]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _check_summary(evidence: Evidence, uri: str, deep: bool) -> None:
    """What the evaluation read of the train split instead of its samples."""
    folders = ("", *(f"{table}/" for table in SUMMARY))
    manifests = sorted(f"{at}{n}" for at in folders for n in _manifests(evidence, f"{uri}/{at}"))
    same("SHA-256 of the manifests of the summary of the train split",
         _sha256(evidence, uri, manifests),
         evidence.provenance.get("summary_manifests_sha256"), "provenance.json")  # fmt: skip
    names = set(manifests)
    for table in SUMMARY:
        folder = f"{uri}/{table}"
        files = _check_files(evidence, folder, _merged(evidence, folder), deep)
        names |= {f"{table}/{file}" for file in files}
    alone(evidence, uri, names)


def _check_files(evidence: Evidence, uri: str, merged, deep: bool) -> list[str]:
    """The files that the manifests name; each is there, of its size, and with its bytes."""
    from training.data.verify import file_names

    there, named = evidence.listed(uri), []
    for file, sizes, hashes in zip(merged.files, merged.bytes, merged.sha256, strict=True):
        for name, size, sha256 in zip(file_names(file, merged), sizes, hashes, strict=True):
            same(f"size of shard {uri}/{name}", there.get(name, "missing"), int(size),
                 "its manifest")  # fmt: skip
            if deep:
                found = evidence.sha256(f"{uri}/{name}")
                same(f"SHA-256 of shard {uri}/{name}", found, sha256.tobytes().hex(),
                     "its manifest")  # fmt: skip
            named.append(name)
    return named
