"""Harm everything that a registered model's record covers, one thing at a time."""

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pipelines.registry.package_evidence import Evidence

KINDS = ("flipped bit", "truncation", "swap of equal length", "additional key")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A file in S3, or a key of the package."""

    name: str
    """Thing that a finding has to name."""
    where: str
    """``uri`` of a file; ``metadata``, ``ModelCard`` or ``InferenceSpecification`` of a key."""
    path: tuple[str | int, ...] = ()
    """Path to a key inside that field."""
    bulk: bool = False
    """Whether it is a file of the train split: ``--deep`` alone reads these."""


def files(evidence: Evidence) -> Iterator[Target]:
    """Every object that the record covers, from the artifact to the code of every step."""
    yield Target(name="artifact", where=evidence.container["ModelDataUrl"])
    folders = [
        evidence.find_output_uri("Evaluate", "evaluation"),
        evidence.find_output_uri("Evaluate", "scores"),
        evidence.find_output_uri("Gate", "gate"),
        evidence.find_job_inputs("Gate")["provenance"]["S3Uri"].rstrip("/"),
    ]
    code = {uri.rstrip("/") for step in evidence.provenance["code"].values() for uri in step}
    test = evidence.find_job_inputs("Evaluate")["test"]["S3Uri"]
    splits = [test, f"{test.rpartition('/')[0]}/train"]  # the shard step's outputs
    for folder in [*folders, *sorted(code), *splits]:
        named = folder.rpartition("/")[2] if folder in (*code, folders[-1]) else None
        for name in evidence.list_objects(folder):
            bulk = folder == splits[1] and not name.startswith("manifest-")
            shown = named or ("manifest" if name.startswith("manifest-") else name)
            yield Target(name=shown, where=f"{folder}/{name}", bulk=bulk)


def keys(evidence: Evidence) -> Iterator[Target]:
    """Every key of the package that UpdateModelPackage can change, an approval's own aside."""
    for key in evidence.metadata:
        name = "provenance" if key.startswith("provenance_") else key
        yield Target(name=name, where="metadata", path=(key,))
    for field in ("InferenceSpecification", "ModelCard"):
        for path in _leaves(_open_field(evidence.package, field)):
            name = next(str(part) for part in reversed(path) if isinstance(part, str))
            yield Target(name=name, where=field, path=path)


def _leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, (*path, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _leaves(inner, (*path, number))
    elif isinstance(value, str) and value and path != ("ModelCardStatus",):
        yield path


def _open_field(package: dict[str, Any], field: str) -> Any:
    value = json.loads(json.dumps(package[field]))
    if field == "ModelCard":
        value["ModelCardContent"] = json.loads(value["ModelCardContent"])
    return value


def harm_bytes(body: bytes, kind: str) -> bytes:
    """``body`` after a flipped bit, a truncation, or a swap of equal length.

    An empty file has no bit to flip: it gets one byte.
    """
    if not body:
        return b"\0"
    place = int.from_bytes(hashlib.sha256(body).digest()[:6]) % len(body)
    if kind == "truncation":
        return body[:-1]
    if kind == "flipped bit":
        return body[:place] + bytes([body[place] ^ 1]) + body[place + 1 :]
    other = bytes(byte ^ 0x15 for byte in body)
    return other if other != body else body[::-1]


@contextlib.contextmanager
def tamper_target(
    client: Callable[[str], Any], arn: str, target: Target, kind: str
) -> Iterator[None]:
    """The package while somebody has done ``kind`` to ``target``; afterwards as it was."""
    if target.where.startswith("s3://"):
        with _object(client("s3"), target.where, kind):
            yield
        return
    sagemaker = client("sagemaker")
    package = sagemaker.describe_model_package(ModelPackageName=arn)
    changes, undo = _edits(package, target, kind)
    sagemaker.update_model_package(ModelPackageArn=arn, **changes)
    try:
        yield
    finally:
        sagemaker.update_model_package(ModelPackageArn=arn, **undo)


@contextlib.contextmanager
def _object(s3: Any, uri: str, kind: str) -> Iterator[None]:
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    if kind == "additional key":
        s3.put_object(Bucket=bucket, Key=f"{key}.more", Body=b"more")
    else:
        before = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
        s3.put_object(Bucket=bucket, Key=key, Body=harm_bytes(before, kind))
    try:
        yield
    finally:
        if kind == "additional key":
            s3.delete_object(Bucket=bucket, Key=f"{key}.more")
        else:
            s3.put_object(Bucket=bucket, Key=key, Body=before)


def _edits(package: dict[str, Any], target: Target, kind: str) -> tuple[dict, dict]:
    """(what an update says, what undoes it)."""
    if target.where == "metadata":
        [key] = target.path
        old = package["CustomerMetadataProperties"][key]
        if kind == "additional key":
            name = f"{key}_more"
            return ({"CustomerMetadataProperties": {name: "more"}},
                    {"CustomerMetadataPropertiesToRemove": [name]})  # fmt: skip
        undo = {"CustomerMetadataProperties": {key: old}}
        if new := _text(old, kind):
            return {"CustomerMetadataProperties": {key: new}}, undo
        return {"CustomerMetadataPropertiesToRemove": [key]}, undo
    field = target.where
    changed = _open_field(package, field)
    holder = changed
    for part in target.path[:-1]:
        holder = holder[part]
    if kind != "additional key":
        holder[target.path[-1]] = _text(holder[target.path[-1]], kind)
    elif isinstance(holder, list):
        holder.append("more")
    else:
        holder[_more(target)] = "more"
    if field == "ModelCard":
        changed["ModelCardContent"] = json.dumps(changed["ModelCardContent"])
    return {field: changed}, {field: package[field]}


def _more(target: Target) -> str:
    """A key that the request's shape takes; free ones take any."""
    free = target.where == "ModelCard" or "Environment" in target.path
    return f"{target.path[-1]}_more" if free else "NearestModelName"


def _text(old: str, kind: str) -> str:
    return harm_bytes(old.encode(), kind).decode("utf-8", "replace")


def names_harmed_place(found: str, target: Target, kind: str) -> bool:
    """Return whether a finding says where the harm is."""
    named = [target.name, *(["model card"] if target.where == "ModelCard" else [])]
    added = kind == "additional key" and "more" in found.lower()
    return added or any(name in found for name in named)
