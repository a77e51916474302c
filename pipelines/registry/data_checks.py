"""Check the data behind a model: datasets, channels of scripts, and the bytes of their files."""

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from conditions.provenance_record import record, text
from pipelines.registry.package_evidence import Evidence
from pipelines.registry.record_checks import HASH_CHARACTERS, Mismatch, UncheckedError, same
from pipelines.registry.training_checks import DESCRIPTION
from steps.shard.shard_plan import SPLITS
from trainyard.common.errors import DataError
from trainyard.common.hashes import files_sha256, json_sha256

if TYPE_CHECKING:
    from training.data.merged_manifests import MergedManifests  # imports pyarrow and numpy

SUMMARY = ("examples", "sample")
"""Tables of the train split's summary (``steps.shard.split_summary``)."""


def split(name: str, *, deep: bool) -> Callable[[Evidence], str]:
    """Return a check of split ``train`` or ``test``: fingerprint and sizes;
    ``deep``: every byte.
    """

    def check(evidence: Evidence) -> str:
        if check_for_script(evidence):
            of_script = {"train": check_training_data, "test": check_test_data}[name]
            return of_script(evidence, deep=deep)
        inputs = evidence.job_inputs("Evaluate")
        has_summary = name == "train" and "summary" in inputs
        uri = (
            evidence.output("Shard", name) if has_summary else inputs.get(name, {}).get("S3Uri", "")
        )
        merged_manifests = _merge_manifests(evidence, uri)
        fingerprint = evidence.provenance.get(f"{name}_fingerprint")
        same(
            f"fingerprint of the {name} split",
            merged_manifests.fingerprint,
            fingerprint,
            "provenance.json",
        )
        names, manifests = (
            _check_files(evidence, uri, merged_manifests, deep),
            _manifests(evidence, uri),
        )
        alone(evidence, uri, {*names, *manifests})
        same(f"SHA-256 of the manifests of the {name} split", _sha256(evidence, uri, manifests),
             evidence.provenance.get(f"{name}_manifests_sha256"), "provenance.json")  # fmt: skip
        if has_summary:
            _check_summary(evidence, inputs["summary"]["S3Uri"], deep)
        return f"{merged_manifests.fingerprint[:HASH_CHARACTERS]}, {len(names)} files" + (
            ", every byte" if deep else ""
        )

    return check


def dataset_faults(evidence: Evidence, uri: str) -> Iterator[str]:
    """Yield what is wrong with the dataset that another engine wrote at ``uri``, by its manifests
    and the sizes of its files.

    Raises:
        ServiceError: S3 refused, or could not be reached.
    """
    samples: dict[str, str] = {}
    for name in SPLITS:
        folder = f"{uri.rstrip('/')}/{name}"
        try:
            merged = _merge_manifests(evidence, folder)
            same("split", merged.split, name, "its folder")
            _check_files(evidence, folder, merged, deep=False)
        except Mismatch as error:
            yield str(error)
            continue
        if not len(merged.files):
            yield f"{folder}: has no sample; write some, since the pipeline needs each split"
        fields = ", ".join(f"{n} {one.dtype} {one.shape}" for n, one in merged.fields.items())
        samples[name] = f"{fields}, made for {dict(merged.workload)}"
    if len(set(samples.values())) > 1:
        yield f"{uri}: the splits' samples differ: {samples}; write them with the same fields"


def _merge_manifests(evidence: Evidence, uri: str) -> "MergedManifests":
    from training.data.manifest_columns import parse_manifest
    from training.data.merged_manifests import merge

    names = _manifests(evidence, uri)
    try:
        manifests = {n: parse_manifest(f"{uri}/{n}", evidence.read(f"{uri}/{n}")) for n in names}
        return merge(uri, manifests)
    except DataError as error:
        raise Mismatch(str(error)) from None


def _manifests(evidence: Evidence, uri: str) -> list[str]:
    return [
        n for n in evidence.list_objects(uri) if n.startswith("manifest-") and n.endswith(".json")
    ]


def _sha256(evidence: Evidence, uri: str, names: Iterable[str]) -> str:
    """Return the hash over the names of these files and their hashes."""
    return files_sha256({n: hashlib.sha256(evidence.read(f"{uri}/{n}")).hexdigest() for n in names})


def _check_summary(evidence: Evidence, uri: str, deep: bool) -> None:
    """Check the summary that the evaluation read of the train split instead of its samples."""
    folders = ("", *(f"{table}/" for table in SUMMARY))
    manifests = sorted(
        f"{folder}{n}" for folder in folders for n in _manifests(evidence, f"{uri}/{folder}")
    )
    same("SHA-256 of the manifests of the summary of the train split",
         _sha256(evidence, uri, manifests),
         evidence.provenance.get("summary_manifests_sha256"), "provenance.json")  # fmt: skip
    names = set(manifests)
    for table in SUMMARY:
        folder = f"{uri}/{table}"
        files = _check_files(evidence, folder, _merge_manifests(evidence, folder), deep)
        names |= {f"{table}/{file}" for file in files}
    alone(evidence, uri, names)


def _check_files(
    evidence: Evidence, uri: str, merged_manifests: "MergedManifests", deep: bool
) -> list[str]:
    """Check that each file that the manifests name is there, with its size and its bytes."""
    from training.data.verify import named_files

    object_sizes, names = evidence.list_objects(uri), named_files(merged_manifests)
    for name, size, sha256 in names:
        same(f"size of shard {uri}/{name}", object_sizes.get(name, "missing"), size, "its manifest")
        if deep:
            digest = evidence.sha256(f"{uri}/{name}")
            same(f"SHA-256 of shard {uri}/{name}", digest, sha256, "its manifest")
    return [name for name, _, _ in names]


