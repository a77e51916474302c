"""Records of applied upserts: one object each, named by its fingerprint, written before the
pipeline.

    s3://<bucket>/<prefix>/<pipeline>/definitions/<fingerprint>.json

A deployed state without a record was not deployed by upsert: drift.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from botocore.exceptions import ClientError

from pipelines.compile.compilation import CompiledPipeline
from trainyard.aws_clients import error_code
from trainyard.common.errors import PlanError
from trainyard.plan.deployed_pipeline import State

LOCK = "lock"


@dataclass(frozen=True, slots=True)
class Place:
    """S3 location of a pipeline's records and its lock."""

    bucket: str
    prefix: str
    """Key prefix, without a slash at its end."""

    kms_key: str | None = None

    def key(self, name: str) -> str:
        """Return the key of the object ``name``."""
        return f"{self.prefix}/{name}"

    @property
    def encryption(self) -> dict[str, str]:
        """Return the encryption arguments of PutObject."""
        if not self.kms_key:
            return {}
        return {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": self.kms_key}


@dataclass(frozen=True, slots=True)
class Records:
    """Records found at a place."""

    times: Mapping[str, datetime]
    """Fingerprint → time when it was last recorded."""

    is_locked: bool
    """True if an upsert is under way, or was interrupted."""

    @property
    def last(self) -> str | None:
        """Return the fingerprint that was recorded last."""
        return max(self.times, key=self.times.__getitem__, default=None)


def place(definition: CompiledPipeline) -> Place:
    """Return the place beside the code of the pipeline: ``<root>/code/…`` and
    ``<root>/definitions/…``.
    """
    asset = definition.assets[0]
    root = asset.prefix.removesuffix("/code")
    return Place(asset.bucket, f"{root}/definitions", definition.kms_key)


def list_records(s3: Any, location: Place) -> Records:
    """List the records at ``location``; none when the bucket does not exist yet.

    Raises:
        ClientError: AWS refused.
    """
    pages = s3.get_paginator("list_objects_v2")
    try:
        objects = [
            item
            for page in pages.paginate(Bucket=location.bucket, Prefix=location.key(""))
            for item in page.get("Contents", ())
        ]
    except ClientError as error:
        if error_code(error) == "NoSuchBucket":
            return Records({}, False)
        raise
    names = {item["Key"].removeprefix(location.key("")): item["LastModified"] for item in objects}
    times = {
        n.removesuffix(".json"): timestamp for n, timestamp in names.items() if n.endswith(".json")
    }
    return Records(times, LOCK in names)


def write(s3: Any, location: Place, state: State) -> None:
    """Record ``state``; an existing record is written again, so that it becomes the last one.

    Raises:
        ClientError: AWS refused.
    """
    s3.put_object(
        Bucket=location.bucket,
        Key=location.key(f"{state.fingerprint}.json"),
        Body=json.dumps(state.as_json(), indent=1).encode(),
        **location.encryption,
    )


def read(s3: Any, location: Place, fingerprint: str) -> State:
    """Return the state that was recorded under ``fingerprint``.

    Raises:
        ClientError: AWS refused.
        PlanError: the object was damaged or edited.
    """
    key = location.key(f"{fingerprint}.json")
    body = s3.get_object(Bucket=location.bucket, Key=key)["Body"].read()
    try:
        state = State(**json.loads(body))
        if state.fingerprint == fingerprint:
            return state
    except (ValueError, TypeError):
        pass  # refused below
    raise PlanError(
        f"s3://{location.bucket}/{key}: is not the record that upsert wrote there: damaged or "
        "edited; "
        "delete it"
    )
