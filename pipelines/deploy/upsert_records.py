"""What upserts applied: one object each, named by its fingerprint, written before the pipeline.

    s3://<bucket>/<prefix>/<pipeline>/definitions/<fingerprint>.json

A deployed state that is not among them was made by something else than upsert: drift.
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
    """Where a pipeline's records are, and its lock."""

    bucket: str
    prefix: str
    """Without a slash at its end."""

    kms_key: str | None = None

    def key(self, name: str) -> str:
        """The key of the object ``name``."""
        return f"{self.prefix}/{name}"

    @property
    def encryption(self) -> dict[str, str]:
        """Further arguments of PutObject."""
        if not self.kms_key:
            return {}
        return {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": self.kms_key}


@dataclass(frozen=True, slots=True)
class Records:
    """What is under a place."""

    recorded: Mapping[str, datetime]
    """Fingerprint → when it was recorded last."""

    locked: bool
    """True if an upsert is under way, or was interrupted."""

    @property
    def last(self) -> str | None:
        """The fingerprint that was recorded last."""
        return max(self.recorded, key=self.recorded.__getitem__, default=None)


def place(definition: CompiledPipeline) -> Place:
    """Beside the code of the pipeline: ``<root>/code/…`` and ``<root>/definitions/…``."""
    asset = definition.assets[0]
    root = asset.prefix.removesuffix("/code")
    return Place(asset.bucket, f"{root}/definitions", definition.kms_key)


def listed(s3: Any, where: Place) -> Records:
    """The records at ``where``; none when the bucket does not exist yet.

    Raises:
        ClientError: AWS refused.
    """
    pages = s3.get_paginator("list_objects_v2")
    try:
        found = [
            item
            for page in pages.paginate(Bucket=where.bucket, Prefix=where.key(""))
            for item in page.get("Contents", ())
        ]
    except ClientError as error:
        if error_code(error) == "NoSuchBucket":
            return Records({}, False)
        raise
    names = {item["Key"].removeprefix(where.key("")): item["LastModified"] for item in found}
    recorded = {n.removesuffix(".json"): at for n, at in names.items() if n.endswith(".json")}
    return Records(recorded, LOCK in names)


def write(s3: Any, where: Place, state: State) -> None:
    """Record ``state``; one that is there already is written again: it becomes the last one.

    Raises:
        ClientError: AWS refused.
    """
    s3.put_object(
        Bucket=where.bucket,
        Key=where.key(f"{state.fingerprint}.json"),
        Body=json.dumps(state.as_json(), indent=1).encode(),
        **where.encryption,
    )


def read(s3: Any, where: Place, fingerprint: str) -> State:
    """The state that was recorded under ``fingerprint``.

    Raises:
        ClientError: AWS refused.
        PlanError: the object is not what was written.
    """
    key = where.key(f"{fingerprint}.json")
    body = s3.get_object(Bucket=where.bucket, Key=key)["Body"].read()
    try:
        state = State(**json.loads(body))
        if state.fingerprint == fingerprint:
            return state
    except (ValueError, TypeError):
        pass  # refused below
    raise PlanError(
        f"s3://{where.bucket}/{key}: is not the record that upsert wrote there: damaged or edited; "
        "delete it"
    )