TRAIN = "train"
"""Channel of the evaluation that is not tested on (``steps.evaluate.script_evaluation``)."""


def check_for_script(evidence: Evidence) -> bool:
    """Return whether a script of the user's own was scored."""
    return "channels" in evidence.json(evidence.source("Statistics")["S3Uri"]).get("dataset", {})


def check_test_data(evidence: Evidence, *, deep: bool) -> str:
    """Check that the test data of a script are in place; ``deep``: every byte of them."""
    channels = evidence.json(evidence.source("Statistics")["S3Uri"])["dataset"]["channels"]
    channels = {name: channel for name, channel in channels.items() if name != TRAIN}
    uris = {name: source["S3Uri"] for name, source in evidence.job_inputs("Evaluate").items()}
    return _check_channels(evidence, "test", channels, uris, deep)


def check_training_data(evidence: Evidence, *, deep: bool) -> str:
    """Check that the training data of a script are in place; ``deep``: every byte of them."""
    body = evidence.model_file(DESCRIPTION)
    job_channels = evidence.job("Train").get("InputDataConfig", ())
    sources = {channel["ChannelName"]: channel["DataSource"] for channel in job_channels}
    uris = {
        name: source["S3DataSource"]["S3Uri"]
        for name, source in sources.items()
        if "S3DataSource" in source
    }
    for name, source in sources.items():
        system = source.get("FileSystemDataSource")
        if system and system["DirectoryPath"].endswith(f"/shard/{name}"):  # it mirrors the bucket
            uris[name] = evidence.output("Shard", name)
    return _check_channels(evidence, "train", json.loads(body)["channels"], uris, deep)


def _check_channels(
    evidence: Evidence,
    split: str,
    channels: Mapping[str, Mapping[str, Any]],
    uris: Mapping[str, str],
    deep: bool,
) -> str:
    fingerprint = json_sha256({name: channel["sha256"] for name, channel in channels.items()})
    same(f"fingerprint of the {split} data", fingerprint,
         evidence.provenance.get(f"{split}_fingerprint"), "provenance.json")  # fmt: skip
    if missing := sorted(channels.keys() - uris.keys()):
        raise UncheckedError(f"channel {missing[0]} came from no prefix in S3")
    files = 0
    for name, channel in channels.items():
        files += _check_channel(evidence, f"channel {name}", uris[name], channel, deep)
    return f"{fingerprint[:HASH_CHARACTERS]}, {files} files" + (", every byte" if deep else "")


def _check_channel(
    evidence: Evidence, label: str, uri: str, channel_record: Mapping[str, Any], deep: bool
) -> int:
    objects = evidence.input_objects(uri)
    same(f"number of files of {label} ({uri})", len(objects), channel_record["files"], "its job")
    same(
        f"bytes of {label} ({uri})",
        sum(size for _, size in objects.values()),
        channel_record["bytes"],
        "its job",
    )
    read = channel_record.get(
        "contents", True
    )  # a streamed channel is recorded by names and sizes only
    if deep or not read:
        contents = {
            name: [size, evidence.sha256(object_uri)] if read else [size]
            for name, (object_uri, size) in objects.items()
        }
        same(
            f"SHA-256 of {label} ({uri})",
            json_sha256(contents),
            channel_record["sha256"],
            "its job",
        )
    return len(objects)


def artifact(evidence: Evidence) -> str:
    """Check every byte of the model, and that the evaluation's job read nothing besides."""
    uri = evidence.model
    extra_names = [] if uri.endswith("/") else sorted(set(evidence.beginning_with(uri)) - {""})
    if extra_names:
        raise Mismatch(f"{uri}{extra_names[0]} begins with the artifact's name: not in the record")
    digest = evidence.model_sha256()
    same("SHA-256 of the artifact", digest, evidence.provenance.get("artifact_sha256"),
         "provenance.json")  # fmt: skip
    return digest[:HASH_CHARACTERS]


def scores(evidence: Evidence) -> str:
    """Check that the tables of scores are those that the gate read and the evaluation sums up."""
    recorded_hashes = evidence.provenance["scores_sha256"]
    tables = evidence.json(evidence.source("Statistics")["S3Uri"])["scores"]
    folder = evidence.output("Evaluate", "scores")
    alone(evidence, folder, recorded_hashes)
    for name, expected_sha256 in recorded_hashes.items():
        same(f"SHA-256 of {name} in evaluation.json", tables[name]["sha256"], expected_sha256,
             "provenance.json")  # fmt: skip
        same(f"SHA-256 of {name}", evidence.sha256(f"{folder}/{name}"), expected_sha256,
             "provenance.json")  # fmt: skip
    return ", ".join(
        f"{name} {digest[:HASH_CHARACTERS]}" for name, digest in recorded_hashes.items()
    )


def outputs(evidence: Evidence) -> str:
    """Check that the evaluation's output has only evaluation.json, and the gate's only its three
    files.
    """
    alone(evidence, evidence.output("Evaluate", "evaluation"), ("evaluation.json",))
    gate = evidence.output("Gate", "gate")
    alone(evidence, gate, ("gate.json", "provenance.json", "record.json"))
    expected_text = text(record(evidence.provenance, evidence.metadata["provenance_sha256"]))
    if evidence.read(f"{gate}/record.json") != expected_text.encode():
        raise Mismatch("record.json is not what follows from provenance.json")
    return "4 files"


def alone(evidence: Evidence, folder: str, names: Collection[str]) -> None:
    """Check that exactly the files ``names`` lie in ``folder``.

    Raises:
        Mismatch: a file is missing, or there are others.
    """
    listing = set(evidence.list_objects(folder))
    for name in sorted({*names} ^ listing):
        problem = "is not part of the record" if name in listing else "is missing"
        raise Mismatch(f"{folder}/{name} {problem}")
